// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Hundreds of long messages with gaps to several ranks at once, from one rank and then from all, so that they compete
// for the transport's buffers; number, lengths and pauses of receivers are seeded. Every request completes, and every
// byte is right. Runs with 2 or more ranks: strided_sends [--rounds N]
#include "check.h"

enum { BLOCK = 32, STRIDE = 36, MOST_BLOCKS = 1 << 16, MOST_MESSAGES = 240 };

// A message, as both sides know it: some of the blocks that each rank has.
struct message {
    int first, blocks;
};

static struct message message_of(uint64_t round, int from, int to, int number) {
    struct random random = {pattern_word(round * 1000 + (uint64_t)from * 100 + (uint64_t)to, (uint64_t)number)};
    // All messages of one length, so that they end together; or random lengths, a few of them short.
    int any = random_below(&random, 8) ? MOST_BLOCKS : 64, blocks = round % 2 ? MOST_BLOCKS : 1 + random_below(&random, any);
    return (struct message){random_below(&random, MOST_BLOCKS - blocks + 1), blocks};
}

// In every second round all ranks send, each a part of the messages.
static int messages_of(uint64_t round, int from, int to) {
    struct random random = {pattern_word(round, (uint64_t)from * 64 + (uint64_t)to)};
    int most = scaled(MOST_MESSAGES, 40), all = (most < MOST_MESSAGES ? most : MOST_MESSAGES) / (check.size - 1);
    int one = (int)(round / 2 % (uint64_t)check.size);
    if (from == to || (round % 2 && from != one))
        return 0;
    return round % 2 ? all : 1 + random_below(&random, all / check.size);
}

static void fill(unsigned char *at) {
    for (int i = 0; i < MOST_BLOCKS; i++)
        pattern_fill(at + (size_t)i * STRIDE, BLOCK, (uint64_t)i);
}

static void verify(const unsigned char *at, const struct message *message) {
    for (int i = 0; i < message->blocks; i++) {
        pattern_check("block", at + (size_t)i * STRIDE, BLOCK, (uint64_t)(message->first + i));
        for (int gap = BLOCK; gap < STRIDE; gap++)
            check_int("byte of a gap", 0x5a, at[(size_t)i * STRIDE + (size_t)gap]);
    }
}

static unsigned char *memory_of(const struct message *message) {
    unsigned char *memory = check_alloc((size_t)message->blocks * STRIDE);
    memset(memory, 0x5a, (size_t)message->blocks * STRIDE);
    return memory;
}

// Computes without a call of MPI, for an amount of work instead of a time.
static void compute(int work) {
    static volatile uint64_t result;
    for (int i = 0; i < work; i++)
        result += pattern_word((uint64_t)i, result);
}

static void exchange(uint64_t round, MPI_Datatype block, const unsigned char *source) {
    struct random random = {round * 31 + (uint64_t)check.rank};
    int most = 2 * check.size * MOST_MESSAGES, count = 0, receives = 0;
    MPI_Request *requests = check_alloc((size_t)most * sizeof *requests);
    unsigned char **memory = check_alloc((size_t)most * sizeof *memory);
    struct message *messages = check_alloc((size_t)most * sizeof *messages);
    for (int from = 0; from < check.size; from++)
        for (int number = 0; number < messages_of(round, from, check.rank); number++) {
            messages[count] = message_of(round, from, check.rank, number);
            memory[count] = memory_of(&messages[count]);
            MPI_Request *request = &requests[count];
            MPI_OK(MPI_Irecv(memory[count], messages[count].blocks, block, from, number, MPI_COMM_WORLD, request));
            count++;
        }
    receives = count;
    if (round % 4 < 2)
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    // To the ranks in turn, so that messages to all of them are under way at once.
    for (int number = 0; number < MOST_MESSAGES; number++)
        for (int to = 0; to < check.size; to++)
            if (number < messages_of(round, check.rank, to)) {
                struct message message = message_of(round, check.rank, to, number);
                const unsigned char *from = source + (size_t)message.first * STRIDE;
                MPI_OK(MPI_Isend(from, message.blocks, block, to, number, MPI_COMM_WORLD, &requests[count++]));
            }
    for (int done = 0; !done;) {
        MPI_OK(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE));
        if (random_below(&random, 400) == 0)
            compute(random_below(&random, 1 << 20));
    }
    for (int i = 0; i < receives; i++) {
        verify(memory[i], &messages[i]);
        free(memory[i]);
    }
    free(messages);
    free(memory);
    free(requests);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    int rounds = check_number(argc, argv, "--rounds", 4, 1 << 20);
    check_no_more(argc);
    MPI_Datatype block = check_block(BLOCK, STRIDE);
    unsigned char *source = check_alloc((size_t)MOST_BLOCKS * STRIDE);
    fill(source);
    check_in_the_middle();
    for (int round = 1; round <= rounds || check_again(); round++) {
        check_case("long messages with gaps to all ranks at once, seed %d", round);
        exchange((uint64_t)round, block, source);
    }
    MPI_OK(MPI_Type_free(&block));
    return check_finish();
}
