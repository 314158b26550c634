// SPDX-License-Identifier: MIT OR Apache-2.0
// Puts or gets per second of several threads of rank 0 in the memory of rank 1, as RMA-MT measures it.
// Build: mpicc -O2 -pthread -o ibex_rma_threads ibex_rma_threads.c      Run: mpirun -n 2 ./ibex_rma_threads
//
// A round is WINDOW operations of each thread, and their completion:
//     flush        when all threads have issued theirs, the first one calls MPI_Win_flush
//     flush_all    the same with MPI_Win_flush_all
//     all_flush    each thread calls MPI_Win_flush
// All operations of a thread use its place in the window, which is over the program's own memory: if MPI allocates it,
// Open MPI copies through shared memory between ranks on one node. Each row is one JSON object on a line of rank 0's
// stdout; `value` is the median of `samples` runs, operations of all threads a second, `spread` their interquartile
// range. Before, the program puts data, gets it back and compares it.
#include "bench.h"
#include <getopt.h>
#include <pthread.h>

enum {
    MOST_THREADS = 64,
    MOST_BYTES = 1 << 20,
    WINDOW = 64, // operations of a thread in a round
    MAX_LIST = 16,
    MAX_SAMPLES = 100,
    LEAST_SAMPLES = 5,
    USAGE_EXIT = 2,
};

enum operation { PUT, GET, OPERATIONS };
enum synchronisation { FLUSH, FLUSH_ALL, ALL_FLUSH, SYNCHRONISATIONS };
static const char *const operations[OPERATIONS] = {"put", "get"};
static const char *const synchronisations[SYNCHRONISATIONS] = {"flush", "flush_all", "all_flush"};

// The threads' present work; it changes while they wait for the next turn.
static struct row {
    enum operation operation;
    enum synchronisation synchronisation;
    int threads, bytes;
    long rounds;
} row;

static struct {
    int threads[MAX_LIST], sizes[MAX_LIST], thread_count, size_count;
    double seconds_per_row;
} options = {{1, 2, 4, 8, 16}, {8, 512, 8192, 65536}, 5, 4, 0.1};

static unsigned char *own, *memory; // of rank 0: a place for each thread; the window's, as large
static MPI_Win window;
static pthread_barrier_t turn, issued, complete;
static bool is_over;

// ---- the timed operations -------------------------------------------------------------------------------------------

static void operate(int thread, enum operation operation) {
    int bytes = row.bytes;
    MPI_Aint place = (MPI_Aint)thread * bytes;
    if (operation == PUT)
        MPI_OK(MPI_Put(own + place, bytes, MPI_BYTE, 1, place, bytes, MPI_BYTE, window));
    else
        MPI_OK(MPI_Get(own + place, bytes, MPI_BYTE, 1, place, bytes, MPI_BYTE, window));
}

// Does all rounds of a row, as one of its threads.
static void do_rounds(int thread) {
    for (long i = 0; i < row.rounds; i++) {
        for (int k = 0; k < WINDOW; k++)
            operate(thread, row.operation);
        if (row.synchronisation == ALL_FLUSH) {
            MPI_OK(MPI_Win_flush(1, window));
            continue;
        }
        pthread_barrier_wait(&issued);
        if (thread == 0)
            MPI_OK(row.synchronisation == FLUSH ? MPI_Win_flush(1, window) : MPI_Win_flush_all(window));
        pthread_barrier_wait(&complete);
    }
}

static void *work(void *argument) {
    int thread = (int)(intptr_t)argument;
    for (;;) {
        pthread_barrier_wait(&turn);
        if (is_over)
            return NULL;
        do_rounds(thread);
        pthread_barrier_wait(&turn);
    }
}

// Returns the seconds of so many rounds. The calling thread is the first.
static double timed(long rounds) {
    row.rounds = rounds;
    pthread_barrier_wait(&turn);
    double start = MPI_Wtime();
    do_rounds(0);
    pthread_barrier_wait(&turn);
    return MPI_Wtime() - start;
}

// ---- one row --------------------------------------------------------------------------------------------------------

// Checks that the row's operations move data, for each of its threads.
static void check(void) {
    int all = row.threads * row.bytes;
    fill(own, all, 0);
    for (int thread = 0; thread < row.threads; thread++)
        operate(thread, PUT);
    MPI_OK(MPI_Win_flush(1, window));
    memset(own, 0, (size_t)all);
    for (int thread = 0; thread < row.threads; thread++)
        operate(thread, GET);
    MPI_OK(MPI_Win_flush(1, window));
    verify("put and get", own, all, 0);
}

static void measure(void) {
    double rates[MAX_SAMPLES], operations_of_round = (double)WINDOW * row.threads;
    double of_sample = options.seconds_per_row / 20, each = 1e9; // of a round
    long rounds = 1;
    // Warm-up. The best run counts: others include the first use of a size, or another process's time.
    for (int long_ones = 0; long_ones < 3;) {
        double of_round = timed(rounds) / (double)rounds;
        each = of_round < each ? of_round : each;
        if (each * (double)rounds < of_sample)
            rounds *= 2;
        else
            long_ones++;
    }
    int samples = 0;
    double passed = 0;
    while (samples < MAX_SAMPLES && (samples < LEAST_SAMPLES || passed < options.seconds_per_row)) {
        double seconds = timed(rounds);
        rates[samples++] = operations_of_round * (double)rounds / seconds;
        passed += seconds;
    }
    qsort(rates, (size_t)samples, sizeof *rates, compare_doubles);
    printf("{\"operation\":\"%s\",\"synchronisation\":\"%s\",\"threads\":%d,\"bytes\":%d,\"unit\":\"operations/s\","
           "\"value\":%.6g,\"spread\":%.6g,\"samples\":%d}\n",
           operations[row.operation], synchronisations[row.synchronisation], row.threads, row.bytes,
           quantile(rates, samples, 0.5), quantile(rates, samples, 0.75) - quantile(rates, samples, 0.25), samples);
    fflush(stdout);
}

// Measures all rows with so many threads, which live as long.
static void with_threads(int threads) {
    pthread_t others[MOST_THREADS];
    is_over = false;
    pthread_barrier_init(&turn, NULL, (unsigned)threads);
    pthread_barrier_init(&issued, NULL, (unsigned)threads);
    pthread_barrier_init(&complete, NULL, (unsigned)threads);
    for (int thread = 1; thread < threads; thread++)
        if (pthread_create(&others[thread], NULL, work, (void *)(intptr_t)thread) != 0) {
            fprintf(stderr, "ibex_rma_threads: there is no thread %d\n", thread);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    row.threads = threads;
    for (int i = 0; i < options.size_count; i++) {
        row.bytes = options.sizes[i];
        check();
        for (int operation = 0; operation < OPERATIONS; operation++)
            for (int synchronisation = 0; synchronisation < SYNCHRONISATIONS; synchronisation++) {
                row.operation = operation;
                row.synchronisation = synchronisation;
                measure();
            }
    }
    is_over = true;
    pthread_barrier_wait(&turn);
    for (int thread = 1; thread < threads; thread++)
        pthread_join(others[thread], NULL);
    pthread_barrier_destroy(&turn);
    pthread_barrier_destroy(&issued);
    pthread_barrier_destroy(&complete);
}

// ---- options --------------------------------------------------------------------------------------------------------

// Only rank 0 prints.
static bool parse_options(int argc, char **argv) {
    static const struct option known[] = {{"threads", required_argument, NULL, 't'},
                                          {"sizes", required_argument, NULL, 's'},
                                          {"seconds-per-row", required_argument, NULL, 'r'},
                                          {NULL, 0, NULL, 0}};
    bool good = true;
    opterr = rank == 0;
    for (int option; good && (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        if (option == 't')
            good = parse_numbers(optarg, 1, MOST_THREADS, options.threads, MAX_LIST, &options.thread_count);
        else if (option == 's')
            good = parse_numbers(optarg, 1, MOST_BYTES, options.sizes, MAX_LIST, &options.size_count);
        else
            good = option == 'r' && parse_seconds(optarg, &options.seconds_per_row);
    good = good && optind == argc;
    if (!good && rank == 0)
        fprintf(stderr,
                "usage: mpirun -n 2 ibex_rma_threads [options]\n"
                "  --threads LIST         up to %d (default: 1,2,4,8,16)\n"
                "  --sizes LIST           bytes, up to %d (default: 8,512,8192,65536)\n"
                "  --seconds-per-row S    time for the samples of one row (default: 0.1); at least %d samples\n",
                MOST_THREADS, MOST_BYTES, LEAST_SAMPLES);
    return good;
}

// ---- the run --------------------------------------------------------------------------------------------------------

static int most(const int *list, int count) {
    int most = 0;
    for (int i = 0; i < count; i++)
        most = list[i] > most ? list[i] : most;
    return most;
}

static void measure_all(void) {
    size_t threads = (size_t)most(options.threads, options.thread_count);
    size_t bytes = threads * (size_t)most(options.sizes, options.size_count);
    own = allocate(bytes);
    memory = allocate(bytes);
    MPI_OK(MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Win_lock_all(0, window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; rank == 0 && i < options.thread_count; i++)
        with_threads(options.threads[i]);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
    free(own);
    free(memory);
}

int main(int argc, char **argv) {
    int provided, ranks;
    MPI_OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    bool usable = parse_options(argc, argv), can_run = ranks == 2 && provided >= MPI_THREAD_MULTIPLE;
    if (usable && can_run)
        measure_all();
    else if (usable && rank == 0)
        fprintf(stderr, "ibex_rma_threads: needs exactly 2 ranks (there are %d) and MPI_THREAD_MULTIPLE\n", ranks);
    MPI_Finalize();
    return usable && can_run ? 0 : USAGE_EXIT;
}
