// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Long messages from and to memory that goes back to the kernel and is taken again at the same address, with other
// pages, over libfabric's calls, between two endpoints of this process. Memory is freed by each call that can do it
// (docs/registered-memory.md). A registration that outlives its memory leads the adapter to the old pages: the receiver
// gets what the buffer held before, or never sees what came. An emulated adapter does not pin pages, so for each way the
// program also prints how many buffers went: as many registrations have to end (the provider prints that, FI_LOG_LEVEL).
//
// usage: fi_freed_memory [--many | --one-sided]
//   --many       instead: messages of many buffers, whose registrations a test makes fail
//   --one-sided  writes and reads instead of messages: by way of the memory of the receiver's domain
#define _GNU_SOURCE
#include <malloc.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

enum { LONG = 2 << 20, HALF = LONG / 2, PAGE = 4096, BEFORE = 2 * PAGE, ROUNDS = 6, MANY = 48, ROOM = 1 << 20 };

enum way {
    HEAP, UNMAPPED, HALVED, MOVED, SHRUNK, REPLACED, COVERED, DETACHED, COVERED_BY_SEGMENT, DISCARDED, FREED, PUNCHED, UNLOCKED,
    GUARDED, MALLOC_MAPPED, MALLOC_HEAP, READ_ONLY, WAYS
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
    [MALLOC_MAPPED] = "by free, from a mapping of its own",
    [MALLOC_HEAP] = "by free, from the end of the heap",
    [READ_ONLY] = "by munmap, and can only be read when it is sent",
};

// Older C libraries lack these.
enum { DONTNEED_LOCKED = 24, GUARD_INSTALL = 102, GUARD_REMOVE = 103 };
static const int advice[WAYS] = {
    [DISCARDED] = MADV_DONTNEED,    [FREED] = MADV_FREE,        [PUNCHED] = MADV_REMOVE,
    [UNLOCKED] = DONTNEED_LOCKED,   [GUARDED] = GUARD_INSTALL,
};

#define CHECK(call)                                                                                                                    \
    do {                                                                                                                               \
        long code = (call);                                                                                                            \
        if (code < 0) {                                                                                                                \
            fprintf(stderr, "fi_freed_memory: line %d: %s: %s\n", __LINE__, #call, fi_strerror((int)-code));                           \
            exit(1);                                                                                                                   \
        }                                                                                                                              \
    } while (0)

static struct fi_info *offer;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *vector;

struct side {
    struct fid_ep *endpoint;
    struct fid_cq *queue;
    fi_addr_t address;
};

static struct side opened(void) {
    struct side side;
    struct fi_cq_attr of_queue = {.format = FI_CQ_FORMAT_TAGGED, .size = 64};
    char name[64];
    size_t length = sizeof name;
    CHECK(fi_cq_open(domain, &of_queue, &side.queue, NULL));
    CHECK(fi_endpoint(domain, offer, &side.endpoint, NULL));
    CHECK(fi_ep_bind(side.endpoint, &vector->fid, 0));
    CHECK(fi_ep_bind(side.endpoint, &side.queue->fid, FI_SEND | FI_RECV));
    CHECK(fi_enable(side.endpoint));
    CHECK(fi_getname(&side.endpoint->fid, name, &length));
    CHECK(fi_av_insert(vector, name, 1, &side.address, 0, NULL) == 1 ? 0 : -FI_EOTHER);
    return side;
}

static void closed(struct side *side) {
    CHECK(fi_close(&side->endpoint->fid));
    CHECK(fi_close(&side->queue->fid));
}

// Reads the completion of an operation, while the other side progresses too.
static bool has_ended(struct side *side) {
    struct fi_cq_tagged_entry entry;
    ssize_t read = fi_cq_read(side->queue, &entry, 1);
    if (read == -FI_EAVAIL) {
        struct fi_cq_err_entry failure = {0};
        CHECK(fi_cq_readerr(side->queue, &failure, 0));
        CHECK(-failure.err);
    }
    if (read != -FI_EAGAIN)
        CHECK(read);
    return read == 1;
}

static uint64_t word(size_t place, unsigned message) {
    return place * 0x9e3779b97f4a7c15 + message;
}

static unsigned messages, wrong;
static unsigned char *window; // registered, for one-sided operations
static struct fid_mr *region;

// Waits for the end of an operation of one side.
static void ended(struct side *side, struct side *other) {
    while (!has_ended(side))
        (void)fi_cq_read(other->queue, NULL, 0);
}

// Passes data by way of the window: both sides are peers of it.
static void write_and_read(struct side *from, struct side *to, unsigned char *out, unsigned char *in) {
    uint64_t address = (uintptr_t)window, key = fi_mr_key(region);
    CHECK(fi_write(from->endpoint, out, LONG, NULL, to->address, address, key, NULL));
    ended(from, to);
    CHECK(fi_read(to->endpoint, in, LONG, NULL, from->address, address, key, NULL));
    ended(to, from);
}

static void send_and_receive(struct side *from, struct side *to, unsigned char *out, unsigned char *in, unsigned tag) {
    struct fi_context contexts[2];
    CHECK(fi_trecv(to->endpoint, in, LONG, NULL, from->address, tag, 0, &contexts[0]));
    CHECK(fi_tsend(from->endpoint, out, LONG, NULL, to->address, tag, &contexts[1]));
    for (bool sent = false, received = false; !sent || !received;) {
        sent = has_ended(from) || sent;
        received = has_ended(to) || received;
    }
}

// Passes a message, and checks what arrives.
static void message(struct side *from, struct side *to, unsigned char *out, unsigned char *in, bool is_read_only) {
    unsigned number = ++messages;
    if (is_read_only)
        CHECK(mprotect(out, LONG, PROT_READ | PROT_WRITE));
    for (size_t i = 0; i < LONG / 8; i++)
        ((uint64_t *)out)[i] = word(i, number);
    if (is_read_only)
        CHECK(mprotect(out, LONG, PROT_READ));
    memset(in, 0, LONG);
    if (window)
        write_and_read(from, to, out, in);
    else
        send_and_receive(from, to, out, in, number);
    for (size_t i = 0; i < LONG / 8; i++) {
        if (((uint64_t *)in)[i] != word(i, number)) {
            printf("fi_freed_memory: message %u has %016lx at %zu instead of %016lx\n", number, ((uint64_t *)in)[i], 8 * i,
                   word(i, number));
            wrong++;
            return;
        }
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

// Asks for the former addresses without MAP_FIXED, which would be told as well.
static unsigned char *taken(enum way way, unsigned char *before) {
    unsigned char *memory = before;
    switch (way) {
    case HEAP: memory = sbrk(LONG); break;
    case MALLOC_MAPPED:
    case MALLOC_HEAP: memory = malloc(LONG); break;
    case UNMAPPED:
    case READ_ONLY:
    case MOVED: memory = mapped(before, LONG, MAP_PRIVATE); break;
    case DETACHED:
        // Its first page can only be read, so that the segment is in two parts.
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
    if (memory == MAP_FAILED || !memory) {
        fprintf(stderr, "fi_freed_memory: no memory\n");
        exit(1);
    }
    return memory;
}

// Returns whether the pages were given back. The heap can give back only its end, up to the last block in use.
static bool given_back(enum way way, unsigned char *memory) {
    unsigned char *other;
    switch (way) {
    case HEAP: return (unsigned char *)sbrk(0) == memory + LONG && sbrk(-LONG) != (void *)-1;
    case MALLOC_MAPPED: free(memory); return true;
    case MALLOC_HEAP: {
        uintptr_t end = (uintptr_t)memory + LONG;
        free(memory);
        return (uintptr_t)sbrk(0) < end;
    }
    case UNMAPPED:
    case READ_ONLY: return munmap(memory, LONG) == 0;
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

// Passes a message before the rounds, in memory that goes too. The provider counts memory that is gone when it next
// registers other memory. Nothing is registered after the last round, so its buffers are not counted; those of this
// message are.
static void warm_up(struct side *from, struct side *to) {
    unsigned char *out = taken(UNMAPPED, NULL), *in = taken(UNMAPPED, NULL);
    message(from, to, out, in, false);
    munmap(out, LONG);
    munmap(in, LONG);
}

// Leaves room low in the heap for what the provider allocates during transfers. A small block above the buffers would
// keep the heap from shrinking, even once it is freed: `free` keeps it for the next allocation of its size.
static void make_room(void) {
    mallopt(M_MMAP_THRESHOLD, 2 * ROOM);
    void *room = malloc(ROOM), *fence = malloc(ROOM);
    CHECK(room && fence ? 0 : -FI_ENOMEM);
    free(room);
}

static void rounds_of(enum way way) {
    struct side from = opened(), to = opened();
    unsigned char *out = NULL, *in = NULL, *out_before, *in_before;
    unsigned gone = 0, again = 0;
    warm_up(&from, &to);
    for (int round = 0; round < ROUNDS; round++) {
        out_before = out, in_before = in;
        out = taken(way, out);
        in = taken(way, in);
        again += out == out_before && in == in_before;
        message(&from, &to, out, in, way == READ_ONLY);
        message(&from, &to, out, in, way == READ_ONLY);
        // The upper buffer goes first, as the heap shrinks from its end.
        bool is_out_upper = out > in;
        bool is_upper_gone = given_back(way, is_out_upper ? out : in), is_lower_gone = given_back(way, is_out_upper ? in : out);
        gone += is_upper_gone && is_lower_gone;
    }
    // The provider prints the rest when the endpoints are closed.
    fprintf(stderr, "memory goes %s: %u of %d pairs gone, %u at the same addresses\n", ways[way], gone, ROUNDS, again);
    closed(&from);
    closed(&to);
}

// Buffers that go round, each for messages in both directions.
static void many(void) {
    static unsigned char *buffers[MANY];
    struct side from = opened(), to = opened();
    for (int i = 0; i < MANY; i++)
        buffers[i] = taken(UNMAPPED, NULL);
    for (int i = 0; i < 3 * MANY; i++)
        message(&from, &to, buffers[i % MANY], buffers[(i + MANY / 2) % MANY], false);
    closed(&from);
    closed(&to);
}

int main(int argc, char **argv) {
    make_room();
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr of_vector = {.type = FI_AV_TABLE};
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_RMA | FI_DIRECTED_RECV;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->mode = FI_CONTEXT;
    hints->fabric_attr->prov_name = strdup("ibex");
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &offer));
    CHECK(fi_fabric(offer->fabric_attr, &fabric, NULL));
    CHECK(fi_domain(fabric, offer, &domain, NULL));
    CHECK(fi_av_open(domain, &of_vector, &vector, NULL));
    bool is_many = argc > 1 && strcmp(argv[1], "--many") == 0;
    if (is_many)
        many();
    else if (argc > 1) {
        window = mapped(NULL, LONG, MAP_PRIVATE);
        CHECK(fi_mr_reg(domain, window, LONG, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &region, NULL));
    }
    for (enum way way = HEAP; way < WAYS && !is_many; way++) {
        if (!is_possible(way)) {
            fprintf(stderr, "skip memory goes %s: this kernel has no such advice\n", ways[way]);
            continue;
        }
        mallopt(M_MMAP_THRESHOLD, way == MALLOC_HEAP ? 32 << 20 : LONG / 2);
        rounds_of(way);
    }
    if (region)
        CHECK(fi_close(&region->fid));
    CHECK(fi_close(&vector->fid));
    CHECK(fi_close(&domain->fid));
    CHECK(fi_close(&fabric->fid));
    printf("fi_freed_memory: %u messages, %u wrong\n", messages, wrong);
    return wrong != 0;
}
