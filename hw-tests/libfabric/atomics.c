// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Atomic operations: each call, every type and operation that the provider says it has against C's own arithmetic,
// long ones and several pieces, counters, selective completion, injection, fences, refused ones, and two endpoints that
// change one word at once. With a peer's memory, and with the endpoint's own.
//
// usage: atomics [--by-adapter | --by-nobody]
//   --by-adapter  the adapter does them, with one element of 8 bytes, and the target makes no progress
//   --by-nobody   the adapter should, and cannot
#define CAPABILITIES (FI_RMA | FI_ATOMIC | FI_TAGGED | FI_FENCE | FI_SOURCE)
#include "one_sided.h"
#include <complex.h>
#include <rdma/fi_atomic.h>

enum { ROOM = 1 << 21, ELEMENTS = 37 };

static bool by_adapter;
static unsigned char *target, *operand, *compared, *result, *model;
static uint64_t key; // of the whole target
static struct fi_context ctx[KEPT];

static uint64_t at(size_t offset) { return (uintptr_t)target + offset; }

static void check_entry(const struct fi_cq_tagged_entry *entry, void *context, uint64_t flags) {
    check_int("flags", (long long)(FI_ATOMIC | flags), (long long)entry->flags);
    if (entry->op_context != context)
        check_fail("context %p, not %p", entry->op_context, context);
}

// What C makes of an element, by type: all numbers, those with an order, those with bits.
#define OF_NUMBER(T, t, o, c)                                                                                          \
    case FI_SUM: t = (T)(t + o); break;                                                                                \
    case FI_PROD: t = (T)(t * o); break;                                                                               \
    case FI_LOR: t = (T)(t != 0 || o != 0); break;                                                                     \
    case FI_LAND: t = (T)(t != 0 && o != 0); break;                                                                    \
    case FI_LXOR: t = (T)((t != 0) != (o != 0)); break;                                                                \
    case FI_ATOMIC_READ: break;                                                                                        \
    case FI_ATOMIC_WRITE: t = o; break;                                                                                \
    case FI_CSWAP: t = c == t ? o : t; break;                                                                          \
    case FI_CSWAP_NE: t = c != t ? o : t; break;
#define OF_ORDERED(T, t, o, c)                                                                                         \
    OF_NUMBER(T, t, o, c)                                                                                              \
    case FI_MIN: t = o < t ? o : t; break;                                                                             \
    case FI_MAX: t = o > t ? o : t; break;                                                                             \
    case FI_CSWAP_LE: t = c <= t ? o : t; break;                                                                       \
    case FI_CSWAP_LT: t = c < t ? o : t; break;                                                                        \
    case FI_CSWAP_GE: t = c >= t ? o : t; break;                                                                       \
    case FI_CSWAP_GT: t = c > t ? o : t; break;
#define OF_BITS(T, t, o, c)                                                                                            \
    OF_ORDERED(T, t, o, c)                                                                                             \
    case FI_BOR: t = (T)(t | o); break;                                                                                \
    case FI_BAND: t = (T)(t & o); break;                                                                               \
    case FI_BXOR: t = (T)(t ^ o); break;                                                                               \
    case FI_MSWAP: t = (T)((o & c) | (t & ~c)); break;
#define MODEL(number, T, OF)                                                                                           \
    case number:                                                                                                       \
        for (size_t i = 0; i < count; i++) {                                                                           \
            T t = ((T *)targets)[i], o = ((T *)operands)[i], c = ((T *)compares)[i];                                   \
            switch ((int)op) {                                                                                         \
                OF(T, t, o, c)                                                                                         \
            default: return 0;                                                                                         \
            }                                                                                                          \
            memcpy(targets + i * sizeof(T), &t, sizeof(T));                                                            \
            padded(type, targets + i * sizeof(T));                                                                     \
        }                                                                                                              \
        return sizeof(T);

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

// A long double has 10 bytes; the others are zero in this program.
static void padded(enum fi_datatype type, unsigned char *element) {
    if (type == FI_LONG_DOUBLE || type == FI_LONG_DOUBLE_COMPLEX)
        memset(element + 10, 0, 6);
    if (type == FI_LONG_DOUBLE_COMPLEX)
        memset(element + 26, 0, 6);
}

// Does an operation on the model. Returns the size of an element, 0 if C has no such operation.
__attribute__((optimize("wrapv"))) static size_t by_c(enum fi_datatype type, enum fi_op op, size_t count,
                                                      unsigned char *targets, void *operands, void *compares) {
    switch ((int)type) {
        MODEL(FI_INT8, int8_t, OF_BITS)
        MODEL(FI_UINT8, uint8_t, OF_BITS)
        MODEL(FI_INT16, int16_t, OF_BITS)
        MODEL(FI_UINT16, uint16_t, OF_BITS)
        MODEL(FI_INT32, int32_t, OF_BITS)
        MODEL(FI_UINT32, uint32_t, OF_BITS)
        MODEL(FI_INT64, int64_t, OF_BITS)
        MODEL(FI_UINT64, uint64_t, OF_BITS)
        MODEL(FI_INT128, int128, OF_BITS)
        MODEL(FI_UINT128, uint128, OF_BITS)
        MODEL(FI_FLOAT, float, OF_ORDERED)
        MODEL(FI_DOUBLE, double, OF_ORDERED)
        MODEL(FI_LONG_DOUBLE, long double, OF_ORDERED)
        MODEL(FI_FLOAT_COMPLEX, float complex, OF_NUMBER)
        MODEL(FI_DOUBLE_COMPLEX, double complex, OF_NUMBER)
        MODEL(FI_LONG_DOUBLE_COMPLEX, long double complex, OF_NUMBER)
    default: return 0;
    }
}

// Small numbers, of any type, so that comparisons and zeros happen; unused bytes are zero.
#define FILL(T)                                                                                                        \
    for (size_t i = 0; i < count; i++) {                                                                               \
        T value = (T)((int)below(9) - 4);                                                                              \
        memcpy(memory + i * sizeof(T), &value, sizeof(T) == sizeof(long double) && (T)0.5 != 0 ? 10 : sizeof(T));      \
    }                                                                                                                  \
    break;

static void numbers(enum fi_datatype type, unsigned char *memory, size_t count) {
    memset(memory, 0, count * 32);
    switch ((int)type) {
    case FI_FLOAT: FILL(float)
    case FI_DOUBLE: FILL(double)
    case FI_FLOAT_COMPLEX: numbers(FI_FLOAT, memory, 2 * count); break;
    case FI_DOUBLE_COMPLEX: numbers(FI_DOUBLE, memory, 2 * count); break;
    case FI_LONG_DOUBLE: FILL(long double)
    case FI_LONG_DOUBLE_COMPLEX: numbers(FI_LONG_DOUBLE, memory, 2 * count); break;
    default: // integers of any size
        fill(memory, count * 16);
        for (size_t i = 0; i < count * 16; i++)
            memory[i] &= 3;
    }
}

enum calls { BASE, FETCH, COMPARE, CALLS };
static const uint64_t queried[] = {0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};

static int valid(struct endpoint *end, enum calls calls, enum fi_datatype type, enum fi_op op, size_t *count) {
    return calls == BASE    ? fi_atomicvalid(end->ep, type, op, count)
           : calls == FETCH ? fi_fetch_atomicvalid(end->ep, type, op, count)
                            : fi_compare_atomicvalid(end->ep, type, op, count);
}

static long start(struct endpoint *end, fi_addr_t to, enum calls calls, enum fi_datatype type, enum fi_op op,
                  size_t count, size_t offset, void *context) {
    return calls == BASE ? fi_atomic(end->ep, operand, count, NULL, to, at(offset), key, type, op, context)
           : calls == FETCH
               ? fi_fetch_atomic(end->ep, op == FI_ATOMIC_READ ? NULL : operand, count, NULL, result, NULL, to,
                                 at(offset), key, type, op, context)
               : fi_compare_atomic(end->ep, operand, count, NULL, compared, NULL, result, NULL, to, at(offset), key,
                                   type, op, context);
}

// Every type and operation, aligned and not, of some elements.
static void arithmetic(struct endpoint *end, fi_addr_t to) {
    int known = 0;
    size_t elements = by_adapter ? 1 : ELEMENTS, offsets = by_adapter ? 1 : 2;
    for (int type = FI_INT8; type <= FI_UINT128 + 2; type++)
        for (int op = FI_MIN; op <= FI_ATOMIC_OP_LAST; op++)
            for (int calls = BASE; calls < CALLS; calls++) {
                bool is_theirs = op > FI_MSWAP               ? false
                                 : op >= FI_CSWAP            ? calls == COMPARE
                                 : op == FI_ATOMIC_READ      ? calls == FETCH
                                                             : calls != COMPARE;
                unsigned char none[32] = {0};
                size_t size = by_c((enum fi_datatype)type, (enum fi_op)op, 1, none, none, none), most = 0;
                bool has = is_theirs && (by_adapter ? size == 8 : size != 0);
                int code = valid(end, (enum calls)calls, (enum fi_datatype)type, (enum fi_op)op, &most);
                struct fi_atomic_attr of;
                snprintf(check.name, sizeof check.name, "type %d, operation %d, calls %d", type, op, calls);
                check_int("it is valid", has ? 0 : -FI_EOPNOTSUPP, code);
                check_int("it is known", code, fi_query_atomic(end->domain, type, op, &of, queried[calls]));
                if (!has) {
                    check_int("a call", -FI_EOPNOTSUPP,
                              start(end, to, (enum calls)calls, (enum fi_datatype)type, (enum fi_op)op, 1, 0, NULL));
                    continue;
                }
                check_int("size", (long long)size, (long long)of.size);
                check_int("count", (long long)most, (long long)of.count);
                known++;
                for (size_t offset = 64; offset < 64 + offsets; offset++) {
                    unsigned char *targets = model + 4096, *old = model;
                    numbers((enum fi_datatype)type, targets, elements);
                    numbers((enum fi_datatype)type, operand, elements);
                    numbers((enum fi_datatype)type, compared, elements);
                    memset(target, 7, 4096);
                    memcpy(target + offset, targets, elements * size);
                    memcpy(old, targets, elements * size);
                    by_c((enum fi_datatype)type, (enum fi_op)op, elements, targets, operand, compared);
                    forget();
                    RETRIED(start(end, to, (enum calls)calls, (enum fi_datatype)type, (enum fi_op)op, elements, offset,
                                  &ctx[0]));
                    await(end, 1);
                    check_int("failures", 0, end->failed);
                    check_entry(&end->entries[0], &ctx[0], calls == BASE ? FI_WRITE : FI_READ);
                    check_same("the targets", targets, target + offset, elements * size);
                    if (calls != BASE)
                        check_same("the old values", old, result, elements * size);
                    check_int("the byte before", 7, target[offset - 1]);
                    check_int("the byte behind", 7, target[offset + elements * size]);
                }
            }
    snprintf(check.name, sizeof check.name, "types and operations");
    if (by_adapter)
        check_int("operations", 2 * (11 + 12 + 7) + (8 + 9 + 6) + (6 + 7 + 2), known);
    else
        check_int("operations", 10 * (11 + 12 + 7) + 3 * (8 + 9 + 6) + 3 * (6 + 7 + 2), known);
}

// Operations of all lengths, by several pieces of memory on each side.
static void pieces(struct endpoint *end, fi_addr_t to) {
    size_t most = 0;
    OK(fi_fetch_atomicvalid(end->ep, FI_INT64, FI_SUM, &most));
    for (int round = 0; round < 60; round++) {
        size_t count = round % 20 == 0 ? most : 1 + below(round % 2 ? 100 : 5000), here = count, there = count;
        struct fi_ioc operands[8], compares[8], results[8];
        struct fi_rma_ioc ranges[8];
        numbers(FI_INT64, operand, 1 << 16), numbers(FI_INT64, compared, 1 << 16), numbers(FI_INT64, target, 1 << 16);
        memcpy(model, target, ROOM);
        memset(result, 9, ROOM);
        size_t done = 0, gone = 0;
        for (int i = 0; i < 8; i++) {
            size_t now = i == 7 ? here : below(here + 1), far = i == 7 ? there : below(there + 1);
            operands[i] = (struct fi_ioc){operand + done * 8, now};
            compares[i] = (struct fi_ioc){compared + done * 8, now};
            results[7 - i] = (struct fi_ioc){result + (count - gone - far) * 8, far};
            ranges[i] = (struct fi_rma_ioc){at(gone * 8), far, key};
            done += now, gone += far, here -= now, there -= far;
        }
        struct fi_msg_atomic message = {.msg_iov = operands, .iov_count = 8, .addr = to, .rma_iov = ranges,
                                        .rma_iov_count = 8, .datatype = FI_INT64, .op = FI_SUM, .context = &ctx[1]};
        forget();
        unsigned char *expected = model;
        if (round % 3 == 0) {
            RETRIED(fi_atomicmsg(end->ep, &message, FI_COMPLETION));
        } else if (round % 3 == 1) {
            RETRIED(fi_fetch_atomicmsg(end->ep, &message, results, NULL, 8, FI_COMPLETION));
        } else {
            message.op = FI_CSWAP_LE;
            RETRIED(fi_compare_atomicmsg(end->ep, &message, compares, NULL, 8, results, NULL, 8,
                                         FI_COMPLETION | FI_DELIVERY_COMPLETE));
        }
        await(end, 1);
        check_int("failures", 0, end->failed);
        check_entry(&end->entries[0], &ctx[1], round % 3 ? FI_READ : FI_WRITE);
        size_t offset = 0;
        for (int i = 0; i < 8 && round % 3; i++) {
            check_same("old values", expected + offset * 8, results[i].addr, results[i].count * 8);
            offset += results[i].count;
        }
        by_c(FI_INT64, message.op, count, model, operand, compared);
        check_same("the targets", model, target, ROOM);
        // The same calls with one range.
        RETRIED(fi_atomicv(end->ep, operands, NULL, 8, to, at(0), key, FI_INT64, FI_SUM, &ctx[2]));
        await(end, 2);
        by_c(FI_INT64, FI_SUM, count, model, operand, compared);
        check_same("the targets", model, target, ROOM);
        RETRIED(fi_fetch_atomicv(end->ep, operands, NULL, 8, results, NULL, 8, to, at(0), key, FI_INT64, FI_BXOR,
                                 &ctx[2]));
        await(end, 3);
        by_c(FI_INT64, FI_BXOR, count, model, operand, compared);
        RETRIED(fi_compare_atomicv(end->ep, operands, NULL, 8, compares, NULL, 8, results, NULL, 8, to, at(0), key,
                                   FI_INT64, FI_MSWAP, &ctx[2]));
        await(end, 4);
        offset = 0;
        for (int i = 0; i < 8; i++) {
            check_same("old values", model + offset * 8, results[i].addr, results[i].count * 8);
            offset += results[i].count;
        }
        by_c(FI_INT64, FI_MSWAP, count, model, operand, compared);
        check_same("the targets", model, target, ROOM);
        message.op = FI_SUM;
        ranges[0].count++;
        check_int("sides of different lengths", -FI_EINVAL, fi_atomicmsg(end->ep, &message, 0));
        if (check.wrong)
            return;
    }
    check_int("too long", -FI_EMSGSIZE,
              fi_atomic(end->ep, operand, most + 1, NULL, to, at(0), key, FI_INT64, FI_SUM, NULL));
}

static void counted(struct endpoint *end, fi_addr_t to) {
    uint64_t word = 1, writes = fi_cntr_read(end->writes), reads = fi_cntr_read(end->reads);
    memset(target, 0, 64);
    forget();
    for (int i = 0; i < 100; i++) {
        RETRIED(fi_inject_atomic(end->ep, &word, 1, to, at(0), key, FI_UINT64, FI_SUM));
        word = 3 - word;
    }
    while (fi_cntr_read(end->writes) < writes + 100)
        progress();
    check_int("the sum", 150, *(volatile uint64_t *)target);
    check_int("entries", 0, end->count);
    check_int("too long", -FI_EMSGSIZE, fi_inject_atomic(end->ep, operand, 513, to, at(0), key, FI_UINT64, FI_SUM));
    struct fi_ioc iov = {operand, 1}, to_result = {result, 1};
    struct fi_rma_ioc range = {at(0), 1, key};
    struct fi_msg_atomic message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &range,
                                    .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_ATOMIC_WRITE};
    for (int i = 0; i < 3; i++) {
        RETRIED(fi_atomicmsg(end->ep, &message, 0));
        RETRIED(fi_fetch_atomicmsg(end->ep, &message, &to_result, NULL, 1, 0));
        RETRIED(fi_compare_atomic(end->ep, operand, 1, NULL, compared, NULL, result, NULL, to, at(0), key, FI_UINT64,
                                  FI_CSWAP, &ctx[3]));
    }
    await(end, 3);
    check_entry(&end->entries[0], &ctx[3], FI_READ);
    while (fi_cntr_read(end->writes) < writes + 103 || fi_cntr_read(end->reads) < reads + 6)
        progress();
    check_int("entries", 3, end->count);
    check_int("errors", 0, (long long)(fi_cntr_readerr(end->writes) + fi_cntr_readerr(end->reads)));
    check_int("an unknown flag", -FI_EBADFLAGS, fi_atomicmsg(end->ep, &message, FI_PEEK));
    check_int("tagged memory", -FI_EBADFLAGS, fi_atomicmsg(end->ep, &message, FI_TAGGED));
    struct fi_atomic_attr of;
    check_int("tagged memory", -FI_EOPNOTSUPP, fi_query_atomic(end->domain, FI_INT8, FI_SUM, &of, FI_TAGGED));
    check_int("an unknown peer", -FI_EINVAL,
              fi_atomic(end->ep, operand, 1, NULL, 99, at(0), key, FI_UINT64, FI_SUM, NULL));
}

// Operations on one word, with writes and reads between them, all in flight: each sees those before it.
static void in_order(struct endpoint *end, fi_addr_t to) {
    uint64_t *seen = (uint64_t *)result, *values = (uint64_t *)operand;
    for (int round = 0; round < 30; round++) {
        forget();
        memset(target, 0, 64);
        values[0] = 1000, values[1] = 5, values[2] = 7;
        RETRIED(fi_write(end->ep, &values[0], 8, NULL, to, at(0), key, &ctx[0]));
        RETRIED(fi_fetch_atomic(end->ep, &values[1], 1, NULL, &seen[0], NULL, to, at(0), key, FI_UINT64, FI_SUM,
                                &ctx[1]));
        RETRIED(fi_atomic(end->ep, &values[2], 1, NULL, to, at(0), key, FI_UINT64, FI_PROD, &ctx[2]));
        RETRIED(fi_fetch_atomic(end->ep, NULL, 1, NULL, &seen[1], NULL, to, at(0), key, FI_UINT64,
                                FI_ATOMIC_READ, &ctx[3]));
        RETRIED(fi_read(end->ep, &seen[2], 8, NULL, to, at(0), key, &ctx[4]));
        RETRIED(fi_atomic(end->ep, &values[1], 1, NULL, to, at(0), key, FI_UINT64, FI_SUM, &ctx[5]));
        RETRIED(fi_write(end->ep, &values[1], 8, NULL, to, at(0), key, &ctx[6]));
        await(end, 7);
        check_int("failures", 0, end->failed);
        check_int("behind a write", 1000, (long long)seen[0]);
        check_int("behind atomics", 7035, (long long)seen[1]);
        check_int("a read", 7035, (long long)seen[2]);
        check_int("the last write", 5, *(volatile long long *)target);
        struct fi_ioc iov = {&values[2], 1};
        struct fi_rma_ioc range = {at(0), 1, key};
        struct fi_msg_atomic message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &range,
                                        .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM};
        RETRIED(fi_read(end->ep, &seen[3], 8, NULL, to, at(0), key, &ctx[7]));
        RETRIED(fi_atomicmsg(end->ep, &message, FI_FENCE | FI_COMPLETION));
        await(end, 9);
        check_int("before a fenced one", 5, (long long)seen[3]);
        check_int("a fenced one", 12, *(volatile long long *)target);
    }
}

// Both endpoints of a domain, and the target's program itself, increment one word: no increment is lost.
static void contended(void) {
    enum { EACH = 600 };
    static uint64_t old[2 * EACH], one = 1;
    static bool seen[3 * EACH + 1];
    memset(target, 0, 64);
    forget();
    for (int i = 0; i < EACH; i++) {
        RETRIED(fi_fetch_atomic(a->ep, &one, 1, NULL, &old[i], NULL, a->to[1], at(8), key, FI_UINT64, FI_SUM, NULL));
        RETRIED(fi_fetch_atomic(c->ep, &one, 1, NULL, &old[EACH + i], NULL, c->to[1], at(8), key, FI_UINT64,
                                FI_SUM, NULL));
        if (!by_adapter) // whose operations are not atomic with a processor's
            __atomic_fetch_add((uint64_t *)(target + 8), 1, __ATOMIC_SEQ_CST);
    }
    await(a, EACH);
    await(c, EACH);
    check_int("failures", 0, a->failed + c->failed);
    check_int("the sum", by_adapter ? 2 * EACH : 3 * EACH, *(volatile long long *)(target + 8));
    for (int i = 0; i < 2 * EACH; i++) {
        if (old[i] > 3 * EACH || seen[old[i]])
            check_fail("old value %d is %ld", i, (long)old[i]);
        seen[old[i] % (3 * EACH + 1)] = true;
    }
}

// The target refuses it: it touches nothing, ends with an error of its own, and harms no other operation.
static void refused(struct endpoint *end, fi_addr_t to) {
    struct fid_mr *readable = registered(b, target, 4096, FI_REMOTE_READ);
    struct fid_mr *writable = registered(b, target, 4096, FI_REMOTE_WRITE);
    uint64_t whole = key, read = fi_mr_key(readable), write = fi_mr_key(writable);
    struct {
        enum calls calls;
        uint64_t key, address;
        size_t count;
        enum fi_op op;
        int error;
    } cases[] = {
        {BASE, read + 77777, at(0), 1, FI_SUM, FI_EACCES},
        {BASE, whole + (1ull << 32), at(0), 1, FI_SUM, FI_EACCES},
        {BASE, read, at(0), 1, FI_SUM, FI_EACCES},
        {FETCH, read, at(0), 1, FI_SUM, FI_EACCES},
        {FETCH, write, at(0), 1, FI_SUM, FI_EACCES},
        {FETCH, write, at(0), 1, FI_ATOMIC_READ, FI_EACCES},
        {COMPARE, write, at(0), 1, FI_CSWAP, FI_EACCES},
        {BASE, write, at(8), 512, FI_SUM, FI_EACCES},
        {BASE, whole, at(8), 1 << 17, FI_SUM, 0},
        {BASE, whole, at(ROOM - 8 * (1 << 17) + 8), 1 << 17, FI_SUM, FI_EACCES},
        {BASE, write, at(0) - 8, 1, FI_SUM, FI_EACCES},
        {FETCH, read, at(8), 511, FI_ATOMIC_READ, 0},
        {BASE, write, at(8), 511, FI_SUM, 0},
    };
    memset(operand, 0, ROOM), memset(compared, 0, ROOM), memset(target, 0, ROOM);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(operand, cases[i].error ? 3 : 0, ROOM);
        forget();
        key = cases[i].key;
        size_t offset = cases[i].address - at(0);
        RETRIED(start(end, to, cases[i].calls, FI_UINT64, cases[i].op, cases[i].count, offset, &ctx[i]));
        await(end, 1);
        check_int("failures", cases[i].error != 0, end->failed);
        if (end->failed) {
            check_int("error", cases[i].error, end->failures[0].err);
            check_int("flags", (long long)(FI_ATOMIC | (cases[i].calls == BASE ? FI_WRITE : FI_READ)),
                      (long long)end->failures[0].flags);
            if (end->failures[0].op_context != &ctx[i])
                check_fail("context %p", end->failures[0].op_context);
        }
        for (size_t byte = 0; byte < ROOM; byte++)
            if (target[byte] != 0) {
                check_fail("case %zu touched byte %zu", i, byte);
                break;
            }
    }
    key = whole;
    OK(fi_close(&readable->fid));
    OK(fi_close(&writable->fid));
}

// Counts with both endpoints by compare-and-swaps only: each takes several requests.
static void exchanged(void) {
    enum { EACH = 200 };
    static double one = 1;
    memset(target, 0, 64);
    forget();
    for (int i = 0; i < EACH; i++) {
        RETRIED(fi_atomic(a->ep, &one, 1, NULL, a->to[1], at(16), key, FI_DOUBLE, FI_SUM, NULL));
        RETRIED(fi_atomic(c->ep, &one, 1, NULL, c->to[1], at(16), key, FI_DOUBLE, FI_SUM, NULL));
    }
    await(a, EACH);
    await(c, EACH);
    check_int("failures", 0, a->failed + c->failed);
    check_int("the sum", 2 * EACH, (long long)*(volatile double *)(void *)(target + 16));
}

// The target's queue is not read until the operations have ended.
static void alone(void) {
    static uint64_t values[2] = {5, 6}, old[2];
    memset(target, 0, 64);
    forget();
    OK(fi_fetch_atomic(a->ep, &values[0], 1, NULL, &old[0], NULL, a->to[1], at(0), key, FI_UINT64, FI_SUM, NULL));
    OK(fi_fetch_atomic(a->ep, &values[1], 1, NULL, &old[1], NULL, a->to[1], at(0), key, FI_UINT64, FI_ATOMIC_WRITE, NULL));
    for (int ended = 0; ended < 2;) {
        long got = fi_cq_read(a->cq, &a->entries[ended], 1);
        if (got == 1)
            ended++;
        else
            check_int("fi_cq_read", -FI_EAGAIN, got);
    }
    check_int("the sum's old value", 0, (long long)old[0]);
    check_int("the swap's old value", 5, (long long)old[1]);
    check_int("the value", 6, *(volatile long long *)(void *)target);
}

static void fails(const char *what, int error) {
    static uint64_t one = 1;
    forget();
    RETRIED(fi_atomic(a->ep, &one, 1, NULL, a->to[1], at(0), key, FI_UINT64, FI_SUM, NULL));
    await(a, 1);
    check_int(what, 1, a->failed);
    check_int(what, error, a->failures[0].err);
    check_int(what, 0, *(volatile long long *)(void *)target);
}

// Each with connections of its own, because an adapter that refuses breaks the connection.
static void never_both(const char *by_target, const char *by_peer, int error, uint64_t access) {
    open_endpoints();
    memset(target, 0, 64);
    setenv("FI_IBEX_ATOMICS", by_target, 1);
    struct fid_mr *region = registered(b, target, ROOM, access);
    key = fi_mr_key(region);
    setenv("FI_IBEX_ATOMICS", by_peer, 1);
    fails("a refused operation", error);
    OK(fi_close(&region->fid));
    close_endpoints();
}

static void wrong_ones(void) {
    static uint64_t two[2];
    check_int("two elements", -FI_EMSGSIZE,
              fi_atomic(a->ep, two, 2, NULL, a->to[1], at(0), key, FI_UINT64, FI_SUM, NULL));
    check_int("an element that is not aligned", -FI_EINVAL,
              fi_atomic(a->ep, two, 1, NULL, a->to[1], at(4), key, FI_UINT64, FI_SUM, NULL));
    struct fid_mr *writable = registered(b, target, 64, FI_REMOTE_WRITE);
    forget();
    RETRIED(fi_atomic(b->ep, two, 1, NULL, b->to[1], at(0), fi_mr_key(writable), FI_UINT64, FI_SUM, NULL));
    await(b, 1);
    check_int("of its own memory that is not to be read", FI_EACCES, b->failures[0].err);
    OK(fi_close(&writable->fid));
}

static void all_by_adapter(void) {
    for (int i = 0; i < 3; i++) {
        struct endpoint *end = &ends[i == 0 ? 0 : i == 1 ? 2 : 1];
        fi_addr_t to = end->to[1];
        check_case("types and operations");
        arithmetic(end, to);
        check_case("counters, injection and selective completion");
        counted(end, to);
        check_case("order");
        in_order(end, to);
    }
    check_case("contention");
    contended();
    exchanged();
    check_case("a target that makes no progress");
    alone();
    check_case("arguments");
    wrong_ones();
}

static int by_nobody(void) {
    check_case("an adapter without atomics");
    for (int type = FI_INT8; type <= FI_UINT128; type++)
        for (int calls = BASE; calls < CALLS; calls++) {
            size_t most;
            enum fi_op op = calls == COMPARE ? FI_CSWAP : FI_SUM;
            check_int("it is valid", -FI_EOPNOTSUPP, valid(a, (enum calls)calls, (enum fi_datatype)type, op, &most));
            check_int("a call", -FI_EOPNOTSUPP, start(a, a->to[1], (enum calls)calls, (enum fi_datatype)type, op, 1, 0, NULL));
        }
    close_endpoints();
    return check_finish();
}

int main(int argc, char **argv) {
    by_adapter = argc > 1;
    if (by_adapter)
        setenv("FI_IBEX_ATOMICS", "adapter", 1);
    check_case("endpoints open");
    open_endpoints();
    check_int("atomics", FI_ATOMIC, (long long)(info->caps & FI_ATOMIC));
    uint64_t order = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
    check_int("order", (long long)order, (long long)(info->tx_attr->msg_order & order));
    unsigned char **const all[] = {&target, &operand, &compared, &result, &model};
    for (int i = 0; i < 5; i++) {
        *all[i] = malloc(ROOM);
        memset(*all[i], 0, ROOM);
    }
    if (by_adapter && strcmp(argv[1], "--by-nobody") == 0)
        return by_nobody();
    struct fid_mr *region = registered(b, target, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE);
    key = fi_mr_key(region);
    if (by_adapter) {
        all_by_adapter();
        OK(fi_close(&region->fid));
        close_endpoints();
        uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;
        check_case("never both kinds on one region");
        never_both("adapter", "processor", FI_EOPNOTSUPP, both);
        never_both("processor", "adapter", FI_EACCES, both);
        never_both("adapter", "adapter", FI_EACCES, FI_REMOTE_WRITE);
        return check_finish();
    }
    for (int i = 0; i < 3; i++) {
        // By an endpoint of another domain, by one of the target's domain, and by the target itself.
        struct endpoint *end = &ends[i == 0 ? 0 : i == 1 ? 2 : 1];
        fi_addr_t to = end->to[1];
        check_case("types and operations");
        arithmetic(end, to);
        check_case("pieces of memory");
        pieces(end, to);
        check_case("counters, injection and selective completion");
        counted(end, to);
        check_case("order");
        in_order(end, to);
        check_case("refused operations");
        refused(end, to);
    }
    check_case("contention");
    contended();
    OK(fi_close(&region->fid));
    close_endpoints();
    return check_finish();
}
