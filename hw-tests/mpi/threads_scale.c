// SPDX-License-Identifier: MIT OR Apache-2.0
//
// How several threads with a communicator each scale against one: 8-byte messages that each thread sends to its own process,
// 16 at a time into receives that wait, so that on a machine with two cores two threads of one rank have one each. With two ranks
// the threads of a rank exchange with those of the other. Prints the time and the processor time of a message, the best of
// some repetitions, and checks what arrives; how fast it is fails nothing. Runs with 1 or 2 ranks.
//
// usage: threads_scale [--threads MOST] [--messages N]      (default 2 threads, 20000 messages of each)
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>

enum { MOST_THREADS = 16, AT_A_TIME = 16, REPETITIONS = 5 };

static MPI_Comm comms[MOST_THREADS];
static pthread_barrier_t begin;
static int messages = 20000;

static void *exchange(void *argument) {
    int t = (int)(intptr_t)argument, peer = check.size == 1 ? 0 : check.rank ^ 1;
    long long out[AT_A_TIME], in[AT_A_TIME];
    MPI_Request requests[AT_A_TIME];
    pthread_barrier_wait(&begin);
    for (int i = 0; i < messages; i += AT_A_TIME) {
        for (int k = 0; k < AT_A_TIME; k++)
            MPI_OK(MPI_Irecv(&in[k], 8, MPI_BYTE, peer, 1, comms[t], &requests[k]));
        for (int k = 0; k < AT_A_TIME; k++) {
            out[k] = (long long)t << 32 | (i + k);
            MPI_OK(MPI_Send(&out[k], 8, MPI_BYTE, peer, 1, comms[t]));
        }
        MPI_OK(MPI_Waitall(AT_A_TIME, requests, MPI_STATUSES_IGNORE));
        for (int k = 0; k < AT_A_TIME; k++)
            check_int("message", out[k], in[k]);
    }
    return NULL;
}

static double processor_time(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// The best time of a message, seconds, and its processor time in this rank.
static double with_threads(int threads, double *processor) {
    double best = 1e9;
    for (int i = 0; i < REPETITIONS; i++) {
        pthread_t started[MOST_THREADS];
        pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
        for (intptr_t t = 0; t < threads; t++)
            if (pthread_create(&started[t], NULL, exchange, (void *)t) != 0)
                MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        double time = MPI_Wtime(), used = processor_time();
        pthread_barrier_wait(&begin);
        for (int t = 0; t < threads; t++)
            pthread_join(started[t], NULL);
        time = (MPI_Wtime() - time) / threads / messages;
        used = (processor_time() - used) / threads / messages;
        if (time < best) {
            best = time;
            *processor = used;
        }
        pthread_barrier_destroy(&begin);
    }
    return best;
}

int main(int argc, char **argv) {
    int provided, most = 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_attach(1);
    messages = scaled(messages, 500);
    bool is_understood = argc % 2 == 1 && check.size <= 2;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            most = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--messages") == 0)
            messages = atoi(argv[i + 1]);
        else
            is_understood = false;
    }
    if (!is_understood || most < 1 || most > MOST_THREADS || messages < 1) {
        if (check.rank == 0)
            fprintf(stderr, "usage: threads_scale [--threads MOST] [--messages N], on 1 or 2 ranks\n");
        MPI_Finalize();
        return CHECK_USAGE_EXIT;
    }
    if (provided < MPI_THREAD_MULTIPLE) {
        check_skip("threads_scale", "this MPI does not provide MPI_THREAD_MULTIPLE");
        return check_finish();
    }
    messages -= messages % AT_A_TIME;
    for (int t = 0; t < most; t++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]));
    check_case("threads_with_a_communicator_each_exchange");
    double first = 0;
    for (int threads = 1; threads <= most; threads *= 2) {
        double processor = 0, time = with_threads(threads, &processor);
        first = threads == 1 ? time : first;
        if (check.rank == 0)
            printf("# %d threads: %.3f us a message, %.3f us of processors, %.2f times one thread\n", threads, time * 1e6,
                   processor * 1e6, first / time);
    }
    check_end_case();
    for (int t = 0; t < most; t++)
        MPI_OK(MPI_Comm_free(&comms[t]));
    return check_finish();
}
