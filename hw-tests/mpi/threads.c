// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MPI_THREAD_MULTIPLE with traffic from several threads of each rank at once: a tag or a communicator for each thread,
// receivers that share one queue through matched probes, floods in both directions, and one-sided operations. Runs with
// 2 or more ranks.
//
// usage: threads [--threads N]      (of each rank: 4 if not set, 16 at most)
#include "check.h"

enum { MAX_BYTES = 100000 };

static int threads = 4; // number in each rank

static const int lengths[] = {8, 0, 64, 4000, 300, 13000, 1, 70000, MAX_BYTES};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static MPI_Comm comms[CHECK_THREADS];
static pthread_barrier_t all_threads;
static int rounds;

// One ring exchange of thread `t` of every rank, in `comm` under `tag`.
static void exchange(MPI_Comm comm, int tag, int t, int number, unsigned char *out, unsigned char *in) {
    int bytes = lengths[(number + t) % LENGTHS];
    MPI_Request requests[2];
    MPI_Status statuses[2];
    pattern_fill(out, (size_t)bytes, seed_of(check.rank, t, number));
    if (number % 3 == 0) {
        MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, right, tag, in, bytes, MPI_BYTE, left, tag, comm, &statuses[1]));
    } else {
        MPI_OK(MPI_Isend(out, bytes, MPI_BYTE, right, tag, comm, &requests[0]));
        MPI_OK(MPI_Irecv(in, bytes, MPI_BYTE, left, tag, comm, &requests[1]));
        MPI_OK(MPI_Waitall(2, requests, statuses));
    }
    check_status(&statuses[1], left, tag, bytes);
    pattern_check("message of the thread", in, (size_t)bytes, seed_of(left, t, number));
}

static void *tag_for_each_thread(void *argument) {
    int t = (int)(intptr_t)argument;
    unsigned char *out = check_alloc(MAX_BYTES), *in = check_alloc(MAX_BYTES);
    pthread_barrier_wait(&all_threads);
    for (int i = 0; i < rounds; i++)
        exchange(MPI_COMM_WORLD, 10 + t, t, i, out, in);
    free(out);
    free(in);
    return NULL;
}

static void *communicator_for_each_thread(void *argument) {
    int t = (int)(intptr_t)argument;
    unsigned char *out = check_alloc(MAX_BYTES), *in = check_alloc(MAX_BYTES);
    pthread_barrier_wait(&all_threads);
    for (int i = 0; i < rounds / 2; i++) {
        int mine = check.rank * 10 + t + i, sum = 0, word = check.rank == i % check.size ? i * 10 + t : -1;
        exchange(comms[t], 5, t, i, out, in);
        MPI_OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comms[t]));
        check_int("sum of the thread", check.size * (check.size - 1) / 2 * 10 + check.size * (t + i), sum);
        MPI_OK(MPI_Bcast(&word, 1, MPI_INT, i % check.size, comms[t]));
        check_int("word of the thread", i * 10 + t, word);
    }
    free(out);
    free(in);
    return NULL;
}

// Half of the threads send to the right neighbour; the others receive any message, whichever thread sent it.
static atomic_int taken[CHECK_THREADS][4096];
static atomic_int tickets;

static void *shared_queue(void *argument) {
    int senders = threads / 2, t = (int)(intptr_t)argument, each = rounds < 4096 ? rounds : 4096;
    unsigned char *buffer = check_alloc(MAX_BYTES);
    pthread_barrier_wait(&all_threads);
    if (t < senders) {
        for (int i = 0; i < each; i++) {
            int words[2] = {t, i}, bytes = 8 + lengths[i % LENGTHS] / 2;
            pattern_fill(buffer, (size_t)bytes, seed_of(check.rank, t, i));
            memcpy(buffer, words, sizeof words);
            MPI_OK(MPI_Send(buffer, bytes, MPI_BYTE, right, t, comms[0]));
        }
    } else {
        unsigned char *expected = check_alloc(MAX_BYTES);
        while (atomic_fetch_add(&tickets, 1) < each * senders) {
            MPI_Message message;
            MPI_Status status;
            int bytes, words[2];
            MPI_OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[0], &message, &status));
            MPI_OK(MPI_Get_count(&status, MPI_BYTE, &bytes));
            MPI_OK(MPI_Mrecv(buffer, bytes, MPI_BYTE, &message, &status));
            memcpy(words, buffer, sizeof words);
            if (words[0] < 0 || words[0] >= senders || words[1] < 0 || words[1] >= each) {
                check_fail("message: expected thread and number of a sender, got %d and %d", words[0], words[1]);
                continue;
            }
            check_status(&status, left, words[0], 8 + lengths[words[1] % LENGTHS] / 2);
            pattern_fill(expected, (size_t)bytes, seed_of(left, words[0], words[1]));
            if (memcmp(expected + 8, buffer + 8, (size_t)bytes - 8) != 0)
                check_fail("message %d of thread %d: expected its pattern, got other bytes", words[1], words[0]);
            check_int("times the message came before", 0, atomic_fetch_add(&taken[words[0]][words[1]], 1));
        }
        free(expected);
    }
    free(buffer);
    return NULL;
}

static void *many_in_flight(void *argument) {
    enum { EACH = 32, BYTES = 40 };
    int t = (int)(intptr_t)argument, total = EACH * check.size;
    MPI_Request *requests = check_alloc(2 * (size_t)total * sizeof *requests);
    unsigned char *out = check_alloc((size_t)total * BYTES), *in = check_alloc((size_t)total * BYTES);
    pthread_barrier_wait(&all_threads);
    for (int round = 0; round < rounds / 8; round++) {
        for (int i = 0; i < total; i++) {
            pattern_fill(out + i * BYTES, BYTES, seed_of(check.rank, t, round * 1000 + i / check.size));
            MPI_OK(MPI_Irecv(in + i * BYTES, BYTES, MPI_BYTE, i % check.size, 50 + t, MPI_COMM_WORLD, &requests[i]));
        }
        for (int i = 0; i < total; i++)
            MPI_OK(MPI_Isend(out + i * BYTES, BYTES, MPI_BYTE, i % check.size, 50 + t, MPI_COMM_WORLD,
                             &requests[total + i]));
        MPI_OK(MPI_Waitall(2 * total, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < total; i++)
            pattern_check("message", in + i * BYTES, BYTES, seed_of(i % check.size, t, round * 1000 + i / check.size));
    }
    free(requests);
    free(out);
    free(in);
    return NULL;
}

enum { SLOT = 3000 }; // bytes of one thread of one rank in every window

static MPI_Win window;
static unsigned char *memory; // a counter of 8 bytes, then SLOT bytes for each thread of each rank

static void *one_sided(void *argument) {
    int t = (int)(intptr_t)argument;
    MPI_Aint slot = 64 + (MPI_Aint)(check.rank * threads + t) * SLOT;
    unsigned char *out = check_alloc(SLOT), *in = check_alloc(SLOT);
    long long one = 1, before, last = -1;
    pthread_barrier_wait(&all_threads);
    for (int i = 0; i < rounds; i++) {
        int target = (check.rank + i) % check.size, bytes = 1 + (i * 211 + t) % SLOT;
        MPI_OK(MPI_Fetch_and_op(&one, &before, MPI_LONG_LONG, 0, 0, MPI_SUM, window));
        MPI_OK(MPI_Win_flush(0, window));
        if (before <= last)
            check_fail("counter fetched: expected more than %lld, got %lld", last, before);
        last = before;
        pattern_fill(out, (size_t)bytes, seed_of(check.rank, t, i));
        MPI_OK(MPI_Put(out, bytes, MPI_BYTE, target, slot, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(target, window));
        memset(in, 0, (size_t)bytes);
        MPI_OK(MPI_Get(in, bytes, MPI_BYTE, target, slot, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(target, window));
        pattern_check("bytes put and got back", in, (size_t)bytes, seed_of(check.rank, t, i));
    }
    free(out);
    free(in);
    return NULL;
}

static void one_sided_threads(void) {
    MPI_Aint bytes = 64 + (MPI_Aint)check.size * threads * SLOT;
    check_case("threads_put_get_and_count_in_one_window");
    MPI_OK(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window));
    memset(memory, 0, (size_t)bytes);
    MPI_OK(MPI_Win_lock_all(0, window));
    MPI_OK(MPI_Win_sync(window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    check_in_threads(threads, one_sided);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_sync(window));
    if (check.rank == 0) {
        long long count;
        memcpy(&count, memory, sizeof count);
        check_int("counter in the end", (long long)check.size * threads * rounds, count);
    }
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
}

int main(int argc, char **argv) {
    check_start_with(MPI_THREAD_MULTIPLE, &argc, &argv, 2);
    threads = check_number(argc, argv, "--threads", threads, CHECK_THREADS);
    check_no_more(argc);
    rounds = scaled(32, 8);
    pthread_barrier_init(&all_threads, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]));

    do {
        check_case("threads_exchange_under_a_tag_each");
        check_in_threads(threads, tag_for_each_thread);
        check_case("threads_exchange_and_reduce_in_a_communicator_each");
        check_in_threads(threads, communicator_for_each_thread);
        check_case("threads_take_messages_from_one_queue_by_matched_probe");
        memset(taken, 0, sizeof taken);
        atomic_store(&tickets, 0);
        check_in_threads(threads, shared_queue);
        check_case("threads_keep_many_messages_in_flight_with_all_ranks");
        check_in_threads(threads, many_in_flight);
        one_sided_threads();
    } while (check_again());

    for (int t = 0; t < threads; t++)
        MPI_OK(MPI_Comm_free(&comms[t]));
    pthread_barrier_destroy(&all_threads);
    return check_finish();
}
