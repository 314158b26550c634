// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Heap allocations per 8-byte message in steady state: none. The program defines malloc and its family in front of
// glibc's; as the executable comes first in symbol lookup, Open MPI and its components use these too. They count after
// a warm-up, and the program prints the calls that led to the first one, as offsets for addr2line. Needs 2 or more
// ranks; an odd last one only watches.
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>

enum { WARM_UP = 3000, COUNTED = 1000, WINDOW = 32, MOST_FRAMES = 24 };

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static _Thread_local bool counting; // for this thread: Open MPI's own threads may allocate
static atomic_long counted;
static void *first_calls[MOST_FRAMES]; // addresses of the calls that led to the first allocation
static int first_depth;

static void count(void) {
    if (counting && atomic_fetch_add(&counted, 1) == 0)
        first_depth = backtrace(first_calls, MOST_FRAMES);
}

void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
    count();
    return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes) {
    count();
    return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    count();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

void free(void *memory) { __libc_free(memory); }

static void start_counting(void) {
    atomic_store(&counted, 0);
    counting = true;
}

static long stop_counting(void) {
    counting = false;
    return atomic_load(&counted);
}

static void print_first_calls(void) {
    for (int i = 0; i < first_depth; i++) {
        Dl_info where = {0};
        dladdr(first_calls[i], &where);
        printf("  rank %d: %s+0x%lx\n", check.rank, where.dli_fname ? where.dli_fname : "?",
               (unsigned long)((char *)first_calls[i] - (char *)where.dli_fbase));
    }
}

static int peer; // -1 for the odd last rank

static void ping_pong(int rounds) {
    unsigned long word = 0, back;
    for (int i = 0; peer >= 0 && i < rounds; i++) {
        if (check.rank < peer) {
            word = (unsigned long)i;
            MPI_OK(MPI_Send(&word, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD));
            MPI_OK(MPI_Recv(&back, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            if (back != ~word)
                check_fail("answer: expected %lx, got %lx", ~word, back);
        } else {
            MPI_OK(MPI_Recv(&word, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            word = ~word;
            MPI_OK(MPI_Send(&word, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD));
        }
    }
}

// Windows of nonblocking messages both ways, receives first; a barrier of the pair keeps windows apart.
static void windows(int rounds) {
    MPI_Request requests[2 * WINDOW];
    unsigned long out[WINDOW], in[WINDOW];
    for (int i = 0; peer >= 0 && i < rounds / WINDOW; i++) {
        for (int k = 0; k < WINDOW; k++)
            MPI_OK(MPI_Irecv(&in[k], 8, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[k]));
        check_token(peer, peer, 3);
        for (int k = 0; k < WINDOW; k++) {
            out[k] = (unsigned long)(i * WINDOW + k);
            MPI_OK(MPI_Isend(&out[k], 8, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[WINDOW + k]));
        }
        MPI_OK(MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE));
        for (int k = 0; k < WINDOW; k++)
            if (in[k] != (unsigned long)(i * WINDOW + k))
                check_fail("message: expected %d, got %lu", i * WINDOW + k, in[k]);
    }
}

// Messages that come before their receives: their tables have to grow now, not while allocations are counted.
static void unexpected(void) {
    MPI_Request requests[WINDOW];
    unsigned long out = 0, in;
    for (int k = 0; peer >= 0 && k < WINDOW; k++)
        MPI_OK(MPI_Isend(&out, 8, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[k]));
    if (peer >= 0)
        check_token(peer, peer, 3);
    for (int k = 0; peer >= 0 && k < WINDOW; k++)
        MPI_OK(MPI_Recv(&in, 8, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (peer >= 0)
        MPI_OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
}

static void counted_case(const char *name, void (*traffic)(int)) {
    check_case("%s", name);
    unexpected();
    traffic(WARM_UP);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    start_counting();
    traffic(COUNTED);
    long allocations = stop_counting();
    printf("allocations: rank %d, %ld in %d messages each way, %s\n", check.rank, allocations, COUNTED, name);
    if (allocations > 0) {
        print_first_calls();
        check_fail("allocations in %d messages each way: expected none, got %ld", COUNTED, allocations);
    }
}

static void counter_works(void) {
    void *volatile memory;
    MPI_Datatype type;
    check_case("the_counter_sees_allocations_of_this_program_and_of_open_mpi");
    first_depth = backtrace(first_calls, MOST_FRAMES); // allocates the first time
    start_counting();
    memory = malloc(10);
    free(memory);
    check_int("allocations of one malloc", 1, stop_counting());
    start_counting();
    MPI_OK(MPI_Type_vector(3, 1, 2, MPI_INT, &type));
    check_true("a new datatype allocates", stop_counting() > 0);
    MPI_OK(MPI_Type_free(&type));
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    peer = check.rank ^ 1;
    if (peer >= check.size)
        peer = -1;
    counter_works();
    counted_case("blocking_8_byte_messages_allocate_nothing", ping_pong);
    counted_case("windows_of_nonblocking_8_byte_messages_allocate_nothing", windows);
    return check_finish();
}
