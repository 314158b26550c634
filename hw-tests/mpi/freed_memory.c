// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: it reads performance variables of ibex' components.
//
// Long messages from and to memory that goes back to the kernel and is taken again at the same address, with other
// pages. A registration that outlives its memory leads the adapter to the old pages: the receiver gets what the buffer
// held in an earlier round, or never sees what came. Memory is freed by each call that can do it
// (docs/registered-memory.md). The program also counts the registrations that ibex takes back, because an emulated
// adapter does not pin pages. Runs with 2 or more ranks.
//
// usage: freed_memory [--ucx before|after]
//   --ucx  loads UCX before or after MPI_Init: it patches the functions that unmap memory, one more than Open MPI does
#define _GNU_SOURCE
#include "check.h"
#include "counts.h"

#include <dlfcn.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

enum { LONG = 4 << 20, HALF = LONG / 2, PAGE = 4096, BEFORE = 2 * PAGE, WARM_UP = 3 };
static struct counter taken_back;

enum way {
    HEAP, UNMAPPED, HALVED, MOVED, SHRUNK, REPLACED, COVERED, DETACHED, COVERED_BY_SEGMENT, DISCARDED, FREED, PUNCHED, UNLOCKED,
    GUARDED, WAYS
};
static const char *const ways[WAYS] = {
    [HEAP] = "by a heap that shrinks",
    [UNMAPPED] = "by munmap",
    [HALVED] = "by munmap of its second half",
    [MOVED] = "by mremap to elsewhere",
    [SHRUNK] = "by mremap to its first half",
    [REPLACED] = "by mmap over it",
    [COVERED] = "by a mapping that mremap moves over it",
    [DETACHED] = "with a segment in parts",
    [COVERED_BY_SEGMENT] = "by a segment that is attached over it",
    [DISCARDED] = "by madvise",
    [FREED] = "by madvise, when it is written",
    [PUNCHED] = "by madvise from shared memory",
    [UNLOCKED] = "by madvise though it be locked",
    [GUARDED] = "by madvise that guards it",
};

// Older C libraries lack these.
enum { DONTNEED_LOCKED = 24, GUARD_INSTALL = 102, GUARD_REMOVE = 103 };
static const int advice[WAYS] = {
    [DISCARDED] = MADV_DONTNEED,    [FREED] = MADV_FREE,        [PUNCHED] = MADV_REMOVE,
    [UNLOCKED] = DONTNEED_LOCKED,   [GUARDED] = GUARD_INSTALL,
};

// UCX patches the functions at once when it is loaded.
static void install_hooks_of_ucx(void) {
    if (!dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "freed_memory: %s\n", dlerror());
        exit(CHECK_USAGE_EXIT);
    }
}

static unsigned char *mapped(void *where, size_t bytes, int flags) {
    return mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}

// A shared memory segment of `bytes`, which is removed when it is detached.
static unsigned char *attached(void *where, size_t bytes, int flags) {
    int segment = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    unsigned char *memory = segment < 0 ? MAP_FAILED : shmat(segment, where, flags);
    if (segment >= 0)
        shmctl(segment, IPC_RMID, NULL);
    return memory;
}

// Asks for the former addresses without MAP_FIXED, which Open MPI's hook would report.
static unsigned char *taken(enum way way, unsigned char *before) {
    unsigned char *memory = before;
    switch (way) {
    case HEAP: memory = sbrk(LONG); break;
    case UNMAPPED:
    case MOVED:
        memory = mapped(before, LONG, MAP_PRIVATE);
        break;
    case DETACHED:
        // The first page is registered by itself, and lies apart from the message.
        memory = attached(before ? before - BEFORE : NULL, BEFORE + LONG, 0);
        if (memory != MAP_FAILED && mprotect(memory, PAGE, PROT_READ) == 0)
            memory += BEFORE;
        break;
    case HALVED:
    case SHRUNK:
        if (before && mapped(before + HALF, HALF, MAP_PRIVATE) == before + HALF)
            break;
        memory = mapped(NULL, LONG, MAP_PRIVATE);
        break;
    default:
        if (!before)
            memory = mapped(NULL, LONG, way == PUNCHED ? MAP_SHARED : MAP_PRIVATE);
    }
    if (memory == MAP_FAILED) {
        fprintf(stderr, "freed_memory: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// Returns whether the pages were given back. The heap can give back only its end, up to the last block in use.
static bool given_back(enum way way, unsigned char *memory) {
    unsigned char *other;
    switch (way) {
    case HEAP: return (unsigned char *)sbrk(0) == memory + LONG && sbrk(-LONG) != (void *)-1;
    case UNMAPPED: return munmap(memory, LONG) == 0;
    case HALVED: return munmap(memory + HALF, HALF) == 0;
    case MOVED:
        other = mremap(memory, LONG, LONG, MREMAP_MAYMOVE | MREMAP_FIXED, mapped(NULL, LONG, MAP_PRIVATE));
        return other != MAP_FAILED && munmap(other, LONG) == 0;
    case SHRUNK: return mremap(memory, LONG, HALF, 0) == memory;
    case REPLACED: return mapped(memory, LONG, MAP_PRIVATE | MAP_FIXED) == memory;
    case COVERED:
        other = mapped(NULL, LONG, MAP_PRIVATE);
        return other != MAP_FAILED && mremap(other, LONG, LONG, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == memory;
    case DETACHED: return shmdt(memory - BEFORE) == 0;
    case COVERED_BY_SEGMENT: return attached(memory, LONG, SHM_REMAP) == memory;
    default:
        return madvise(memory, LONG, advice[way]) == 0 && (way != GUARDED || madvise(memory, LONG, GUARD_REMOVE) == 0);
    }
}

static bool is_possible(enum way way) {
    unsigned char *memory = mapped(NULL, LONG, way == PUNCHED ? MAP_SHARED : MAP_PRIVATE);
    bool is = !advice[way] || (memory != MAP_FAILED && madvise(memory, LONG, advice[way]) == 0);
    if (memory != MAP_FAILED)
        munmap(memory, LONG);
    return is;
}

static void exchange(unsigned char *out, unsigned char *in, int round) {
    check_ring(MPI_COMM_WORLD, 1, out, in, LONG, round);
}

static void rounds_of(enum way way, int rounds) {
    unsigned char *out = NULL, *in = NULL, *out_before, *in_before;
    int gone = 0, again = 0;
    long long before = counted(&taken_back);
    for (int round = 0; round < rounds; round++) {
        out_before = out, in_before = in;
        out = taken(way, out);
        in = taken(way, in);
        again += out == out_before && in == in_before;
        exchange(out, in, round);
        // The upper buffer goes first, as the heap shrinks from its end.
        unsigned char *upper = out > in ? out : in, *lower = out > in ? in : out;
        gone += given_back(way, upper);
        gone += given_back(way, lower);
    }
    long long deregistered = counted(&taken_back) - before;
    printf("freed_memory: rank %d, %s: %d of %d buffers gone, %d rounds at the same addresses, %lld registrations taken back\n",
           check.rank, ways[way], gone, 2 * rounds, again, deregistered);
    check_true("buffers went back to the kernel", gone > 0);
    check_true("their addresses were used again", again > 0);
    // Registrations of the last round are taken back when the next memory is registered.
    if (deregistered < gone - 2)
        check_fail("registrations taken back: expected at least %d, got %lld", gone - 2, deregistered);
}

// Keeps what Open MPI allocates for its first long messages from lying behind the buffers in the heap.
static void warm_up(void) {
    unsigned char *out = taken(UNMAPPED, NULL), *in = taken(UNMAPPED, NULL);
    for (int round = 0; round < WARM_UP; round++)
        exchange(out, in, round);
    munmap(out, LONG);
    munmap(in, LONG);
}

int main(int argc, char **argv) {
    const char *ucx = check_option(argc, argv, "--ucx");
    if (ucx && strcmp(ucx, "before") == 0)
        install_hooks_of_ucx();
    check_start(&argc, &argv, 2);
    check_no_more(argc);
    if (ucx && strcmp(ucx, "after") == 0)
        install_hooks_of_ucx();
    counter_open(&taken_back, "btl_ibex_deregistrations");
    warm_up();
    for (enum way way = HEAP; way < WAYS; way++) {
        if (!is_possible(way)) {
            check_skip(ways[way], "this kernel has no such advice");
            continue;
        }
        check_case("messages in memory that goes %s", ways[way]);
        rounds_of(way, scaled(12, 4));
    }
    counter_close(&taken_back);
    return check_finish();
}
