// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI between two ranks: latency, bandwidth (one and both ways), message rate, one-sided operations, long messages.
// Build: mpicc -O2 -o ibex_mpi_bench ibex_mpi_bench.c      Run: mpirun -n 2 ./ibex_mpi_bench
//
// Each row is one JSON object on a line of rank 0's stdout; `value` is the median of `samples` runs, `spread` their
// interquartile range in the same unit. Caches, windows and clocks are filling at first. So a row of FIRST_SECONDS is
// doubled until that changes its median by less than SETTLED, at most to LONGEST times its length
// (bench/src/run/without_mpi.rs has the same rule). Rank 0 times a bandwidth or rate run from a barrier to its last
// completion. A latency run is as long as its typical (median) iteration, as in perftest, because the few iterations in
// which a process has no processor would rule a mean.
//
// Window: at most `window` messages are unacknowledged by the receiver, which acknowledges each half window after it
// has posted the receives of the next one. So the stream has no gaps, and no message arrives unexpected. All messages
// of a window use one buffer, as in perftest. Above 32 MiB in flight the window shrinks (to 4 at least); each row
// states its own. `outstanding_rate` has a window of its own, OUTSTANDING.
//
// One-sided rows use a window over the program's own memory: if MPI allocates it, Open MPI copies through shared memory
// between ranks on one node. Units: bytes; us = half a round trip, one put or get with its flush, or a
// round trip behind a long message; MB = 10^6 bytes.
#include "bench.h"
#include <getopt.h>

enum {
    MAX_SIZES = 64,
    MOST_BYTES = 1 << 30,
    MAX_SAMPLES = 50, // of a row that is not doubled; each is shorter than the turn of another process
    LEAST_SAMPLES = 5,
    LONGEST = 16, // times the first length of a row, a power of two
    MOST_IN_FLIGHT = 32 << 20, // bytes
    MOST_LAPS = 1 << 16,      // iterations of a latency run
    OUTSTANDING = 8192,       // messages in flight
    RATE_MOST_BYTES = 4096,   // rates are of small messages
    USAGE_EXIT = 2,
    TAG_DATA = 1,
    TAG_ACK = 2,
    TAG_SHORT = 3,
    SHORT_BYTES = 8,
};

// Values of test.window: the window of `--window`, and one message at a time.
enum { GIVEN, ONE };

static const double FIRST_SECONDS = 0.1, SETTLED = 0.05;
static const char usual_sizes[] = "0,1,8,64,512,4K,16K,64K,256K,1M,4M";

static const struct test {
    const char *name, *unit;
    enum { MICROSECONDS, MEGABYTES, MESSAGES } value;
    enum { PING_PONG, STREAM, PUT, GET, BEHIND } body;
    int directions; // of data that count
    int window; // messages in flight at most: ONE, OUTSTANDING, or GIVEN by `--window`
    bool zero_bytes;
} tests[] = {
    {"latency", "us", MICROSECONDS, PING_PONG, 1, ONE, true},
    {"bandwidth", "MB/s", MEGABYTES, STREAM, 1, GIVEN, false},
    {"bidirectional_bandwidth", "MB/s", MEGABYTES, STREAM, 2, GIVEN, false},
    {"message_rate", "msg/s", MESSAGES, STREAM, 1, GIVEN, true},
    {"put_latency", "us", MICROSECONDS, PUT, 1, ONE, false},
    {"get_latency", "us", MICROSECONDS, GET, 1, ONE, false},
    {"put_bandwidth", "MB/s", MEGABYTES, PUT, 1, GIVEN, false},
    {"get_bandwidth", "MB/s", MEGABYTES, GET, 1, GIVEN, false},
    {"outstanding_rate", "msg/s", MESSAGES, STREAM, 1, OUTSTANDING, true},
    {"pieces", "MB/s", MEGABYTES, STREAM, 1, GIVEN, false},
    {"share", "us", MICROSECONDS, BEHIND, 1, ONE, false},
};
enum { TEST_COUNT = sizeof tests / sizeof *tests };

static struct {
    int sizes[MAX_SIZES], size_count;
    bool selected[TEST_COUNT];
    double seconds_per_row; // 0: until the median has settled
    int window;
} options = {.window = 64};

struct row {
    const struct test *test;
    int bytes, window; // window: messages in flight
};
typedef double (*run)(const struct row *, long iterations); // both ranks; gives seconds, right on rank 0 only

static unsigned char *send_buffer, *receive_buffer, *window_memory;
static MPI_Win window = MPI_WIN_NULL;
static double *laps;          // seconds of each iteration of a latency run
static MPI_Request *requests; // of as many sends as the largest window has, and as many receives

// ---- the timed loops ------------------------------------------------------------------------------------------------

// Returns the time of all iterations if each took as long as the typical one.
static double typical(long iterations) {
    qsort(laps, (size_t)iterations, sizeof *laps, compare_doubles);
    return quantile(laps, (int)iterations, 0.5) * (double)iterations;
}

static double ping_pong(const struct row *row, long iterations) {
    int bytes = row->bytes;
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++) {
        if (rank == 0) {
            MPI_OK(MPI_Send(send_buffer, bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD));
            MPI_OK(MPI_Recv(receive_buffer, bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            double now = MPI_Wtime();
            laps[i] = now - start;
            start = now;
        } else {
            MPI_OK(MPI_Recv(receive_buffer, bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Send(send_buffer, bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD));
        }
    }
    return rank == 0 ? typical(iterations) : 0;
}

// Posts one half window of receives, or of sends with the receive of their acknowledgement.
static void post_receives(const struct row *row, MPI_Request *half) {
    for (int i = 0; i < row->window / 2; i++)
        MPI_OK(MPI_Irecv(receive_buffer, row->bytes, MPI_BYTE, 1 - rank, TAG_DATA, MPI_COMM_WORLD, &half[i]));
}

static void post_sends(const struct row *row, MPI_Request *half, MPI_Request *acknowledged) {
    MPI_OK(MPI_Irecv(NULL, 0, MPI_BYTE, 1 - rank, TAG_ACK, MPI_COMM_WORLD, acknowledged));
    for (int i = 0; i < row->window / 2; i++)
        MPI_OK(MPI_Isend(send_buffer, row->bytes, MPI_BYTE, 1 - rank, TAG_DATA, MPI_COMM_WORLD, &half[i]));
}

// One iteration is half a window; two halves are in flight.
static double stream(const struct row *row, long iterations) {
    bool sends = rank == 0 || row->test->directions == 2, receives = rank == 1 || row->test->directions == 2;
    int half = row->window / 2;
    MPI_Request *sent[2] = {requests, requests + half};
    MPI_Request *received[2] = {requests + 2 * half, requests + 3 * half};
    MPI_Request acknowledged[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int h = 0; receives && h < 2 && h < iterations; h++)
        post_receives(row, received[h]);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    double start = MPI_Wtime();
    for (int h = 0; sends && h < 2 && h < iterations; h++)
        post_sends(row, sent[h], &acknowledged[h]);
    for (long i = 0; i < iterations; i++) {
        int h = (int)(i % 2);
        if (receives) {
            MPI_OK(MPI_Waitall(half, received[h], MPI_STATUSES_IGNORE));
            if (i + 2 < iterations)
                post_receives(row, received[h]);
            MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, TAG_ACK, MPI_COMM_WORLD));
        }
        if (sends) {
            MPI_OK(MPI_Wait(&acknowledged[h], MPI_STATUS_IGNORE));
            MPI_OK(MPI_Waitall(half, sent[h], MPI_STATUSES_IGNORE));
            if (i + 2 < iterations)
                post_sends(row, sent[h], &acknowledged[h]);
        }
    }
    return MPI_Wtime() - start;
}

// One iteration is a window of puts or gets (one of them for latency) and a flush; rank 1 only waits.
static double one_sided(const struct row *row, long iterations) {
    int bytes = row->bytes;
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    double start = MPI_Wtime(), lap = start, end;
    for (long i = 0; rank == 0 && i < iterations; i++) {
        for (int k = 0; k < row->window; k++)
            if (row->test->body == GET)
                MPI_OK(MPI_Get(receive_buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window));
            else
                MPI_OK(MPI_Put(send_buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(1, window));
        if (row->test->window == ONE) {
            double now = MPI_Wtime();
            laps[i] = now - lap;
            lap = now;
        }
    }
    end = MPI_Wtime();
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    return rank == 0 && row->test->window == ONE ? typical(iterations) : end - start;
}

// One iteration is the round trip of a short message behind a long one, whose receive is posted.
static double behind(const struct row *row, long iterations) {
    unsigned char message[SHORT_BYTES] = {0};
    for (long i = 0; i < iterations; i++) {
        MPI_Request request;
        if (rank == 0) {
            MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
            double start = MPI_Wtime();
            MPI_OK(MPI_Isend(send_buffer, row->bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD, &request));
            MPI_OK(MPI_Send(message, SHORT_BYTES, MPI_BYTE, 1, TAG_SHORT, MPI_COMM_WORLD));
            MPI_OK(MPI_Recv(message, SHORT_BYTES, MPI_BYTE, 1, TAG_SHORT, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            laps[i] = MPI_Wtime() - start;
        } else {
            MPI_OK(MPI_Irecv(receive_buffer, row->bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, &request));
            MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
            MPI_OK(MPI_Recv(message, SHORT_BYTES, MPI_BYTE, 0, TAG_SHORT, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Send(message, SHORT_BYTES, MPI_BYTE, 0, TAG_SHORT, MPI_COMM_WORLD));
        }
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    return rank == 0 ? typical(iterations) : 0;
}

// ---- the data is checked once per size, outside the timed loops -----------------------------------------------------

static void check_messages(int bytes) {
    memset(receive_buffer, 0, (size_t)bytes);
    fill(send_buffer, bytes, rank);
    MPI_OK(MPI_Sendrecv(send_buffer, bytes, MPI_BYTE, 1 - rank, TAG_DATA, receive_buffer, bytes, MPI_BYTE, 1 - rank,
                        TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    verify("message", receive_buffer, bytes, 1 - rank);
}

static void check_one_sided(int bytes) {
    memset(window_memory, 0, (size_t)bytes);
    memset(receive_buffer, 0, (size_t)bytes);
    fill(send_buffer, bytes, 0);
    MPI_OK(MPI_Win_sync(window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        MPI_OK(MPI_Put(send_buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(1, window));
        MPI_OK(MPI_Get(receive_buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(1, window));
        verify("get", receive_buffer, bytes, 0);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_sync(window));
    if (rank == 1)
        verify("put", window_memory, bytes, 0);
}

// ---- one row --------------------------------------------------------------------------------------------------------

// Returns rank 0's seconds of one run to both ranks, so that both decide alike.
static double timed(const struct row *row, run body, long iterations) {
    double seconds = body(row, iterations);
    MPI_OK(MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    return seconds;
}

// Returns the row's value from the seconds of one iteration.
static double value_of(const struct row *row, double seconds) {
    const struct test *test = row->test;
    double messages = test->window == ONE ? 1 : test->body == STREAM ? row->window / 2 : row->window;
    switch (test->value) {
    case MICROSECONDS: return seconds * 1e6 / (test->body == PING_PONG ? 2 : 1);
    case MEGABYTES: return messages * row->bytes * test->directions / seconds / 1e6;
    default: return messages / seconds;
    }
}

static void report(const struct row *row, const double *seconds, int samples, long iterations) {
    double values[MAX_SAMPLES * LONGEST];
    for (int i = 0; i < samples; i++)
        values[i] = value_of(row, seconds[i] / (double)iterations);
    qsort(values, (size_t)samples, sizeof *values, compare_doubles);
    printf("{\"test\":\"%s\",\"bytes\":%d,\"unit\":\"%s\",\"value\":%.6g,\"spread\":%.6g,"
           "\"samples\":%d,\"iterations\":%ld,\"window\":%d}\n",
           row->test->name, row->bytes, row->test->unit, quantile(values, samples, 0.5),
           quantile(values, samples, 0.75) - quantile(values, samples, 0.25), samples, iterations * samples,
           row->window);
    fflush(stdout);
}

// For messages of any size.
static int most_in_flight(const struct test *test) { return test->window == GIVEN ? options.window : test->window; }

static int window_for(const struct test *test, int bytes) {
    int wanted = most_in_flight(test), most = bytes ? MOST_IN_FLIGHT / bytes : wanted;
    if (test->window == ONE)
        return 1;
    most = most < 4 ? 4 : most;
    return (most < wanted ? most : wanted) & ~1;
}

static double median(const double *seconds, int samples) {
    double sorted[MAX_SAMPLES * LONGEST];
    memcpy(sorted, seconds, (size_t)samples * sizeof *sorted);
    qsort(sorted, (size_t)samples, sizeof *sorted, compare_doubles);
    return quantile(sorted, samples, 0.5);
}

// Whether a row of twice the samples gives the same median as half of them.
static bool has_settled(const double *seconds, int samples) {
    double shorter = median(seconds, samples / 2), change = median(seconds, samples) - shorter;
    return (change < 0 ? -change : change) < SETTLED * shorter;
}

// Returns the seconds since a row began to both ranks: on a busy machine samples take longer than they count.
static double passed_since(double begin) {
    double passed = MPI_Wtime() - begin;
    MPI_OK(MPI_Bcast(&passed, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    return passed;
}

static void measure(const struct test *test, int bytes) {
    struct row row = {.test = test, .bytes = bytes, .window = window_for(test, bytes)};
    static const run bodies[] = {ping_pong, stream, one_sided, one_sided, behind};
    run body = bodies[test->body];
    long least = body == stream ? 4 : 1, iterations = least; // two windows: the first one has to fill
    bool grows = options.seconds_per_row == 0;
    double budget = grows ? FIRST_SECONDS : options.seconds_per_row;
    double seconds[MAX_SAMPLES * LONGEST], each = 1e9; // of an iteration
    // The best run counts: others include the first use of a size, or another process's time.
    for (int long_ones = 0; long_ones < 3;) { // warm-up
        double of_run = timed(&row, body, iterations) / (double)iterations;
        each = of_run < each ? of_run : each;
        if (each * (double)iterations < budget / 40 && iterations < MOST_LAPS / 4)
            iterations *= 4;
        else
            long_ones++;
    }
    double affordable = budget / each; // iterations in the time of the row
    int samples = affordable < MAX_SAMPLES * least ? (int)(affordable / least) : MAX_SAMPLES;
    samples = samples < LEAST_SAMPLES ? LEAST_SAMPLES : samples;
    iterations = affordable < samples * least ? least : (long)(affordable / samples);
    if (test->window == ONE && iterations > MOST_LAPS)
        iterations = MOST_LAPS;
    int measured = 0, longest = samples * LONGEST;
    double begin = MPI_Wtime(), passed = 0, most = grows ? budget * LONGEST : budget;
    bool over = false;
    for (int wanted = samples; !over; wanted *= 2) {
        while (measured < wanted && !over) {
            seconds[measured++] = timed(&row, body, iterations);
            passed = passed_since(begin);
            over = passed > most && measured >= LEAST_SAMPLES;
        }
        over |= !grows || measured == longest || (wanted > samples && has_settled(seconds, measured));
    }
    if (rank == 0)
        report(&row, seconds, measured, iterations);
}

// ---- options --------------------------------------------------------------------------------------------------------

static void usage(void) {
    fprintf(stderr, "usage: mpirun -n 2 ibex_mpi_bench [options]\n"
                    "  --tests LIST           of: ");
    for (int i = 0; i < TEST_COUNT; i++)
        fprintf(stderr, "%s%s", i ? "," : "", tests[i].name);
    fprintf(stderr,
            " (default: all)\n"
            "  --sizes LIST           up to %d numbers of bytes, 0 to %dM, with K or M for 1024 or 1048576\n"
            "                         (default: %s). Only latency and rates are measured\n"
            "                         with 0 bytes, and rates with at most %d\n"
            "  --seconds-per-row S    time for the samples of one row, above 0, up to 3600 (default: 0.1, and twice\n"
            "                         as long until that changes the median by less than 5 %%); slow rows take longer,\n"
            "                         as each has at least %d samples\n"
            "  --window N             messages in flight, even, 2 to 1024 (default: 64)\n",
            MAX_SIZES, MOST_BYTES >> 20, usual_sizes, RATE_MOST_BYTES, LEAST_SAMPLES);
}

static bool has_size(const struct test *test, int bytes) {
    int least = test->zero_bytes ? 0 : 1;
    return bytes >= least && (test->value != MESSAGES || bytes <= RATE_MOST_BYTES);
}

static bool has_rows(void) {
    bool any = false;
    for (int t = 0; t < TEST_COUNT; t++)
        for (int i = 0; i < options.size_count; i++)
            any |= options.selected[t] && has_size(&tests[t], options.sizes[i]);
    return any;
}

static bool parse_tests(const char *text) {
    memset(options.selected, 0, sizeof options.selected);
    for (;; text++) {
        size_t length = strcspn(text, ",");
        int i = 0;
        while (i < TEST_COUNT && (strncmp(text, tests[i].name, length) != 0 || tests[i].name[length]))
            i++;
        if (i == TEST_COUNT)
            return false;
        options.selected[i] = true;
        text += length;
        if (!*text)
            return true;
    }
}

static bool parse_window(const char *text) {
    int count;
    return parse_numbers(text, 2, 1024, &options.window, 1, &count) && options.window % 2 == 0;
}

// Rank 0 says which value an option cannot have, or, if `option` is NULL, which word is no option.
static void refuse(const char *option, const char *word) {
    if (rank == 0 && option)
        fprintf(stderr, "ibex_mpi_bench: --%s cannot be '%s'\n", option, word);
    else if (rank == 0)
        fprintf(stderr, "ibex_mpi_bench: '%s' is no option\n", word);
}

// Whether there is something to measure. If not, rank 0 prints why.
static bool parse_options(int argc, char **argv) {
    static const struct option known[] = {{"tests", required_argument, NULL, 't'},
                                          {"sizes", required_argument, NULL, 's'},
                                          {"seconds-per-row", required_argument, NULL, 'r'},
                                          {"window", required_argument, NULL, 'w'},
                                          {NULL, 0, NULL, 0}};
    int option, place = 0;
    bool good = parse_numbers(usual_sizes, 0, MOST_BYTES, options.sizes, MAX_SIZES, &options.size_count);
    memset(options.selected, 1, sizeof options.selected);
    opterr = rank == 0;
    while (good && (option = getopt_long(argc, argv, "", known, &place)) != -1) {
        if (option == 't')
            good = parse_tests(optarg);
        else if (option == 's')
            good = parse_numbers(optarg, 0, MOST_BYTES, options.sizes, MAX_SIZES, &options.size_count);
        else if (option == 'r')
            good = parse_seconds(optarg, &options.seconds_per_row);
        else
            good = option == 'w' && parse_window(optarg);
        if (!good && option != '?')
            refuse(known[place].name, optarg);
    }
    if (good && optind < argc)
        refuse(NULL, argv[optind]);
    else if (good && has_rows())
        return true;
    else if (good && rank == 0)
        fprintf(stderr, "ibex_mpi_bench: none of these tests has one of these sizes: there is nothing to measure\n");
    if (rank == 0)
        usage();
    return false;
}

// ---- the run --------------------------------------------------------------------------------------------------------

static bool is_one_sided(const struct test *test) { return test->body == PUT || test->body == GET; }

static void prepare(void) {
    int most = 0, in_flight = 0;
    bool any_one_sided = false;
    for (int i = 0; i < options.size_count; i++)
        most = options.sizes[i] > most ? options.sizes[i] : most;
    for (int i = 0; i < TEST_COUNT; i++)
        if (options.selected[i]) {
            any_one_sided |= is_one_sided(&tests[i]);
            in_flight = most_in_flight(&tests[i]) > in_flight ? most_in_flight(&tests[i]) : in_flight;
        }
    send_buffer = allocate((size_t)most);
    receive_buffer = allocate((size_t)most);
    requests = allocate(2 * (size_t)in_flight * sizeof *requests);
    laps = allocate(MOST_LAPS * sizeof *laps);
    if (any_one_sided) {
        MPI_Aint bytes = most ? most : 1;
        window_memory = allocate((size_t)bytes);
        MPI_OK(MPI_Win_create(window_memory, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
        MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
        MPI_OK(MPI_Win_lock_all(0, window));
    }
}

static void release(void) {
    if (window != MPI_WIN_NULL) {
        MPI_OK(MPI_Win_unlock_all(window));
        MPI_OK(MPI_Win_free(&window));
        free(window_memory);
    }
    free(send_buffer);
    free(receive_buffer);
    free(requests);
    free(laps);
}

int main(int argc, char **argv) {
    int ranks;
    MPI_OK(MPI_Init(&argc, &argv));
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    bool usable = parse_options(argc, argv);
    if (usable && ranks != 2 && rank == 0)
        fprintf(stderr, "ibex_mpi_bench: needs exactly 2 ranks, and was started with %d (mpirun -n 2)\n", ranks);
    usable &= ranks == 2;
    if (usable) {
        prepare();
        for (int t = 0; t < TEST_COUNT; t++) {
            for (int i = 0; options.selected[t] && i < options.size_count; i++) {
                int bytes = options.sizes[i];
                if (!has_size(&tests[t], bytes))
                    continue;
                if (is_one_sided(&tests[t]))
                    check_one_sided(bytes);
                else
                    check_messages(bytes);
                measure(&tests[t], bytes);
            }
        }
        release();
    }
    MPI_Finalize();
    return usable ? 0 : USAGE_EXIT;
}
