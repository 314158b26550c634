// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Every collective operation, blocking and nonblocking, with counts from 0 to many, from several roots, also in place;
// then many nonblocking ones in flight beside messages. A value shows its rank and index, so each result is known
// exactly. Runs with 1 or more ranks.
#include "check.h"

typedef long long number;

enum { MOST = 16384 }; // items per rank of the longest operations

static int rank, size;
static number *in, *out; // room for MOST items of every rank, twice

// Calls the blocking form, or starts the nonblocking one and waits for it.
#define COLLECTIVE(nonblocking, call, icall, ...)                                                                      \
    do {                                                                                                               \
        if (nonblocking) {                                                                                             \
            MPI_Request request;                                                                                       \
            MPI_OK(icall(__VA_ARGS__, &request));                                                                      \
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));                                                             \
        } else {                                                                                                       \
            MPI_OK(call(__VA_ARGS__));                                                                                 \
        }                                                                                                              \
    } while (0)

// The value of `from` at index `i`; `to` where it differs by receiver.
static number value(int from, int to, int i) { return (number)from * 1000003 + (number)to * 7919 + (number)i * 31 + 1; }

static void fill(number *at, int count, int from, int to) {
    for (int i = 0; i < count; i++)
        at[i] = value(from, to, i);
}

static void expect(const char *what, const number *at, int count, int from, int to) {
    for (int i = 0; i < count; i++)
        if (at[i] != value(from, to, i))
            return check_fail("%s, item %d of %d from rank %d: expected %lld, got %lld", what, i, count, from,
                              value(from, to, i), at[i]);
}

static number sum(int ranks, int to, int i) {
    return (number)ranks * (ranks - 1) / 2 * 1000003 + ranks * value(0, to, i);
}

static void expect_sum(const char *what, const number *at, int count, int ranks, int to, int first) {
    for (int i = 0; i < count; i++)
        if (at[i] != sum(ranks, to, first + i))
            return check_fail("%s, item %d of %d: expected %lld, got %lld", what, i, count, sum(ranks, to, first + i),
                              at[i]);
}

static void clear(number *at, int count) { memset(at, 0xee, (size_t)count * sizeof *at); }

static void rooted(bool nb, int count, int root) {
    if (rank == root)
        fill(out, count, root, 0);
    else
        clear(out, count);
    COLLECTIVE(nb, MPI_Bcast, MPI_Ibcast, out, count, MPI_LONG_LONG, root, MPI_COMM_WORLD);
    expect("bcast", out, count, root, 0);

    fill(in, count, rank, 0);
    clear(out, count);
    COLLECTIVE(nb, MPI_Reduce, MPI_Ireduce, in, out, count, MPI_LONG_LONG, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root)
        expect_sum("reduce", out, count, size, 0, 0);

    clear(out, count * size);
    COLLECTIVE(nb, MPI_Gather, MPI_Igather, in, count, MPI_LONG_LONG, out, count, MPI_LONG_LONG, root, MPI_COMM_WORLD);
    for (int r = 0; rank == root && r < size; r++)
        expect("gather", out + (size_t)r * (size_t)count, count, r, 0);

    for (int r = 0; rank == root && r < size; r++)
        fill(out + (size_t)r * (size_t)count, count, root, r);
    clear(in, count);
    COLLECTIVE(nb, MPI_Scatter, MPI_Iscatter, out, count, MPI_LONG_LONG, in, count, MPI_LONG_LONG, root,
               MPI_COMM_WORLD);
    expect("scatter", in, count, root, rank);
}

// Rank r has count + r items (none when r % 3 == 2), with a gap of one item between.
static int uneven(int count, int r) { return r % 3 == 2 ? 0 : count + r; }

static void rooted_uneven(bool nb, int count, int root) {
    size_t bytes = (size_t)size * sizeof(int);
    int *counts = check_alloc(bytes), *places = check_alloc(bytes), at = 0;
    for (int r = 0; r < size; r++, at += counts[r - 1] + 1)
        counts[r] = uneven(count, r), places[r] = at;
    fill(in, counts[rank], rank, 0);
    clear(out, at);
    COLLECTIVE(nb, MPI_Gatherv, MPI_Igatherv, in, counts[rank], MPI_LONG_LONG, out, counts, places, MPI_LONG_LONG, root,
               MPI_COMM_WORLD);
    for (int r = 0; rank == root && r < size; r++) {
        expect("gatherv", out + places[r], counts[r], r, 0);
        check_true("gap after a rank's items untouched", (unsigned char)out[places[r] + counts[r]] == 0xee);
        fill(out + places[r], counts[r], root, r);
    }
    clear(in, counts[rank] + 1);
    COLLECTIVE(nb, MPI_Scatterv, MPI_Iscatterv, out, counts, places, MPI_LONG_LONG, in, counts[rank], MPI_LONG_LONG,
               root, MPI_COMM_WORLD);
    expect("scatterv", in, counts[rank], root, rank);
    check_true("item after the scattered ones untouched", (unsigned char)in[counts[rank]] == 0xee);
    fill(in, counts[rank], rank, 0);
    clear(out, at);
    COLLECTIVE(nb, MPI_Allgatherv, MPI_Iallgatherv, in, counts[rank], MPI_LONG_LONG, out, counts, places, MPI_LONG_LONG,
               MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        expect("allgatherv", out + places[r], counts[r], r, 0);
    free(counts);
    free(places);
}

static void all_to_all(bool nb, int count) {
    fill(in, count, rank, 0);
    clear(out, count * size);
    COLLECTIVE(nb, MPI_Allgather, MPI_Iallgather, in, count, MPI_LONG_LONG, out, count, MPI_LONG_LONG, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        expect("allgather", out + (size_t)r * (size_t)count, count, r, 0);

    for (int r = 0; r < size; r++)
        fill(in + (size_t)r * (size_t)count, count, rank, r);
    clear(out, count * size);
    COLLECTIVE(nb, MPI_Alltoall, MPI_Ialltoall, in, count, MPI_LONG_LONG, out, count, MPI_LONG_LONG, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        expect("alltoall", out + (size_t)r * (size_t)count, count, r, rank);
}

// Rank a sends (a + 2b) % 5 shares of the count to rank b.
static void all_to_all_uneven(bool nb, int count) {
    size_t bytes = (size_t)size * sizeof(int);
    int *sends = check_alloc(bytes), *takes = check_alloc(bytes), *from = check_alloc(bytes), *to = check_alloc(bytes);
    MPI_Datatype *types = check_alloc((size_t)size * sizeof *types);
    int share = count / 4, sent = 0, taken = 0;
    for (int r = 0; r < size; r++) {
        sends[r] = (rank + 2 * r) % 5 * share;
        takes[r] = (r + 2 * rank) % 5 * share;
        from[r] = sent, to[r] = taken;
        fill(in + sent, sends[r], rank, r);
        sent += sends[r], taken += takes[r];
        types[r] = MPI_LONG_LONG;
    }
    clear(out, taken);
    COLLECTIVE(nb, MPI_Alltoallv, MPI_Ialltoallv, in, sends, from, MPI_LONG_LONG, out, takes, to, MPI_LONG_LONG,
               MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        expect("alltoallv", out + to[r], takes[r], r, rank);
    for (int r = 0; r < size; r++)
        from[r] *= (int)sizeof(number), to[r] *= (int)sizeof(number); // bytes
    clear(out, taken);
    COLLECTIVE(nb, MPI_Alltoallw, MPI_Ialltoallw, in, sends, from, types, out, takes, to, types, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        expect("alltoallw", out + to[r] / (int)sizeof(number), takes[r], r, rank);
    free(sends);
    free(takes);
    free(from);
    free(to);
    free(types);
}

static void reductions(bool nb, int count) {
    int *counts = check_alloc((size_t)size * sizeof *counts), first = 0, total = 0;
    fill(in, count, rank, 0);
    clear(out, count);
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    expect_sum("allreduce sum", out, count, size, 0, 0);
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, in, out, count, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
    expect("allreduce max", out, count, size - 1, 0);
    memcpy(out, in, (size_t)count * sizeof *out);
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
    expect("allreduce min in place", out, count, 0, 0);

    clear(out, count);
    COLLECTIVE(nb, MPI_Scan, MPI_Iscan, in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    expect_sum("scan", out, count, rank + 1, 0, 0);
    clear(out, count);
    COLLECTIVE(nb, MPI_Exscan, MPI_Iexscan, in, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank > 0)
        expect_sum("exscan", out, count, rank, 0, 0);

    fill(in, count * size, rank, 0);
    clear(out, count);
    COLLECTIVE(nb, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, out, count, MPI_LONG_LONG, MPI_SUM,
               MPI_COMM_WORLD);
    expect_sum("reduce_scatter_block", out, count, size, 0, rank * count);
    for (int r = 0; r < size; r++) {
        counts[r] = uneven(count / 2, r);
        if (r < rank)
            first += counts[r];
        total += counts[r];
    }
    fill(in, total, rank, 0);
    clear(out, count + size);
    COLLECTIVE(nb, MPI_Reduce_scatter, MPI_Ireduce_scatter, in, out, counts, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    expect_sum("reduce_scatter", out, counts[rank], size, 0, first);
    free(counts);
}

// (a, b) after (c, d) is (a*c, b*c + d): affine maps composed, associative and not commutative.
static void compose(void *left, void *both, int *count, MPI_Datatype *) {
    unsigned *a = left, *b = both;
    for (int i = 0; i < *count; i++, a += 2, b += 2) {
        b[1] = a[1] * b[0] + b[1];
        b[0] = a[0] * b[0];
    }
}

static void user_operation(bool nb) {
    enum { PAIRS = 3000 };
    static unsigned mine[2 * PAIRS], all[2 * PAIRS];
    MPI_Datatype pair = check_vector(1, 2, 2, MPI_UNSIGNED);
    MPI_Op op;
    check_case("%s_user_operation_in_rank_order", nb ? "nonblocking" : "blocking");
    MPI_OK(MPI_Op_create(compose, 0, &op));
    for (int i = 0; i < PAIRS; i++)
        mine[2 * i] = (unsigned)(2 * (rank + i) + 3), mine[2 * i + 1] = (unsigned)(rank * 17 + i);
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, mine, all, PAIRS, pair, op, MPI_COMM_WORLD);
    for (int i = 0; i < PAIRS; i++) {
        unsigned a = (unsigned)(2 * i + 3), b = (unsigned)i;
        for (int r = 1; r < size; r++) {
            unsigned c = (unsigned)(2 * (r + i) + 3), d = (unsigned)(r * 17 + i);
            b = b * c + d, a = a * c;
        }
        if (all[2 * i] != a || all[2 * i + 1] != b)
            check_fail("pair %d: expected (%u, %u), got (%u, %u)", i, a, b, all[2 * i], all[2 * i + 1]);
    }
    MPI_OK(MPI_Op_free(&op));
    MPI_OK(MPI_Type_free(&pair));
}

static void other_operations(bool nb) {
    struct {
        double value;
        int where;
    } mine = {(double)((rank * 7 + 3) % size), rank}, best = {-1, -1};
    unsigned bits = 1u << rank % 32, every = 0, odd = 0, seen = 0, parity = 0;
    double product = 0;
    check_case("%s_maxloc_bits_and_doubles", nb ? "nonblocking" : "blocking");
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, &mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    for (int r = size - 1; r >= 0; r--)
        if ((r * 7 + 3) % size >= best.value)
            mine.value = (r * 7 + 3) % size, mine.where = r;
    check_true("maximum and its first rank", best.value == mine.value && best.where == mine.where);
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, &bits, &every, 1, MPI_UNSIGNED, MPI_BOR, MPI_COMM_WORLD);
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, &bits, &odd, 1, MPI_UNSIGNED, MPI_BXOR, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        seen |= 1u << r % 32, parity ^= 1u << r % 32;
    check_int("bits of all ranks", seen, every);
    check_int("bits of an odd number of ranks", parity, odd);
    double factor = rank % 2 ? 0.5 : 2.0;
    COLLECTIVE(nb, MPI_Allreduce, MPI_Iallreduce, &factor, &product, 1, MPI_DOUBLE, MPI_PROD, MPI_COMM_WORLD);
    check_true("product of the factors", product == (size % 2 ? 2.0 : 1.0));
}

// Rank `last` enters late, after its synchronous sends to all others were received. No rank may leave before that.
static void barrier_holds(bool nb) {
    check_case("%s_barrier_holds_until_the_last_rank_enters", nb ? "nonblocking" : "blocking");
    for (int last = 0; last < size; last++) {
        MPI_Request token = MPI_REQUEST_NULL;
        int done = 1;
        if (rank != last)
            MPI_OK(MPI_Irecv(NULL, 0, MPI_BYTE, last, 5, MPI_COMM_WORLD, &token));
        for (int r = 0; rank == last && r < size; r++) {
            check_sleep(0.001);
            if (r != last)
                MPI_OK(MPI_Ssend(NULL, 0, MPI_BYTE, r, 5, MPI_COMM_WORLD));
        }
        COLLECTIVE(nb, MPI_Barrier, MPI_Ibarrier, MPI_COMM_WORLD);
        if (rank != last)
            MPI_OK(MPI_Test(&token, &done, MPI_STATUS_IGNORE));
        check_int("token of the last rank is here", 1, done);
        MPI_OK(MPI_Wait(&token, MPI_STATUS_IGNORE));
    }
}

static void many_in_flight(int rounds) {
    enum { EACH = 12, COUNT = 700 };
    MPI_Request requests[4 * EACH];
    number *area = check_alloc(4 * EACH * COUNT * (size_t)size * sizeof *area);
    check_case("nonblocking_operations_in_flight_together_with_messages");
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < EACH; k++) {
            number *at = area + (size_t)(4 * k * COUNT) * (size_t)size, *ring = at + 2 * COUNT * (size_t)size;
            int root = (round + k) % size;
            fill(at, COUNT, rank, k);
            MPI_OK(MPI_Iallreduce(MPI_IN_PLACE, at, COUNT, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[4 * k]));
            fill(at + COUNT, COUNT, rank, k);
            MPI_OK(MPI_Ibcast(at + COUNT, COUNT, MPI_LONG_LONG, root, MPI_COMM_WORLD, &requests[4 * k + 1]));
            fill(ring, COUNT, rank, k);
            MPI_OK(MPI_Irecv(ring + COUNT, COUNT, MPI_LONG_LONG, left, k, MPI_COMM_WORLD, &requests[4 * k + 2]));
            MPI_OK(MPI_Isend(ring, COUNT, MPI_LONG_LONG, right, k, MPI_COMM_WORLD, &requests[4 * k + 3]));
        }
        MPI_OK(MPI_Waitall(4 * EACH, requests, MPI_STATUSES_IGNORE));
        for (int k = 0; k < EACH; k++) {
            number *at = area + (size_t)(4 * k * COUNT) * (size_t)size, *ring = at + 2 * COUNT * (size_t)size;
            expect_sum("allreduce in flight", at, COUNT, size, k, 0);
            expect("bcast in flight", at + COUNT, COUNT, (round + k) % size, k);
            expect("message in flight", ring + COUNT, COUNT, left, k);
        }
    }
    free(area);
}

int main(int argc, char **argv) {
    static const int counts[] = {0, 1, 5, 129, 2500, MOST};
    check_start(&argc, &argv, 1);
    rank = check.rank, size = check.size;
    in = check_alloc(2 * MOST * (size_t)size * sizeof *in);
    out = check_alloc(2 * MOST * (size_t)size * sizeof *out);
    for (int nb = 0; nb < 2; nb++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const char *form = nb ? "nonblocking" : "blocking";
            int count = counts[c] == MOST && size > 4 ? MOST / 4 : counts[c];
            check_case("%s_rooted_collectives_of_%d_items", form, count);
            for (int root = 0; root < size; root += size > 2 ? size - 1 : 1) {
                rooted(nb, count, root);
                rooted_uneven(nb, count, root);
            }
            check_case("%s_all_to_all_collectives_of_%d_items", form, count);
            all_to_all(nb, count);
            all_to_all_uneven(nb, count);
            check_case("%s_reductions_of_%d_items", form, count);
            reductions(nb, count);
        }
        user_operation(nb);
        other_operations(nb);
        barrier_holds(nb);
    }
    many_in_flight(scaled(10, 2));
    return check_finish();
}
