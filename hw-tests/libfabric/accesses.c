// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counters of peers' accesses (FI_RMA_EVENT): of memory regions and of endpoints, for reads, writes, atomic operations
// and remote CQ data; of an endpoint of another domain, of one of the target's domain, and of the target itself.
// A counter makes its endpoints progress, and wakes a thread that sleeps on it. What is counted is there.
//
// usage: accesses [--named | --by-adapter]
//   --named       the program knows FI_MR_RMA_EVENT: only regions that it registers with FI_RMA_EVENT count
//   --by-adapter  the adapter does atomic operations
#define CAPABILITIES (FI_RMA | FI_ATOMIC | FI_TAGGED | FI_FENCE | FI_SOURCE | FI_RMA_EVENT)
#include <stdbool.h>
static int extra_mode;
static bool by_adapter;
#define MR_MODE (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | extra_mode)
#include "one_sided.h"
#include <pthread.h>
#include <rdma/fi_atomic.h>

enum { ROOM = 1 << 20, HALF = ROOM / 2, REGIONS = 2 };

static unsigned char *target, *local;
static struct fid_mr *counted[REGIONS], *plain; // halves of the target's memory, and all of it
static struct fid_cntr *reads[REGIONS], *writes[REGIONS], *of_endpoint[2];
static uint64_t before[2 * REGIONS + 2];

static uint64_t value(int i) {
    return fi_cntr_read(i < REGIONS ? reads[i] : i < 2 * REGIONS ? writes[i - REGIONS] : of_endpoint[i - 2 * REGIONS]);
}

static void begin(void) {
    for (int i = 0; i < 2 * REGIONS + 2; i++)
        before[i] = value(i);
    forget();
}

// Waits until the counters have counted so much since begin(), and checks that they do not count more.
static void counted_are(uint64_t r0, uint64_t r1, uint64_t w0, uint64_t w1, uint64_t r, uint64_t w) {
    const uint64_t wanted[] = {r0, r1, w0, w1, r, w};
    for (int i = 0; i < 6; i++)
        while (value(i) - before[i] < wanted[i])
            progress();
    for (int i = 0; i < 1000; i++)
        progress();
    for (int i = 0; i < 6; i++)
        check_int("counted", (long long)wanted[i], (long long)(value(i) - before[i]));
}

static struct fid_mr *region(void *memory, size_t length, uint64_t access, bool counts) {
    struct fid_mr *of;
    uint64_t flags = counts && extra_mode ? FI_RMA_EVENT : 0;
    OK(fi_mr_reg(b->domain, memory, length, access, 0, 0, flags, &of, NULL));
    return of;
}

// Waits only by reading one counter, and then looks for the data.
static void arrived(struct endpoint *end, fi_addr_t to) {
    uint64_t *word = (uint64_t *)(void *)target;
    for (uint64_t round = 1; round <= 100; round++) {
        size_t length = round % 3 ? 8 : HALF;
        *word = 0;
        memset(local, (int)round, length);
        begin();
        RETRIED(fi_write(end->ep, local, length, NULL, to, (uintptr_t)target, fi_mr_key(counted[0]), NULL));
        while (fi_cntr_read(writes[0]) == before[REGIONS]) {
            // A connection may need both sides.
            (void)fi_cntr_read(end->writes);
        }
        check_int("the first byte", (int)round, target[0]);
        check_int("the last byte", (int)round, ((volatile unsigned char *)target)[length - 1]);
        await(end, 1);
    }
}

static void each_kind(struct endpoint *end, int number) {
    fi_addr_t to = end->to[number];
    uint64_t key0 = fi_mr_key(counted[0]), key1 = fi_mr_key(counted[1]), address = (uintptr_t)target;
    begin();
    RETRIED(fi_write(end->ep, local, 8, NULL, to, address, key0, NULL));
    RETRIED(fi_inject_write(end->ep, local, 100, to, address + HALF, key1));
    RETRIED(fi_write(end->ep, local, 20000, NULL, to, address, key0, NULL));
    RETRIED(fi_write(end->ep, local, 0, NULL, to, address, key0, NULL));
    counted_are(0, 0, 3, 1, 0, 4);
    begin();
    RETRIED(fi_read(end->ep, local, 8, NULL, to, address, key0, NULL));
    RETRIED(fi_read(end->ep, local, HALF, NULL, to, address + HALF, key1, NULL));
    counted_are(1, 1, 0, 0, 2, 0);
    // Several pieces in two regions are one operation.
    struct iovec iov = {local, 900};
    struct fi_rma_iov rma[3] = {{address, 300, key0}, {address + HALF, 300, key1}, {address + 500, 300, key0}};
    struct fi_msg_rma message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = rma, .rma_iov_count = 3};
    begin();
    RETRIED(fi_writemsg(end->ep, &message, FI_COMPLETION));
    RETRIED(fi_readmsg(end->ep, &message, FI_COMPLETION));
    counted_are(1, 1, 1, 1, 1, 1);
    begin();
    RETRIED(fi_writedata(end->ep, local, 64, NULL, 77, to, address, key0, NULL));
    RETRIED(fi_inject_writedata(end->ep, local, 64, 78, to, address + HALF, key1));
    counted_are(0, 0, 1, 1, 0, 2);
    await(&ends[number], 2);
    int entries = 0;
    for (int i = 0; i < ends[number].count; i++)
        if (ends[number].entries[i].flags & FI_REMOTE_CQ_DATA)
            check_int("data", 77 + entries++, (long long)ends[number].entries[i].data);
    check_int("entries with data", 2, entries);
    if (!extra_mode)
        return;
    begin();
    RETRIED(fi_write(end->ep, local, 8, NULL, to, address, fi_mr_key(plain), NULL));
    RETRIED(fi_read(end->ep, local, 8, NULL, to, address, fi_mr_key(plain), NULL));
    counted_are(0, 0, 0, 0, 0, 0);
}

static void atomics(struct endpoint *end, fi_addr_t to) {
    static uint64_t one = 1, old[3];
    uint64_t key0 = fi_mr_key(counted[0]), key1 = fi_mr_key(counted[1]), address = (uintptr_t)target;
    memset(target, 0, ROOM);
    begin();
    RETRIED(fi_atomic(end->ep, &one, 1, NULL, to, address, key0, FI_UINT64, FI_SUM, NULL));
    RETRIED(fi_inject_atomic(end->ep, &one, 1, to, address, key0, FI_UINT64, FI_SUM));
    // What changes memory and returns what was there counts for the region as both, for the endpoint as a read.
    RETRIED(fi_fetch_atomic(end->ep, &one, 1, NULL, &old[0], NULL, to, address, key0, FI_UINT64, FI_SUM, NULL));
    RETRIED(fi_fetch_atomic(end->ep, NULL, 1, NULL, &old[1], NULL, to, address, key0, FI_UINT64, FI_ATOMIC_READ, NULL));
    RETRIED(fi_compare_atomic(end->ep, &one, 1, NULL, &one, NULL, &old[2], NULL, to, address + HALF, key1, FI_UINT64,
                              FI_CSWAP, NULL));
    counted_are(2, 1, 3, 1, 3, 2);
    check_int("the sum", 3, *(volatile long long *)(void *)target);
    if (by_adapter)
        return;
    // A long one, in several messages, and one in two regions.
    begin();
    RETRIED(fi_atomic(end->ep, local, HALF / 8, NULL, to, address, key0, FI_UINT64, FI_BOR, NULL));
    struct fi_ioc iov = {local, 6};
    struct fi_rma_ioc ranges[4] = {{address, 2, key0}, {address + HALF, 2, key1}, {address + 64, 2, key0}, {address, 0, key1}};
    struct fi_msg_atomic message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = ranges, .rma_iov_count = 4,
                                    .datatype = FI_UINT64, .op = FI_BXOR};
    RETRIED(fi_atomicmsg(end->ep, &message, FI_COMPLETION));
    counted_are(0, 0, 2, 1, 0, 2);
    // What is refused is not counted.
    struct fid_mr *readable = region(target, 64, FI_REMOTE_READ, true);
    begin();
    RETRIED(fi_atomic(end->ep, &one, 1, NULL, to, address, fi_mr_key(readable), FI_UINT64, FI_SUM, NULL));
    await(end, 1);
    check_int("failures", 1, end->failed);
    counted_are(0, 0, 0, 0, 0, 0);
    OK(fi_close(&readable->fid));
}

static struct fid_cntr *awaited;
static uint64_t threshold;
static bool has_woken;

static void *sleeper(void *unused) {
    OK(fi_cntr_wait(awaited, threshold, -1));
    __atomic_store_n(&has_woken, true, __ATOMIC_RELEASE);
    return unused;
}

static void sleeps(void) {
    for (uint64_t round = 0; round < 20; round++) {
        pthread_t thread;
        awaited = writes[round % 2];
        threshold = fi_cntr_read(awaited) + 3;
        has_woken = false;
        OK(pthread_create(&thread, NULL, sleeper, NULL));
        for (int i = 0; i < 3; i++)
            RETRIED(fi_inject_write(a->ep, local, 8, a->to[1], (uintptr_t)target + round % 2 * HALF,
                                    fi_mr_key(counted[round % 2])));
        while (!__atomic_load_n(&has_woken, __ATOMIC_ACQUIRE))
            (void)fi_cntr_read(a->writes);
        OK(pthread_join(thread, NULL));
    }
}

static void offers(void) {
    struct fi_info *got, *hints = hints_for(FI_RMA, MR_MODE);
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
    check_int("without asking", 0, (long long)(got->caps & FI_RMA_EVENT));
    check_int("size of keys", 4, (long long)got->domain_attr->mr_key_size);
    check_int("with asking", FI_RMA_EVENT, (long long)(info->caps & FI_RMA_EVENT));
    check_int("size of keys", 8, (long long)info->domain_attr->mr_key_size);
    check_int("mr_mode", MR_MODE, info->domain_attr->mr_mode);
    // A domain without: its regions count nothing.
    struct fid_domain *other;
    struct fid_cntr *counter;
    struct fid_mr *of;
    OK(fi_domain(fabric, got, &other, NULL));
    OK(fi_cntr_open(other, NULL, &counter, NULL));
    check_int("the flag", -FI_EBADFLAGS, fi_mr_reg(other, target, 64, FI_REMOTE_WRITE, 0, 0, FI_RMA_EVENT, &of, NULL));
    OK(fi_mr_reg(other, target, 64, FI_REMOTE_WRITE, 0, 0, 0, &of, NULL));
    check_int("a binding", -FI_ENOSYS, fi_mr_bind(of, &counter->fid, FI_REMOTE_WRITE));
    check_int("a counter of another domain", -FI_EDOMAIN, fi_mr_bind(counted[0], &counter->fid, FI_REMOTE_WRITE));
    OK(fi_close(&of->fid));
    OK(fi_close(&counter->fid));
    OK(fi_close(&other->fid));
    fi_freeinfo(got);
    fi_freeinfo(hints);
    check_int("a second counter", -FI_EINVAL, fi_mr_bind(counted[0], &reads[1]->fid, FI_REMOTE_WRITE));
    check_int("no access", -FI_EINVAL, fi_mr_bind(counted[0], &reads[1]->fid, 0));
    check_int("an access of its own", -FI_EINVAL, fi_mr_bind(counted[0], &reads[1]->fid, FI_WRITE));
    check_int("no counter", -FI_EINVAL, fi_mr_bind(counted[0], &b->cq->fid, FI_REMOTE_WRITE));
    check_int("a counter of a region", -FI_EBUSY, fi_close(&reads[0]->fid));
    if (extra_mode)
        check_int("a region without the flag", -FI_ENOSYS, fi_mr_bind(plain, &reads[1]->fid, FI_REMOTE_READ));
}

static void bind_endpoint(struct endpoint *end) {
    for (int i = 0; i < 2 && end == b; i++) {
        OK(fi_cntr_open(b->domain, NULL, &of_endpoint[i], NULL));
        OK(fi_ep_bind(b->ep, &of_endpoint[i]->fid, i ? FI_REMOTE_WRITE : FI_REMOTE_READ));
    }
}

static void close_bound(struct endpoint *end) {
    for (int i = 0; i < 2 && end == b; i++)
        OK(fi_close(&of_endpoint[i]->fid));
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--named") == 0)
        extra_mode = FI_MR_RMA_EVENT;
    by_adapter = argc > 1 && strcmp(argv[1], "--by-adapter") == 0;
    if (by_adapter)
        setenv("FI_IBEX_ATOMICS", "adapter", 1);
    check_case("endpoints open");
    before_enabling = bind_endpoint, after_closing = close_bound;
    open_endpoints();
    target = calloc(ROOM, 1), local = calloc(ROOM, 1);
    uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;
    plain = region(target, ROOM, both, false);
    for (int i = 0; i < REGIONS; i++) {
        struct fi_cntr_attr sleeping = {.wait_obj = FI_WAIT_UNSPEC};
        counted[i] = region(target + i * HALF, HALF, both, true);
        OK(fi_cntr_open(b->domain, NULL, &reads[i], NULL));
        OK(fi_cntr_open(b->domain, &sleeping, &writes[i], NULL));
        OK(fi_mr_bind(counted[i], &reads[i]->fid, FI_REMOTE_READ));
        OK(fi_mr_bind(counted[i], &writes[i]->fid, FI_REMOTE_WRITE));
        OK(fi_mr_enable(counted[i]));
    }
    check_case("what is offered, and what is refused");
    offers();
    check_case("what is counted is there");
    arrived(a, a->to[1]);
    for (int i = 0; i < ENDPOINTS; i++) {
        check_case("each kind of operation, of endpoint %d", i);
        each_kind(&ends[i], 1);
        check_case("atomic operations, of endpoint %d", i);
        atomics(&ends[i], ends[i].to[1]);
    }
    check_case("threads sleep until a region is written");
    sleeps();
    for (int i = 0; i < REGIONS; i++) {
        OK(fi_close(&counted[i]->fid));
        OK(fi_close(&reads[i]->fid));
        OK(fi_close(&writes[i]->fid));
    }
    OK(fi_close(&plain->fid));
    close_endpoints();
    return check_finish();
}
