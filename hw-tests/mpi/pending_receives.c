// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Seeded random receives, cancels and matched probes of rank 0 in several communicators, which are freed meanwhile. A
// cancelled receive gets no message; another receive gets it. Every other receive gets its whole message. A message of
// a matched probe is received after its communicator was freed. Runs with 2 or more ranks; rank 1 sends, others wait.
#include "check.h"

enum { COMMUNICATORS = 4, MOST_MESSAGES = 48, SEED = 1 };

struct message {
    int at; // its communicator
    int tag;
    int bytes;
    uint64_t seed;
};

enum state { WANTED, POSTED, PROBED, RECEIVED };

struct receive {
    enum state state;
    unsigned char *memory;
    MPI_Request request;
    MPI_Message message;
};

struct round {
    struct random random; // the same on both sides: makes the plan
    MPI_Comm comms[COMMUNICATORS];
    int count;
    struct message messages[MOST_MESSAGES];
};

static int size_of(struct random *random) {
    static const int sizes[] = {0, 8, 100, 4000, 12000, 13000, 70000, 1 << 20};
    return sizes[random_below(random, sizeof sizes / sizeof *sizes)];
}

static void plan(struct round *round, uint64_t seed) {
    round->random.state = seed * 1000003;
    for (int i = 0; i < COMMUNICATORS; i++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &round->comms[i]));
    round->count = 1 + random_below(&round->random, MOST_MESSAGES);
    for (int i = 0; i < round->count; i++) {
        int at = random_below(&round->random, COMMUNICATORS), bytes = size_of(&round->random);
        round->messages[i] = (struct message){at, i, bytes, seed * 64 + (uint64_t)i};
    }
}

static void free_communicators(struct round *round) {
    for (int i = 0; i < COMMUNICATORS; i++)
        MPI_OK(MPI_Comm_free(&round->comms[i]));
}

static void send_all(struct round *round) {
    MPI_Request requests[MOST_MESSAGES];
    unsigned char *memory[MOST_MESSAGES];
    for (int i = 0; i < round->count; i++) {
        const struct message *message = &round->messages[i];
        memory[i] = check_alloc((size_t)message->bytes);
        pattern_fill(memory[i], (size_t)message->bytes, message->seed);
        MPI_Comm comm = round->comms[message->at];
        MPI_OK((i % 3 ? MPI_Isend : MPI_Issend)(memory[i], message->bytes, MPI_BYTE, 0, message->tag, comm, &requests[i]));
    }
    free_communicators(round);
    MPI_OK(MPI_Waitall(round->count, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < round->count; i++)
        free(memory[i]);
}

static void has_come(const struct message *message, struct receive *receive, const MPI_Status *status) {
    check_status(status, 1, message->tag, message->bytes);
    pattern_check("message", receive->memory, (size_t)message->bytes, message->seed);
    guarded_check("message", receive->memory, (size_t)message->bytes);
    receive->state = RECEIVED;
}

static void post(const struct round *round, const struct message *message, struct receive *receive) {
    MPI_Comm comm = round->comms[message->at];
    MPI_OK(MPI_Irecv(receive->memory, message->bytes, MPI_BYTE, 1, message->tag, comm, &receive->request));
    receive->state = POSTED;
}

static void probe(const struct round *round, const struct message *message, struct receive *receive) {
    int found = 0;
    MPI_Status status;
    MPI_OK(MPI_Improbe(1, message->tag, round->comms[message->at], &found, &receive->message, &status));
    if (found) {
        check_status(&status, 1, message->tag, message->bytes);
        receive->state = PROBED;
    }
}

// Cancels a receive if its message has not come: then it has none, and its memory is as it was.
static void cancel(const struct message *message, struct receive *receive) {
    int cancelled = 0;
    MPI_Status status;
    MPI_OK(MPI_Cancel(&receive->request));
    MPI_OK(MPI_Wait(&receive->request, &status));
    MPI_OK(MPI_Test_cancelled(&status, &cancelled));
    if (!cancelled) {
        has_come(message, receive, &status);
        return;
    }
    for (int i = 0; i < message->bytes; i++)
        if (receive->memory[i] != 0x5a)
            check_fail("byte %d of a receive that was cancelled: expected 0x5a, got 0x%02x", i, receive->memory[i]);
    receive->state = WANTED;
}

static void receive_probed(const struct message *message, struct receive *receive, bool blocking) {
    MPI_Status status;
    MPI_Request request;
    if (blocking) {
        MPI_OK(MPI_Mrecv(receive->memory, message->bytes, MPI_BYTE, &receive->message, &status));
    } else {
        MPI_OK(MPI_Imrecv(receive->memory, message->bytes, MPI_BYTE, &receive->message, &request));
        MPI_OK(MPI_Wait(&request, &status));
    }
    has_come(message, receive, &status);
}

static void test(const struct message *message, struct receive *receive) {
    int done = 0;
    MPI_Status status;
    MPI_OK(MPI_Test(&receive->request, &done, &status));
    if (done)
        has_come(message, receive, &status);
}

static void receive_all(struct round *round, uint64_t seed) {
    struct random random = {seed * 77};
    struct receive receives[MOST_MESSAGES];
    unsigned char *arenas[MOST_MESSAGES];
    for (int i = 0; i < round->count; i++) {
        size_t bytes = (size_t)round->messages[i].bytes;
        arenas[i] = check_alloc(guarded_bytes(bytes));
        receives[i] = (struct receive){.state = WANTED, .memory = guarded_ready(arenas[i], bytes, (size_t)i)};
    }
    for (int step = random_below(&random, 6 * round->count); step > 0; step--) {
        int i = random_below(&random, round->count);
        const struct message *message = &round->messages[i];
        struct receive *receive = &receives[i];
        if (receive->state == WANTED && random_below(&random, 3))
            post(round, message, receive);
        else if (receive->state == WANTED)
            probe(round, message, receive);
        else if (receive->state == POSTED && random_below(&random, 2))
            cancel(message, receive);
        else if (receive->state == POSTED)
            test(message, receive);
        else if (receive->state == PROBED && random_below(&random, 4) == 0)
            receive_probed(message, receive, random_below(&random, 2));
    }
    for (int i = 0; i < round->count; i++)
        if (receives[i].state == WANTED)
            post(round, &round->messages[i], &receives[i]);
    // The pending requests outlive the communicators.
    free_communicators(round);
    for (int i = 0; i < round->count; i++) {
        MPI_Status status;
        if (receives[i].state == PROBED) {
            receive_probed(&round->messages[i], &receives[i], random_below(&random, 2));
        } else if (receives[i].state == POSTED) {
            MPI_OK(MPI_Wait(&receives[i].request, &status));
            has_come(&round->messages[i], &receives[i], &status);
        }
        check_true("a message was received", receives[i].state == RECEIVED);
        free(arenas[i]);
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    int rounds = scaled(150, 10);
    check_case("receives cancelled, probed for and left pending in freed communicators, seed %d", SEED);
    for (int number = 0; number < rounds; number++) {
        struct round round;
        plan(&round, (uint64_t)(SEED * 100000 + number));
        if (check.rank == 0)
            receive_all(&round, (uint64_t)(SEED * 100000 + number));
        else if (check.rank == 1)
            send_all(&round);
        else
            free_communicators(&round);
    }
    return check_finish();
}
