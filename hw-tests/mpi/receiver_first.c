// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Blocking receives that wait for messages of all lengths, between pairs of ranks, in both directions: what each gets is compared
// with what MPI's rules say. Senders come late or early; several messages of two tags are under way, and received in another
// order; receives have just the room, more, or too little; some have a wildcard, or one waits behind a receive that has; some
// messages are probed for; modes differ; two communicators are used at once. All is drawn from a seed that both sides of a pair
// have. Then a sender that is always late sends long messages. Runs with 2 or more ranks, of which an odd one only waits.
//
// usage: receiver_first [--seed S] [--groups N] [--placed yes|no]
//        (--placed: whether long messages of the late sender must have been written where their receiver said, or none may)
#include "check.h"
#include "counts.h"

enum { MOST = 4, TAGS = 2, LONGEST = 1200000, LATE = 60, MOST_LATE = 3000 };

static const int SIZES[] = {0, 8, 100, 5000, 12000, 12300, 16384, 20000, 65536, 100000, 1048576, 1048580, LONGEST};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

enum mode { SEND, SSEND, ISEND, ISSEND, IBSEND, MODES };
enum way { RECV, FROM_ANY, ANY_TAGGED, PROBED, MPROBED, WAYS };

static uint64_t state;
static MPI_Comm comms[2];
static int partner;
static unsigned char *outs[MOST], *ins[MOST];

static uint32_t drawn(uint32_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(state >> 33) % below;
}

static void pass(double seconds) {
    for (double until = MPI_Wtime() + seconds; MPI_Wtime() < until;)
        ;
}

struct message {
    int size, tag, room;
    enum mode mode;
    enum way way;
    uint64_t seed;
    bool is_taken;
};

// Messages that are under way together.
struct group {
    int count, order[MOST]; // which is received first
    double sender_waits, receiver_waits;
    bool wildcard_first;
    MPI_Comm comm;
    struct message messages[MOST];
};

static void draw(struct group *group) {
    group->count = 1 + (int)drawn(MOST);
    group->comm = comms[drawn(2)];
    group->sender_waits = drawn(2) ? drawn(300) * 1e-6 : 0;
    group->receiver_waits = drawn(4) ? 0 : drawn(300) * 1e-6;
    group->wildcard_first = drawn(6) == 0;
    for (int i = 0; i < group->count; i++) {
        struct message *message = &group->messages[i];
        int size = SIZES[drawn(SIZE_COUNT)];
        *message = (struct message){.size = size, .tag = (int)drawn(TAGS), .seed = ((uint64_t)drawn(1 << 30) << 8)};
        uint32_t room = drawn(8);
        message->room = room == 0 && size > 0 ? (int)drawn((uint32_t)size) : room < 4 ? size : LONGEST;
        message->mode = (enum mode)drawn(size > 100000 ? IBSEND : MODES); // attached memory is short
        message->way = drawn(2) ? RECV : (enum way)drawn(WAYS);
        group->order[i] = i;
    }
    for (int i = group->count - 1; i > 0; i--) {
        int other = (int)drawn((uint32_t)i + 1), kept = group->order[i];
        group->order[i] = group->order[other];
        group->order[other] = kept;
    }
}

static void send_group(struct group *group) {
    MPI_Request requests[MOST];
    pass(group->sender_waits);
    for (int i = 0; i < group->count; i++) {
        const struct message *message = &group->messages[i];
        const int size = message->size, tag = message->tag;
        requests[i] = MPI_REQUEST_NULL;
        pattern_fill(outs[i], (size_t)size, message->seed);
        // A blocking one only where all are received in the order in which they go.
        enum mode mode = group->count > 1 && message->mode < ISEND ? message->mode + ISEND : message->mode;
        switch (mode) {
        case SEND: MPI_OK(MPI_Send(outs[i], size, MPI_BYTE, partner, tag, group->comm)); break;
        case SSEND: MPI_OK(MPI_Ssend(outs[i], size, MPI_BYTE, partner, tag, group->comm)); break;
        case ISSEND: MPI_OK(MPI_Issend(outs[i], size, MPI_BYTE, partner, tag, group->comm, &requests[i])); break;
        case IBSEND: MPI_OK(MPI_Ibsend(outs[i], size, MPI_BYTE, partner, tag, group->comm, &requests[i])); break;
        default: MPI_OK(MPI_Isend(outs[i], size, MPI_BYTE, partner, tag, group->comm, &requests[i]));
        }
        if (drawn(3) == 0) // a draw that the other side does not make would part them: see exchange()
            pass(20e-6);
    }
    MPI_OK(MPI_Waitall(group->count, requests, MPI_STATUSES_IGNORE));
}

// The first message that was not received; tag -1: of any.
static struct message *next(struct group *group, int tag) {
    for (int i = 0; i < group->count; i++) {
        struct message *message = &group->messages[i];
        if (!message->is_taken && (tag < 0 || tag == message->tag)) {
            message->is_taken = true;
            return message;
        }
    }
    return NULL;
}

static void check_received(const struct message *got, const unsigned char *in, int room, MPI_Status *status, int code) {
    int expected = got->size > room ? MPI_ERR_TRUNCATE : MPI_SUCCESS, class = MPI_SUCCESS;
    if (code != MPI_SUCCESS)
        MPI_OK(MPI_Error_class(code, &class));
    check_int("error class", expected, class);
    check_status(status, partner, got->tag, got->size);
    pattern_check("received", in, (size_t)(got->size < room ? got->size : room), got->seed);
    for (int i = 0; i < CHECK_GUARD_BYTES; i++)
        if (in[room + i] != 0xa5)
            return check_fail("byte %d beyond the room of %d is %d", i, room, in[room + i]);
}

static unsigned char *ready(int at, int room) {
    memset(ins[at] + room, 0xa5, CHECK_GUARD_BYTES);
    return ins[at];
}

static void receive_group(struct group *group) {
    MPI_Status status;
    MPI_Request wildcard = MPI_REQUEST_NULL;
    const int room = LONGEST;
    struct message *taken = NULL;
    pass(group->receiver_waits);
    if (group->wildcard_first) {
        MPI_OK(MPI_Irecv(ready(0, room), room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, group->comm, &wildcard));
        taken = next(group, -1);
    }
    for (int i = 0; i < group->count; i++) {
        const struct message *wanted = &group->messages[group->order[i]];
        const enum way way = wanted->way;
        const int tag = way == ANY_TAGGED ? MPI_ANY_TAG : wanted->tag, from = way == FROM_ANY ? MPI_ANY_SOURCE : partner;
        struct message *got = next(group, way == ANY_TAGGED ? -1 : tag);
        if (!got)
            continue; // the wildcard has it
        unsigned char *in = ready(i % (MOST - 1) + 1, wanted->room);
        int code;
        if (way == MPROBED) {
            MPI_Message message;
            MPI_OK(MPI_Mprobe(from, tag, group->comm, &message, &status));
            check_status(&status, partner, got->tag, got->size);
            code = MPI_Mrecv(in, wanted->room, MPI_BYTE, &message, &status);
        } else {
            if (way == PROBED) {
                MPI_OK(MPI_Probe(from, tag, group->comm, &status));
                check_status(&status, partner, got->tag, got->size);
            }
            code = MPI_Recv(in, wanted->room, MPI_BYTE, from, tag, group->comm, &status);
        }
        check_received(got, in, wanted->room, &status, code);
    }
    // Of messages with the other tag than the receives that are left.
    for (struct message *got; (got = next(group, -1));) {
        unsigned char *in = ready(1, got->room);
        int code = MPI_Recv(in, got->room, MPI_BYTE, partner, got->tag, group->comm, &status);
        check_received(got, in, got->room, &status, code);
    }
    if (taken) {
        MPI_OK(MPI_Wait(&wildcard, &status));
        check_received(taken, ins[0], room, &status, MPI_SUCCESS);
    }
}

static void exchange(uint64_t seed, int groups) {
    check_case("groups of messages between pairs, seed %llu", (unsigned long long)seed);
    state = seed * 1000003 + (uint64_t)(check.rank / 2);
    bool lower_sends = false;
    for (int i = 0; i < groups && partner < check.size; i++) {
        struct group group = {0};
        lower_sends ^= drawn(3) == 0;
        draw(&group);
        const uint64_t common = state;
        if (lower_sends == (check.rank < partner))
            send_group(&group);
        else
            receive_group(&group);
        state = common;
    }
    check_end_case();
}

// The sender's process counts what it writes where its receiver says.
static const char *const PLACED = "btl_ibex_placed";

// Sends a long message after a while, until as many as `wanted` were written to their place, but not for ever. The first word of
// each says whether another follows.
static int send_late(int wanted) {
    double late = 1e-4;
    uint64_t follows = 1;
    int i = 0;
    for (; follows; i++) {
        const size_t size = (size_t)(16384 + 1000 * (i % 60));
        follows = i + 1 < LATE || (i + 1 < MOST_LATE && count_of(PLACED) < (unsigned)wanted);
        pattern_fill(outs[0], size, (uint64_t)i);
        memcpy(outs[0], &follows, sizeof follows);
        pass(late);
        MPI_OK(MPI_Send(outs[0], (int)size, MPI_BYTE, partner, 5, comms[0]));
        late = late < 1e-1 ? late * 1.1 : late;
    }
    return i;
}

static void receive_late(void) {
    uint64_t follows = 1;
    for (int i = 0; follows; i++) {
        const int size = 16384 + 1000 * (i % 60);
        MPI_Status status;
        memset(ins[0], 0, (size_t)size);
        MPI_OK(MPI_Recv(ready(0, LONGEST), LONGEST, MPI_BYTE, partner, 5, comms[0], &status));
        check_status(&status, partner, 5, size);
        memcpy(&follows, ins[0], sizeof follows);
        const uint64_t first = pattern_word((uint64_t)i, 0);
        memcpy(ins[0], &first, sizeof first);
        pattern_check("late", ins[0], (size_t)size, (uint64_t)i);
    }
}

static void late_sender(const char *expected) {
    check_case("a sender that is late");
    counts_open(&PLACED, 1);
    const bool is_wanted = expected && strcmp(expected, "yes") == 0;
    if (partner < check.size && check.rank < partner) {
        int sent = send_late(is_wanted ? LATE / 2 : 0);
        unsigned long long count = count_of(PLACED);
        printf("# rank %d: %llu of %d placed\n", check.rank, count, sent);
        if (is_wanted)
            check_true("messages were written to their place", count >= LATE / 2);
        else if (expected)
            check_int("messages written to their place", 0, (long long)count);
    } else if (partner < check.size) {
        receive_late();
    }
    counts_close();
    check_end_case();
}

int main(int argc, char **argv) {
    uint64_t seed = 1;
    int groups = 300;
    const char *expected = NULL;
    check_start(&argc, &argv, 2);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--groups") == 0)
            groups = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--placed") == 0)
            expected = argv[i + 1];
    }
    partner = check.rank ^ 1;
    const size_t attached = (size_t)2 * MOST * (LONGEST + MPI_BSEND_OVERHEAD);
    void *buffer = check_alloc(attached);
    MPI_OK(MPI_Buffer_attach(buffer, (int)attached));
    for (int i = 0; i < MOST; i++) {
        outs[i] = check_alloc(LONGEST);
        ins[i] = check_alloc(LONGEST + CHECK_GUARD_BYTES);
    }
    for (int i = 0; i < 2; i++) {
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
        MPI_OK(MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN));
    }
    exchange(seed, scaled(groups, 20));
    late_sender(expected);
    for (int i = 0; i < 2; i++)
        MPI_OK(MPI_Comm_free(&comms[i]));
    void *detached;
    int size;
    MPI_OK(MPI_Buffer_detach(&detached, &size));
    return check_finish();
}
