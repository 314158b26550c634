// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One-sided operations that succeed: each call, all sizes around thresholds, pieces of memory, injected writes, remote
// CQ data, counters, selective completion, fences, and random writes and reads in flight against a model. With a peer's
// memory, by two endpoints of its domain, and with the endpoint's own.
#include "one_sided.h"

enum { LONGEST = 8 << 20, GUARD = 64, ROOM = LONGEST + 2 * GUARD };

static unsigned char *target, *source, *sink, *model;
static uint64_t key;            // of the whole target
static struct fi_context ctx[KEPT];

static uint64_t at(size_t offset) { return (uintptr_t)target + offset; }

static void check_entry(const char *what, const struct fi_cq_tagged_entry *entry, void *context, uint64_t flags) {
    check_int(what, (long long)flags, (long long)entry->flags);
    if (entry->op_context != context)
        check_fail("%s: context %p, not %p", what, entry->op_context, context);
}

static void sizes(struct endpoint *end, fi_addr_t to) {
    static const size_t lengths[] = {0, 1, 8, 63, 64, 65, 200, 400, 1023, 1024, 4095, 4096, 4097, 16383, 16384,
                                     16385, 65536, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, LONGEST};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t length = lengths[i];
        fill(source, length);
        memset(target, 7, length + 2 * GUARD);
        memset(sink, 9, length + 2 * GUARD);
        memset(model, 7, length + 2 * GUARD);
        memcpy(model + GUARD, source, length);
        forget();
        RETRIED(fi_write(end->ep, source, length, NULL, to, at(GUARD), key, &ctx[0]));
        await(end, 1);
        check_entry("a write's entry", &end->entries[0], &ctx[0], FI_RMA | FI_WRITE);
        check_same("the target", model, target, length + 2 * GUARD);
        RETRIED(fi_read(end->ep, sink + GUARD, length, NULL, to, at(GUARD), key, &ctx[1]));
        await(end, 2);
        check_entry("a read's entry", &end->entries[1], &ctx[1], FI_RMA | FI_READ);
        check_same("what was read", source, sink + GUARD, length);
        check_int("the guards", 9 * 2 * GUARD, 0 + ({
            int sum = 0;
            for (int g = 0; g < GUARD; g++)
                sum += sink[g] + sink[GUARD + length + g];
            sum;
        }));
    }
}

// Up to eight pieces on each side, of random lengths, also empty ones.
static void pieces(struct endpoint *end, fi_addr_t to, size_t most) {
    for (int round = 0; round < 40; round++) {
        struct iovec iov[8];
        struct fi_rma_iov rma[8];
        int count = 1 + (int)below(8), remote = 1 + (int)below(8);
        size_t length = 0, rest, offset = 0, there = 0;
        fill(source, most * 9);
        memset(sink, 0, most * 9);
        memset(target, 0, most * 18);
        for (int i = 0; i < count; i++) {
            iov[i] = (struct iovec){source + offset, below(4) ? below(most) : 0};
            memcpy(model + length, iov[i].iov_base, iov[i].iov_len);
            length += iov[i].iov_len;
            offset += iov[i].iov_len + below(9);
        }
        rest = length;
        for (int i = 0; i < remote; i++) {
            size_t now = i + 1 == remote ? rest : below(rest + 1);
            rma[i] = (struct fi_rma_iov){at(there), now, key};
            there += now + below(9);
            rest -= now;
        }
        struct fi_msg_rma message = {.msg_iov = iov, .iov_count = (size_t)count, .addr = to, .rma_iov = rma,
                                     .rma_iov_count = (size_t)remote, .context = &ctx[2]};
        forget();
        RETRIED(fi_writemsg(end->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
        await(end, 1);
        size_t seen = 0;
        for (int i = 0; i < remote; i++) {
            check_same("a remote piece", model + seen, (void *)(uintptr_t)rma[i].addr, rma[i].len);
            seen += rma[i].len;
        }
        for (int i = 0; i < count; i++)
            iov[i].iov_base = sink + ((unsigned char *)iov[i].iov_base - source);
        RETRIED(fi_readmsg(end->ep, &message, FI_COMPLETION));
        await(end, 2);
        check_entry("the read's entry", &end->entries[1], &ctx[2], FI_RMA | FI_READ);
        seen = 0;
        for (int i = 0; i < count; i++) {
            check_same("a local piece", model + seen, iov[i].iov_base, iov[i].iov_len);
            seen += iov[i].iov_len;
        }
        // The same to one piece.
        RETRIED(fi_readv(end->ep, iov, NULL, (size_t)count, to, at(0), key, &ctx[3]));
        await(end, 3);
        RETRIED(fi_writev(end->ep, iov, NULL, (size_t)count, to, at(most * 9), key, &ctx[3]));
        await(end, 4);
        check_same("what was copied", target, target + most * 9, length);
        rma[0].len++;
        check_int("sides of different lengths", -FI_EINVAL, fi_writemsg(end->ep, &message, FI_COMPLETION));
    }
}

static void injected(struct endpoint *end, fi_addr_t to) {
    static const size_t lengths[] = {0, 1, 64, 1000, 4096};
    forget();
    uint64_t before = fi_cntr_read(end->writes), count = 0;
    unsigned char bytes[4097];
    for (int round = 0; round < 100; round++) {
        size_t length = lengths[round % 5];
        fill(bytes, length);
        memcpy(model + round * 4096, bytes, length);
        RETRIED(fi_inject_write(end->ep, bytes, length, to, at((size_t)round * 4096), key));
        memset(bytes, 0xee, sizeof bytes);
        count++;
    }
    while (fi_cntr_read(end->writes) < before + count)
        progress();
    check_int("entries", 0, end->count);
    for (int round = 0; round < 100; round++)
        check_same("an injected write", model + round * 4096, target + round * 4096, lengths[round % 5]);
    // More than fit at a time: a program may do nothing but call again.
    for (int round = 0; round < 600; round++) {
        long code;
        do
            code = fi_inject_write(end->ep, bytes, 4096, to, at(0), key);
        while (code == -FI_EAGAIN);
        check_ok(code, "fi_inject_write", __LINE__);
        count++;
    }
    while (fi_cntr_read(end->writes) < before + count)
        progress();
    check_int("too long", -FI_EMSGSIZE, fi_inject_write(end->ep, bytes, 4097, to, at(0), key));
    check_int("errors", 0, (long long)fi_cntr_readerr(end->writes));
}

// The data are in memory when the entry is there; `number` of the target in the list of endpoints.
static void with_data(struct endpoint *end, int number) {
    struct endpoint *peer = &ends[number];
    static const size_t lengths[] = {0, 1, 64, 5000, 16385, 1 << 20};
    bool is_self = peer == end;
    for (int i = 0; i < 6; i++) {
        size_t length = lengths[i];
        uint64_t data = 0x1122334455667700u + (uint64_t)i;
        memset(target, 0, length);
        fill(source, length);
        forget();
        RETRIED(fi_writedata(end->ep, source, length, NULL, data, end->to[number], at(0), key, &ctx[4]));
        await(peer, is_self ? 2 : 1);
        struct fi_cq_tagged_entry *entry = &peer->entries[is_self];
        check_same("the target", source, target, length);
        check_entry("the target's entry", entry, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        check_int("data", (long long)data, (long long)entry->data);
        check_int("length", (long long)length, (long long)entry->len);
        await(end, is_self ? 2 : 1);
        check_entry("the entry", &end->entries[0], &ctx[4], FI_RMA | FI_WRITE);
    }
    forget();
    RETRIED(fi_inject_writedata(end->ep, source, 100, 5, end->to[number], at(300), key));
    await(peer, 1);
    check_int("data", 5, (long long)peer->entries[0].data);
    check_same("the target", source, target + 300, 100);
}

static void selective(struct endpoint *end, fi_addr_t to) {
    struct iovec iov = {source, 32};
    struct fi_rma_iov rma = {at(0), 32, key};
    struct fi_msg_rma message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &rma, .rma_iov_count = 1};
    forget();
    uint64_t writes = fi_cntr_read(end->writes), reads = fi_cntr_read(end->reads);
    for (int i = 0; i < 3; i++) {
        RETRIED(fi_writemsg(end->ep, &message, 0));
        RETRIED(fi_readmsg(end->ep, &message, 0));
    }
    message.context = &ctx[5];
    RETRIED(fi_writemsg(end->ep, &message, FI_COMPLETION));
    await(end, 1);
    check_entry("the one that is reported", &end->entries[0], &ctx[5], FI_RMA | FI_WRITE);
    while (fi_cntr_read(end->writes) < writes + 4 || fi_cntr_read(end->reads) < reads + 3)
        progress();
    check_int("entries", 1, end->count);
    check_int("writes", (long long)writes + 4, (long long)fi_cntr_read(end->writes));
    check_int("reads", (long long)reads + 3, (long long)fi_cntr_read(end->reads));
    check_int("an unknown flag", -FI_EBADFLAGS, fi_writemsg(end->ep, &message, FI_PEEK));
    check_int("an unknown peer", -FI_EINVAL, fi_write(end->ep, source, 1, NULL, 99, at(0), key, NULL));
}

// Many writes of many sizes to one place, and reads behind them, without waiting.
static void in_order(struct endpoint *end, fi_addr_t to) {
    static const size_t lengths[] = {8, 20000, 300, 100000};
    enum { OPERATIONS = 240 };
    forget();
    for (int i = 0; i < OPERATIONS; i += 2) {
        size_t length = lengths[i / 2 % 4];
        unsigned char *bytes = source + i / 2 % 48 * 100000;
        if (i >= 96) // its memory is free
            await(end, i - 95);
        memset(bytes, i, length);
        RETRIED(fi_write(end->ep, bytes, length, NULL, to, at(0), key, &ctx[i % KEPT]));
        RETRIED(fi_read(end->ep, sink + i / 2 * 8, 8, NULL, to, at(0), key, &ctx[(i + 1) % KEPT]));
        await(end, i - 190);
    }
    await(end, OPERATIONS);
    check_int("the last write is there", (OPERATIONS - 2) & 255, target[7]);
    // An adapter may read later than it writes what was asked for later, but not earlier.
    for (int i = 0; i < OPERATIONS / 2; i++)
        if (sink[i * 8] < ((2 * i) & 255))
            check_fail("read %d sees %d", i, sink[i * 8]);
}

static void fenced(struct endpoint *end, int number) {
    fi_addr_t to = end->to[number];
    char text[16] = "behind";
    for (int round = 0; round < 20; round++) {
        forget();
        fill(target, LONGEST / 8);
        memcpy(model, target, LONGEST / 8);
        // A write behind a read of the same memory needs a fence.
        RETRIED(fi_read(end->ep, sink, LONGEST / 8, NULL, to, at(0), key, &ctx[0]));
        struct iovec iov = {source, 64};
        struct fi_rma_iov rma = {at(LONGEST / 8 - 64), 64, key};
        struct fi_msg_rma message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &rma, .rma_iov_count = 1};
        RETRIED(fi_writemsg(end->ep, &message, FI_FENCE | FI_COMPLETION));
        await(end, 2);
        check_same("the read came first", model, sink, LONGEST / 8);
    }
    forget();
    char received[16];
    RETRIED(fi_trecv(ends[number].ep, received, 16, NULL, FI_ADDR_UNSPEC, 5, 0, &ctx[2]));
    fill(source, LONGEST / 8);
    RETRIED(fi_write(end->ep, source, LONGEST / 8, NULL, to, at(0), key, &ctx[1]));
    struct iovec iov = {text, 16};
    struct fi_msg_tagged message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .tag = 5, .context = &ctx[3]};
    RETRIED(fi_tsendmsg(end->ep, &message, FI_FENCE | FI_COMPLETION));
    check_same("what was written before the message was sent", source, target, LONGEST / 8);
    await(end, 2);
}

// A first write waits for a connection, which the peer must help to make: what is fenced behind it cannot begin.
static void fenced_at_first(void) {
    struct iovec iov = {source, 64};
    struct fi_rma_iov rma = {at(64), 64, key};
    struct fi_msg_rma write = {.msg_iov = &iov, .iov_count = 1, .addr = c->to[1], .rma_iov = &rma, .rma_iov_count = 1};
    struct fi_msg_tagged message = {.msg_iov = &iov, .iov_count = 1, .addr = c->to[1], .tag = 6};
    forget();
    fill(source, 64);
    OK(fi_write(c->ep, source, 64, NULL, c->to[1], at(0), key, &ctx[0]));
    check_int("a fenced write", -FI_EAGAIN, fi_writemsg(c->ep, &write, FI_FENCE | FI_COMPLETION));
    check_int("a fenced send", -FI_EAGAIN, fi_tsendmsg(c->ep, &message, FI_FENCE | FI_COMPLETION));
    RETRIED(fi_writemsg(c->ep, &write, FI_FENCE | FI_COMPLETION));
    check_same("the first write", source, target, 64);
    await(c, 2);
    check_same("the second write", source, target + 64, 64);
}

// Random writes, then random reads, all in flight, by two endpoints of the target's domain in turn.
static void random_ones(void) {
    enum { SPACE = 1 << 20, MOST_IN_FLIGHT = 100 };
    static const size_t limits[] = {16, 300, 5000, 20000, 70000};
    memset(target, 0, SPACE);
    memset(model, 0, SPACE);
    for (int round = 0; round < 60; round++) {
        forget();
        fi_addr_t to = a->to[1 + round % 2];
        int writes = 1 + (int)below(MOST_IN_FLIGHT), reads = (int)below(MOST_IN_FLIGHT);
        size_t offset = 0, sizes[MOST_IN_FLIGHT], places[MOST_IN_FLIGHT];
        for (int i = 0; i < writes; i++) {
            size_t length = below(limits[below(5)]), place = below(SPACE - length);
            fill(source + offset, length);
            memcpy(model + place, source + offset, length);
            RETRIED(fi_write(a->ep, source + offset, length, NULL, to, at(place), key, &ctx[i]));
            offset += length;
        }
        offset = 0;
        for (int i = 0; i < reads; i++) {
            sizes[i] = below(limits[below(5)]), places[i] = below(SPACE - sizes[i]);
            RETRIED(fi_read(a->ep, sink + offset, sizes[i], NULL, to, at(places[i]), key, &ctx[100 + i]));
            offset += sizes[i];
        }
        await(a, writes + reads);
        check_int("failures", 0, a->failed);
        offset = 0;
        for (int i = 0; i < reads; i++) {
            check_same("a random read", model + places[i], sink + offset, sizes[i]);
            offset += sizes[i];
        }
        check_same("the whole target", model, target, SPACE);
        if (check.wrong)
            return;
    }
}

static void regions(void) {
    struct fi_info *got = NULL, *hints = hints_for(FI_RMA, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED);
    check_int("keys of the program's", -FI_ENODATA, fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
    fi_freeinfo(hints);
    check_int("mr_mode", FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, info->domain_attr->mr_mode);
    struct iovec iov = {target, 4096};
    struct fi_mr_attr attributes = {.mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ, .context = &iov};
    struct fid_mr *region, *other;
    OK(fi_mr_regattr(b->domain, &attributes, 0, &region));
    OK(fi_mr_regv(b->domain, &iov, 1, FI_REMOTE_WRITE, 0, 0, 0, &other, NULL));
    if (fi_mr_key(region) == fi_mr_key(other) || region->fid.context != &iov)
        check_fail("keys %#lx and %#lx, context %p", fi_mr_key(region), fi_mr_key(other), region->fid.context);
    check_int("two pieces", -FI_EINVAL, fi_mr_regv(b->domain, &iov, 2, FI_SEND, 0, 0, 0, &region, NULL));
    check_int("memory that is not there", -FI_EFAULT,
              fi_mr_reg(b->domain, (void *)4096, 4096, FI_REMOTE_WRITE, 0, 0, 0, &region, NULL));
    check_int("a domain with regions", -FI_EBUSY, fi_close(&b->domain->fid));
    OK(fi_close(&region->fid));
    OK(fi_close(&other->fid));
}

int main(void) {
    check_case("endpoints open");
    open_endpoints();
    target = malloc(ROOM), source = malloc(ROOM), sink = malloc(ROOM), model = malloc(ROOM);
    memset(target, 0, ROOM); // MR_ALLOCATED
    struct fid_mr *region = registered(b, target, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE);
    key = fi_mr_key(region);
    check_case("memory is registered with a domain");
    regions();
    check_case("fences before there is a connection");
    fenced_at_first();
    for (int i = 1; i <= 3; i++) {
        // By both endpoints of the target's domain, and by the one with itself.
        struct endpoint *end = i == 3 ? b : a;
        int number = i == 3 ? 1 : i;
        fi_addr_t to = end->to[number];
        check_case("sizes");
        sizes(end, to);
        check_case("short pieces");
        pieces(end, to, 500);
        check_case("long pieces");
        pieces(end, to, 60000);
        check_case("injected writes");
        injected(end, to);
        check_case("remote CQ data");
        with_data(end, number);
        check_case("selective completion and counters");
        selective(end, to);
        check_case("order");
        in_order(end, to);
        check_case("fences");
        fenced(end, number);
    }
    check_case("random writes and reads");
    random_ones();
    OK(fi_close(&region->fid));
    close_endpoints();
    return check_finish();
}
