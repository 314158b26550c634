// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Random traffic, the same at each run with one seed: every rank sends to every rank, itself included, messages of random
// size, tag, mode and layout, and receives them by wildcards, by name, by probes and by matched probes. The first word of each message
// says which it is. In the order in which receives were posted, those that got messages of one sender and tag have got them in the order
// in which they were sent, each once, and every byte is right. Runs with 1 or more ranks.
//
// usage: pt2pt_random [--seed N] [--messages N]     (default 1, and 2000 from each rank to each, scaled)
#include "check.h"

enum { TAGS = 3, WINDOW = 24, LARGEST = 200000, STRIDE = 2, EDGES = 7 };

static const int EDGE[EDGES] = {4, 40, 512, 12 << 10, 32 << 10, 64 << 10, LARGEST};

struct message {
    int size, tag;
    bool is_synchronous, is_persistent, has_gaps_there, has_gaps_here;
};

struct pending {
    MPI_Request request;
    unsigned char *buffer;
    bool has_gaps;
};

static MPI_Datatype with_gaps;
static uint64_t seed = 1, state;
static int count = 2000;
static int *next_seen; // of each sender and tag, the number that is to come next or less

static uint64_t number_of(uint64_t a, uint64_t b, uint64_t c) { return pattern_word(seed * 7919 + a * 131 + b, c); }

static uint64_t draw(void) { return pattern_word(seed + 77 + (uint64_t)check.rank, state++); }

static struct message message_of(int from, int to, int index) {
    uint64_t word = number_of((uint64_t)from, (uint64_t)to, (uint64_t)index);
    int edge = EDGE[word % 97 % 11 < 9 ? word % 3 : word % EDGES];
    int size = 4 + (int)((word >> 8) % (uint64_t)edge);
    return (struct message){size > LARGEST ? LARGEST : size, (int)((word >> 40) % TAGS), (word >> 44) % 4 == 0,
                            (word >> 46) % 4 == 0, (word >> 48) % 4 == 0, (word >> 50) % 4 == 0};
}

static uint64_t content(int from, int to, int index) { return number_of((uint64_t)(from + 1000), (uint64_t)to, (uint64_t)index); }

static unsigned char *room(size_t size, bool has_gaps) { return check_alloc(size * (has_gaps ? STRIDE : 1)); }

static MPI_Datatype type_of(bool has_gaps) { return has_gaps ? with_gaps : MPI_BYTE; }

static void begin_send(struct pending *send, int to, int index) {
    struct message message = message_of(check.rank, to, index);
    bool gaps = message.has_gaps_here;
    unsigned char *bytes = check_alloc((size_t)message.size);
    pattern_fill(bytes, (size_t)message.size, content(check.rank, to, index));
    memcpy(bytes, &index, sizeof index);
    *send = (struct pending){.buffer = room((size_t)message.size, gaps), .has_gaps = gaps};
    for (int i = 0; i < message.size; i++)
        send->buffer[gaps ? i * STRIDE : i] = bytes[i];
    free(bytes);
    MPI_Datatype type = type_of(gaps);
    if (message.is_persistent) {
        if (message.is_synchronous)
            MPI_OK(MPI_Ssend_init(send->buffer, message.size, type, to, message.tag, MPI_COMM_WORLD, &send->request));
        else
            MPI_OK(MPI_Send_init(send->buffer, message.size, type, to, message.tag, MPI_COMM_WORLD, &send->request));
        MPI_OK(MPI_Start(&send->request));
    } else if (message.is_synchronous) {
        MPI_OK(MPI_Issend(send->buffer, message.size, type, to, message.tag, MPI_COMM_WORLD, &send->request));
    } else {
        MPI_OK(MPI_Isend(send->buffer, message.size, type, to, message.tag, MPI_COMM_WORLD, &send->request));
    }
}

static bool is_send_done(struct pending *send) {
    int done = 0;
    MPI_OK(MPI_Test(&send->request, &done, MPI_STATUS_IGNORE));
    if (!done)
        return false;
    if (send->request != MPI_REQUEST_NULL) // persistent
        MPI_OK(MPI_Request_free(&send->request));
    free(send->buffer);
    return true;
}

// In the order in which receives were posted.
static void check_received(const unsigned char *buffer, bool has_gaps, const MPI_Status *status) {
    int from = status->MPI_SOURCE, size = 0, index;
    unsigned char *bytes = malloc(LARGEST);
    MPI_OK(MPI_Get_count(status, MPI_BYTE, &size));
    for (int i = 0; i < size; i++)
        bytes[i] = buffer[has_gaps ? i * STRIDE : i];
    memcpy(&index, bytes, sizeof index);
    int *next = &next_seen[from * TAGS + status->MPI_TAG];
    while (*next < count && message_of(from, check.rank, *next).tag != status->MPI_TAG)
        (*next)++;
    if (index != *next)
        check_fail("of rank %d and tag %d: expected message %d, got %d", from, status->MPI_TAG, *next, index);
    struct message sent = message_of(from, check.rank, *next);
    check_int("size", sent.size, size);
    unsigned char first[sizeof index];
    uint64_t seed_of = content(from, check.rank, *next);
    for (size_t i = 0; i < sizeof index; i++)
        first[i] = pattern_byte(seed_of, i);
    memcpy(bytes, first, sizeof index);
    if (pattern_mismatch(bytes, (size_t)size, seed_of) != (size_t)size)
        check_fail("of rank %d, message %d: a byte is wrong", from, *next);
    (*next)++;
    free(bytes);
}

static void receive_by_probe(int *left) {
    MPI_Status status;
    MPI_Message message;
    int found = 0, size;
    bool is_matched = draw() % 2, gaps = draw() % 4 == 0;
    int from = draw() % 2 ? MPI_ANY_SOURCE : (int)(draw() % (uint64_t)check.size), tag = draw() % 2 ? MPI_ANY_TAG : (int)(draw() % TAGS);
    if (is_matched)
        MPI_OK(MPI_Improbe(from, tag, MPI_COMM_WORLD, &found, &message, &status));
    else
        MPI_OK(MPI_Iprobe(from, tag, MPI_COMM_WORLD, &found, &status));
    if (!found)
        return;
    MPI_OK(MPI_Get_count(&status, MPI_BYTE, &size));
    unsigned char *buffer = room((size_t)size, gaps);
    if (is_matched)
        MPI_OK(MPI_Mrecv(buffer, size, type_of(gaps), &message, &status));
    else
        MPI_OK(MPI_Recv(buffer, size, type_of(gaps), status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
    check_received(buffer, gaps, &status);
    free(buffer);
    (*left)--;
}

// Posts receives that take any message.
static int post_wildcards(struct pending *posted, int most) {
    int number = 1 + (int)(draw() % (uint64_t)(most < WINDOW ? most : WINDOW));
    for (int i = 0; i < number; i++) {
        bool gaps = draw() % 4 == 0;
        posted[i] = (struct pending){.buffer = room(LARGEST, gaps), .has_gaps = gaps};
        MPI_OK(MPI_Irecv(posted[i].buffer, LARGEST, type_of(gaps), MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &posted[i].request));
    }
    return number;
}

static void exchange(void) {
    int *sent = calloc((size_t)check.size, sizeof *sent), to_send = count * check.size, to_receive = to_send;
    struct pending sends[WINDOW], posted[WINDOW];
    int sending = 0, waiting = 0, done = 0;
    while (to_send > 0 || sending > 0 || to_receive > 0) {
        if (to_send > 0 && sending < WINDOW) {
            int to = (int)(draw() % (uint64_t)check.size);
            while (sent[to] == count)
                to = (to + 1) % check.size;
            begin_send(&sends[sending++], to, sent[to]++);
            to_send--;
        }
        for (int i = 0; i < sending; i++)
            if (is_send_done(&sends[i]))
                sends[i--] = sends[--sending];
        if (waiting == done) {
            waiting = done = 0;
            if (to_receive > 0 && draw() % 3 == 0)
                to_receive -= waiting = post_wildcards(posted, to_receive);
            else if (to_receive > 0)
                receive_by_probe(&to_receive);
        }
        for (int is_done = 1; done < waiting && is_done; done += is_done) {
            MPI_Status status;
            MPI_OK(MPI_Test(&posted[done].request, &is_done, &status));
            if (is_done) {
                check_received(posted[done].buffer, posted[done].has_gaps, &status);
                free(posted[done].buffer);
            }
        }
    }
    while (done < waiting) {
        MPI_Status status;
        MPI_OK(MPI_Wait(&posted[done].request, &status));
        check_received(posted[done].buffer, posted[done].has_gaps, &status);
        free(posted[done++].buffer);
    }
    free(sent);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--messages") == 0)
            count = atoi(argv[i + 1]);
    count = scaled(count, 50);
    next_seen = calloc((size_t)(check.size * TAGS), sizeof *next_seen);
    MPI_OK(MPI_Type_create_resized(MPI_BYTE, 0, STRIDE, &with_gaps));
    MPI_OK(MPI_Type_commit(&with_gaps));
    check_case("random_traffic_of_seed_%llu_arrives_in_order", (unsigned long long)seed);
    exchange();
    check_end_case();
    MPI_OK(MPI_Type_free(&with_gaps));
    free(next_seen);
    return check_finish();
}
