// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by every MPI test program of this folder: named cases with one printed line each, byte patterns with guards
// around them, and a summary. A program: check_start(), then check_case("name") ... checks ... any number of times, and
// `return check_finish();`. A case ends where the next one begins; that is collective over MPI_COMM_WORLD, and all ranks
// agree on its result. A rank prints `not ok` at once (a later hang cannot hide it); rank 0 prints `ok NAME` if no rank
// failed.
//
// Any thread may call check_fail() and the functions that use it; only the main thread may call the rest. Units: bytes
// and seconds. IBEX_TEST_SCALE (default 1) multiplies the counts that programs pass through scaled().
#pragma once

#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    CHECK_GUARD_BYTES = 64,   // untouched bytes verified on each side of a receive buffer
    CHECK_LINES_PER_CASE = 3, // `not ok` lines one rank prints for one case
    CHECK_USAGE_EXIT = 2,     // wrong arguments or rank count, as opposed to a failed case (1)
    CHECK_THREADS = 16,       // most that check_in_threads() runs
    CHECK_NEVER_SENT = 32767, // a tag that no program sends
};

static struct {
    int rank, size;
    int passed, failed, skipped; // the same on every rank
    double scale;
    char name[128];   // of the running case
    atomic_int wrong; // mismatches that this rank has seen in the running case
    int arguments;    // number that the program has taken
    bool misread;     // an argument is not the number that it should be
} check;

static int left, right; // the neighbours of this rank in the ring of all ranks

// Records a mismatch in the running case. `format` names the value, what was expected, and what it is.
__attribute__((format(printf, 1, 2))) static inline void check_fail(const char *format, ...) {
    if (atomic_fetch_add(&check.wrong, 1) >= CHECK_LINES_PER_CASE)
        return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("not ok %s: %s, rank %d\n", check.name, text, check.rank);
    fflush(stdout); // a tool may check something before check_attach()
}

static inline void check_int(const char *what, long long expected, long long got) {
    if (expected != got)
        check_fail("%s: expected %lld, got %lld", what, expected, got);
}

static inline void check_true(const char *what, bool holds) {
    if (!holds)
        check_fail("%s: expected true, got false", what);
}

static inline void check_mpi(int code, const char *call, const char *file, int line) {
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    check_fail("%s:%d %.120s: expected MPI_SUCCESS, got %d (%s)", file, line, call, code, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MPI_OK(call) check_mpi((call), #call, __FILE__, __LINE__)

static inline void check_error_class(const char *what, int expected, int code) {
    int error_class = code;
    MPI_Error_class(code, &error_class);
    if (error_class != expected)
        check_fail("error class of %s: expected %d, got %d", what, expected, error_class);
}

// Ends the running case, if there is one.
static inline void check_end_case(void) {
    if (!check.name[0])
        return;
    int wrong = atomic_exchange(&check.wrong, 0), all = 0;
    MPI_OK(MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    check.passed += all == 0;
    check.failed += all != 0;
    if (all == 0 && check.rank == 0)
        printf("ok %s\n", check.name);
}

__attribute__((format(printf, 1, 2))) static inline void check_case(const char *format, ...) {
    check_end_case();
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check.name, sizeof check.name, format, arguments);
    va_end(arguments);
}

// Counts a case that cannot run here. Every rank calls it, with the same reason; no communication.
static inline void check_skip(const char *name, const char *reason) {
    check.skipped++;
    if (check.rank == 0)
        printf("skip %s: %s\n", name, reason);
}

// Ends the program, which says why it checks nothing.
__attribute__((format(printf, 1, 2), noreturn)) static inline void check_refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (check.rank == 0)
        vfprintf(stderr, format, arguments);
    va_end(arguments);
    MPI_Finalize();
    exit(CHECK_USAGE_EXIT);
}

// Reads IBEX_TEST_SCALE, takes rank and size of MPI_COMM_WORLD, and makes MPI errors return. No communication.
static inline void check_attach(int least_ranks) {
    setvbuf(stdout, NULL, _IOLBF, 0); // a line is out at once, whatever happens to the process after it
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &check.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check.size);
    left = (check.rank + check.size - 1) % check.size;
    right = (check.rank + 1) % check.size;
    const char *scale = getenv("IBEX_TEST_SCALE");
    check.scale = scale ? atof(scale) : 1.0;
    if (!(check.scale > 0.0))
        check_refuse("IBEX_TEST_SCALE=%s: expected a number above 0\n", scale);
    if (check.size < least_ranks)
        check_refuse("this program needs at least %d ranks, and was started with %d (mpirun -n)\n", least_ranks, check.size);
}

static inline void check_start(int *argc, char ***argv, int least_ranks) {
    MPI_Init(argc, argv);
    check_attach(least_ranks);
}

// As check_start(), with threads of this level, which the MPI must provide.
static inline void check_start_with(int level, int *argc, char ***argv, int least_ranks) {
    int provided;
    MPI_Init_thread(argc, argv, level, &provided);
    check_attach(least_ranks);
    if (provided < level)
        check_refuse("this MPI provides threads of level %d, and not of level %d\n", provided, level);
}

static inline int check_finish(void) {
    check_end_case();
    if (check.rank == 0 && check.skipped)
        printf("%d skipped\n", check.skipped);
    if (check.rank == 0)
        printf("%d passed, %d failed\n", check.passed, check.failed);
    MPI_Finalize();
    return check.failed || (check.passed == 0 && check.skipped == 0) ? 1 : 0;
}

// Whether the flag `name` is given. A program takes each argument by name, then calls check_no_more().
static inline bool check_flag(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) {
            check.arguments++;
            return true;
        }
    return false;
}

// The word after `name`, the last time that it is among the arguments; else NULL.
static inline const char *check_option(int argc, char **argv, const char *name) {
    const char *value = NULL;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) {
            value = argv[i + 1];
            check.arguments += 2;
        }
    return value;
}

// The option `name` as a number from 0 to `most`; `usual` if it is not given.
static inline int check_number(int argc, char **argv, const char *name, int usual, int most) {
    const char *value = check_option(argc, argv, name);
    int number = value ? atoi(value) : usual;
    check.misread |= value && (number < 0 || number > most);
    return number;
}

// Refuses arguments that the program has not taken. Every rank calls it, after MPI_Init.
static inline void check_no_more(int argc) {
    if (check.arguments != argc - 1 || check.misread)
        check_refuse("an argument is not known, or out of its bounds: the program's head says which there are\n");
}

// A caller that acts on the adapters in the middle of a program names a file in IBEX_TEST_GO_ON, waits until each rank
// says that it is in the middle, acts, and makes the file. Without the variable, programs just go on.
static inline bool check_may_go_on(void) {
    const char *file = getenv("IBEX_TEST_GO_ON");
    return !file || access(file, F_OK) == 0;
}

static inline void check_in_the_middle(void) {
    if (getenv("IBEX_TEST_GO_ON"))
        printf("in the middle: rank %d\n", check.rank);
}

// Whether to repeat the cases, because the caller is not done. Every rank calls it, and all agree.
static inline bool check_again(void) {
    int again = !check_may_go_on();
    if (getenv("IBEX_TEST_GO_ON"))
        MPI_OK(MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD));
    return again;
}

// Runs `body` in so many threads at once, each with its number; the caller is the first.
static inline void check_in_threads(int threads, void *(*body)(void *)) {
    pthread_t others[CHECK_THREADS];
    for (intptr_t i = 1; i < threads; i++)
        if (pthread_create(&others[i], NULL, body, (void *)i) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    body((void *)0);
    for (int i = 1; i < threads; i++)
        pthread_join(others[i], NULL);
}

// Outside MPI, so that nothing progresses on this rank.
static inline void check_sleep(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

static inline long check_nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static inline int scaled(int count, int least) {
    double value = count * check.scale;
    return value < least ? least : value > 1e9 ? 1000000000 : (int)value;
}

// The 8 pattern bytes at index 8*word of the pattern `seed` (SplitMix64's mixing function).
static inline uint64_t pattern_word(uint64_t seed, uint64_t word) {
    uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15u + word * 0xd1342543de82ef95u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

static inline unsigned char pattern_byte(uint64_t seed, size_t index) {
    return (unsigned char)(pattern_word(seed, index / 8) >> (8 * (index % 8)));
}

static inline void pattern_fill(void *buffer, size_t bytes, uint64_t seed) {
    unsigned char *at = buffer;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word = pattern_word(seed, i / 8);
        memcpy(at + i, &word, 8); // little-endian hosts: pattern_byte() agrees
    }
    for (; i < bytes; i++)
        at[i] = pattern_byte(seed, i);
}

// Index of the first byte that differs from the pattern, or `bytes` when none does.
static inline size_t pattern_mismatch(const void *buffer, size_t bytes, uint64_t seed) {
    const unsigned char *at = buffer;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word = pattern_word(seed, i / 8);
        if (memcmp(at + i, &word, 8) != 0)
            break;
    }
    for (; i < bytes; i++)
        if (at[i] != pattern_byte(seed, i))
            return i;
    return bytes;
}

static inline void pattern_check(const char *what, const void *buffer, size_t bytes, uint64_t seed) {
    size_t at = pattern_mismatch(buffer, bytes, seed);
    if (at < bytes)
        check_fail("%s, byte %zu of %zu: expected 0x%02x, got 0x%02x", what, at, bytes, pattern_byte(seed, at),
                   ((const unsigned char *)buffer)[at]);
}

static inline void check_status(const MPI_Status *status, int source, int tag, int bytes) {
    int count = -1;
    MPI_OK(MPI_Get_count(status, MPI_BYTE, &count));
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || count != bytes)
        check_fail("status: expected source %d tag %d bytes %d, got source %d tag %d bytes %d", source, tag, bytes,
                   status->MPI_SOURCE, status->MPI_TAG, count);
}

static inline MPI_Comm check_dup(MPI_Comm comm) {
    MPI_Comm copy;
    MPI_OK(MPI_Comm_dup(comm, &copy));
    return copy;
}

// This rank in a communicator, and its neighbours in the ring of that one's ranks.
static inline int check_neighbours(MPI_Comm comm, int *to, int *from) {
    int me, members;
    MPI_OK(MPI_Comm_rank(comm, &me));
    MPI_OK(MPI_Comm_size(comm, &members));
    *to = (me + 1) % members;
    *from = (me + members - 1) % members;
    return me;
}

// On return all that was sent before, on any communicator, has arrived.
static inline void check_meet(void) { MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); }

// One call that makes progress and finds no message.
static inline void check_progress(void) {
    int found;
    MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, CHECK_NEVER_SENT, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE));
}

// A message of rank 0 to rank 1.
static inline void check_one_way(const void *out, void *in, int count, MPI_Datatype type, int tag, MPI_Comm comm) {
    if (check.rank == 0)
        MPI_OK(MPI_Send(out, count, type, 1, tag, comm));
    else
        MPI_OK(MPI_Recv(in, count, type, 0, tag, comm, MPI_STATUS_IGNORE));
}

// Sends bytes to the right neighbour in a communicator, and compares those from the left; `number` selects patterns.
static inline void check_ring(MPI_Comm comm, int tag, unsigned char *out, unsigned char *in, int bytes, int number) {
    int to, from, me = check_neighbours(comm, &to, &from);
    MPI_Status status;
    pattern_fill(out, (size_t)bytes, (uint64_t)number * 1000 + (uint64_t)me);
    memset(in, 0, (size_t)bytes);
    MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, tag, in, bytes, MPI_BYTE, from, tag, comm, &status));
    check_status(&status, from, tag, bytes);
    pattern_check("message of the left neighbour", in, (size_t)bytes, (uint64_t)number * 1000 + (uint64_t)from);
}

// A seed for each message of a program: of its sender, of one kind or round, with this number.
static inline uint64_t seed_of(int sender, int kind, int number) {
    return ((uint64_t)sender << 48) ^ ((uint64_t)kind << 32) ^ (uint64_t)number;
}

// Sends an empty message to one rank and receives one of another: on return all that this one sent before has arrived.
static inline void check_token(int to, int from, int tag) {
    MPI_OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, to, tag, NULL, 0, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

// `count` blocks of `length` items each, `stride` items apart.
static inline MPI_Datatype check_vector(int count, int length, int stride, MPI_Datatype item) {
    MPI_Datatype type;
    MPI_OK(MPI_Type_vector(count, length, stride, item, &type));
    MPI_OK(MPI_Type_commit(&type));
    return type;
}

// A block of so many bytes; several of them lie `extent` bytes apart.
static inline MPI_Datatype check_block(int bytes, MPI_Aint extent) {
    MPI_Datatype whole, block;
    MPI_OK(MPI_Type_contiguous(bytes, MPI_BYTE, &whole));
    MPI_OK(MPI_Type_create_resized(whole, 0, extent, &block));
    MPI_OK(MPI_Type_commit(&block));
    MPI_OK(MPI_Type_free(&whole));
    return block;
}

struct random {
    uint64_t state;
};

static inline uint64_t random_word(struct random *random) { return pattern_word(random->state++, 0); }

static inline int random_below(struct random *random, int bound) {
    return bound > 0 ? (int)(random_word(random) >> 33) % bound : 0;
}

// Zeroed memory.
static inline void *check_alloc(size_t bytes) {
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory) {
        check_fail("calloc of %zu bytes: expected memory, got none", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// Zeroed pages of their own, not there until they are used; munmap() gives them back.
static inline void *check_map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        check_fail("mmap of %zu bytes: expected memory, got none", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// Bytes an arena needs so that `bytes` at any offset below 64 fit between two guards.
static inline size_t guarded_bytes(size_t bytes) { return bytes + 2 * CHECK_GUARD_BYTES + 64; }

// Prepares `bytes` at `offset` (0..63) of the arena for a receive: wrong contents inside, guards outside.
static inline unsigned char *guarded_ready(unsigned char *arena, size_t bytes, size_t offset) {
    unsigned char *at = arena + CHECK_GUARD_BYTES + offset % 64;
    memset(at - CHECK_GUARD_BYTES, 0xa5, CHECK_GUARD_BYTES);
    memset(at, 0x5a, bytes);
    memset(at + bytes, 0xa5, CHECK_GUARD_BYTES);
    return at;
}

static inline void guarded_check(const char *what, const unsigned char *at, size_t bytes) {
    for (int i = 0; i < CHECK_GUARD_BYTES; i++) {
        if (at[i - CHECK_GUARD_BYTES] != 0xa5)
            check_fail("%s of %zu bytes, guard %d before it: expected 0xa5, got 0x%02x", what, bytes,
                       CHECK_GUARD_BYTES - i, at[i - CHECK_GUARD_BYTES]);
        if (at[bytes + (size_t)i] != 0xa5)
            check_fail("%s of %zu bytes, guard %d after it: expected 0xa5, got 0x%02x", what, bytes, i + 1,
                       at[bytes + (size_t)i]);
    }
}
