// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Communicators in hundreds with traffic in each, hundreds alive at once, splits with reversed ranks, equal messages in
// different communicators, intercommunicators and their collectives, and neighbourhoods. Runs with 2 or more ranks;
// with an argument, 1 rank is enough.
//
// usage: communicators [--many|--sessions]
//   --many      tens of thousands of communicators are alive at once
//   --sessions  communicators made from groups of MPI sessions, which each process has at another place in its table,
//               carry messages around every protocol limit, collectives and duplicates; later sessions make them again.
//               Skipped where MPI has no sessions (Open MPI 4.1)
#include "check.h"

enum { LONGEST = 70000 };

static int rank, size;

// A ring message of `bytes` and a sum over `comm`; errors name ranks of `comm`.
static void traffic_in(MPI_Comm comm, int bytes, int number) {
    static unsigned char out[LONGEST], in[LONGEST];
    int me, members, sum = 0, mine;
    MPI_OK(MPI_Comm_rank(comm, &me));
    MPI_OK(MPI_Comm_size(comm, &members));
    check_ring(comm, number % 100, out, in, bytes, number);
    mine = me + number;
    MPI_OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm));
    check_int("sum over the communicator", members * (members - 1) / 2 + members * number, sum);
}

static void made_and_freed(int rounds) {
    check_case("hundreds_of_duplicates_made_used_and_freed");
    for (int i = 0; i < rounds; i++) {
        MPI_Comm comm = check_dup(MPI_COMM_WORLD);
        traffic_in(comm, i % 10 == 0 ? LONGEST : i * 37 % 3000, i);
        MPI_OK(MPI_Comm_free(&comm));
        check_true("freed communicator is null", comm == MPI_COMM_NULL);
    }
}

static void split_every_way(int rounds) {
    check_case("splits_by_colour_with_ranks_reversed");
    for (int i = 0; i < rounds; i++) {
        int colours = 1 + i % size, colour = rank % colours, me, members, expected_size = 0, expected_rank = 0;
        MPI_Comm comm;
        MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, colour, -rank, &comm));
        MPI_OK(MPI_Comm_rank(comm, &me));
        MPI_OK(MPI_Comm_size(comm, &members));
        for (int r = 0; r < size; r++)
            if (r % colours == colour) {
                expected_size++;
                expected_rank += r > rank;
            }
        check_int("size of the part", expected_size, members);
        check_int("rank in the part", expected_rank, me);
        traffic_in(comm, 8 + i * 101 % 20000, i);
        MPI_OK(MPI_Comm_free(&comm));
    }

    check_case("a_rank_without_colour_stays_out");
    for (int out = 0; out < size; out++) {
        MPI_Comm comm;
        MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, rank == out ? MPI_UNDEFINED : 0, rank, &comm));
        check_true("communicator is null for the rank left out", (comm == MPI_COMM_NULL) == (rank == out));
        if (comm != MPI_COMM_NULL) {
            traffic_in(comm, 500, out);
            MPI_OK(MPI_Comm_free(&comm));
        }
    }
}

// Messages with one tag from one sender, in many communicators at once, received in another order than sent.
static void alive_at_once(int count) {
    MPI_Comm *comms = check_alloc((size_t)count * sizeof *comms);
    MPI_Request *requests = check_alloc(2 * (size_t)count * sizeof *requests);
    int *out = check_alloc((size_t)count * sizeof *out), *in = check_alloc((size_t)count * sizeof *in);
    check_case("messages_of_communicators_alive_at_once_stay_apart");
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_Comm_dup(i == 0 || i % 3 ? MPI_COMM_WORLD : comms[i - 1], &comms[i]));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++) {
            out[i] = rank * 1000000 + round * 10000 + i;
            MPI_OK(MPI_Isend(&out[i], 1, MPI_INT, right, 7, comms[i], &requests[i]));
        }
        for (int k = 0; k < count; k++) {
            int i = round == 0 ? count - 1 - k : round == 1 ? k : (k + count / 2) % count;
            MPI_OK(MPI_Irecv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], &requests[count + i]));
        }
        MPI_OK(MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < count; i++)
            check_int("message of the communicator", left * 1000000 + round * 10000 + i, in[i]);
    }
    for (int i = 0; i < count; i += 2)
        MPI_OK(MPI_Comm_free(&comms[i]));
    for (int i = 1; i < count; i += 2) {
        if (i < 20)
            traffic_in(comms[i], 100, i); // still works with its neighbours gone
        MPI_OK(MPI_Comm_free(&comms[i]));
    }
    free(comms);
    free(requests);
    free(out);
    free(in);
}

// Stock ob1 has up to 65,000.
static void very_many_alive_at_once(int count) {
    MPI_Comm *comms = check_alloc((size_t)count * sizeof *comms);
    check_case("%d_communicators_at_once", count);
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (int i = 0; i < count; i += 1000)
        traffic_in(comms[i], 4, i);
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_Comm_free(&comms[i]));
    free(comms);
}

static void groups(int rounds) {
    check_case("communicators_of_groups");
    for (int i = 0; i < rounds; i++) {
        int first = i % size, last = size - 1, range[1][3] = {{last, first, -1}};
        MPI_Group world, part;
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
        MPI_OK(MPI_Group_range_incl(world, 1, range, &part));
        if (rank >= first) // collective over the group alone
            MPI_OK(MPI_Comm_create_group(MPI_COMM_WORLD, part, i, &comm));
        if (comm != MPI_COMM_NULL) {
            int me;
            MPI_OK(MPI_Comm_rank(comm, &me));
            check_int("rank in the group", last - rank, me);
            traffic_in(comm, 3000, i);
            MPI_OK(MPI_Comm_free(&comm));
        }
        MPI_OK(MPI_Group_free(&part));
        MPI_OK(MPI_Group_free(&world));
    }
}

// Intercommunicators have the even ranks on one side, the odd ones on the other; traffic.c has messages between them.
static void intercommunicators(int rounds) {
    check_case("intercommunicators_made_used_merged_and_freed");
    for (int round = 0; round < rounds; round++) {
        MPI_Comm side, inter, whole;
        int side_rank, others, sum = 0, expected = 0, high, root, word;
        MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &side));
        MPI_OK(MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, 1 - rank % 2, round, &inter));
        MPI_OK(MPI_Comm_rank(side, &side_rank));
        MPI_OK(MPI_Comm_remote_size(inter, &others));
        check_int("ranks of the other side", rank % 2 ? (size + 1) / 2 : size / 2, others);
        MPI_OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter)); // gives the sum of the other side
        for (int r = 1 - rank % 2; r < size; r += 2)
            expected += r;
        check_int("sum of the other side", expected, sum);
        root = rank % 2 ? 0 : side_rank == 0 ? MPI_ROOT : MPI_PROC_NULL; // even rank 0 to all odd ones
        word = rank == 0 ? 4711 + round : 0;
        MPI_OK(MPI_Bcast(&word, 1, MPI_INT, root, inter));
        if (rank % 2 || rank == 0)
            check_int("word from the other side", 4711 + round, word);

        high = round % 2 ? rank % 2 : 1 - rank % 2;
        MPI_OK(MPI_Intercomm_merge(inter, high, &whole));
        traffic_in(whole, 5000, round);
        MPI_OK(MPI_Comm_free(&whole));
        MPI_OK(MPI_Comm_free(&inter));
        MPI_OK(MPI_Comm_free(&side));
    }
}

// A periodic grid: each rank swaps a long item with both neighbours of each dimension.
static void neighbourhoods(void) {
    enum { COUNT = 3000 };
    int dims[2] = {0, 0}, periods[2] = {1, 1}, me, around[4];
    int *out = check_alloc(4 * COUNT * sizeof *out), *in = check_alloc(4 * COUNT * sizeof *in);
    MPI_Comm grid;
    check_case("neighbours_of_a_periodic_grid_swap_items");
    MPI_OK(MPI_Dims_create(size, 2, dims));
    MPI_OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid));
    MPI_OK(MPI_Comm_rank(grid, &me));
    for (int d = 0; d < 2; d++)
        MPI_OK(MPI_Cart_shift(grid, d, 1, &around[2 * d], &around[2 * d + 1]));
    for (int i = 0; i < COUNT; i++)
        out[i] = me * 100000 + i;
    MPI_OK(MPI_Neighbor_allgather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, grid));
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < COUNT; i++)
            if (in[n * COUNT + i] != around[n] * 100000 + i)
                check_fail("item %d of neighbour %d: expected %d, got %d", i, n, around[n] * 100000 + i,
                           in[n * COUNT + i]);
    MPI_OK(MPI_Comm_free(&grid));
    free(out);
    free(in);
}

#ifdef MPI_SESSION_NULL
static void around_the_ring(MPI_Comm one, MPI_Comm other, int bytes) {
    MPI_Request requests[4];
    int next, previous, me = check_neighbours(one, &next, &previous);
    size_t room = (size_t)bytes + 1;
    unsigned char *out = check_alloc(room), *first = check_alloc(room), *second = check_alloc(room);
    pattern_fill(out, (size_t)bytes, (uint64_t)me);
    MPI_OK(MPI_Irecv(first, bytes, MPI_BYTE, previous, 5, one, &requests[0]));
    MPI_OK(MPI_Irecv(second, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &requests[1]));
    MPI_OK(MPI_Isend(out, bytes, MPI_BYTE, next, 5, one, &requests[2]));
    MPI_OK(MPI_Issend(out, bytes, MPI_BYTE, next, 6, other, &requests[3]));
    MPI_OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    check_true("the message", pattern_mismatch(first, (size_t)bytes, (uint64_t)previous) == (size_t)bytes);
    check_true("the synchronous message", pattern_mismatch(second, (size_t)bytes, (uint64_t)previous) == (size_t)bytes);
    free(out);
    free(first);
    free(second);
}

static void a_session(int round) {
    static const int sizes[] = {0, 8, 4095, 12285, 100002, 1000006};
    MPI_Session session;
    MPI_Group world, self;
    MPI_Comm own = MPI_COMM_NULL, one, other, copy;
    MPI_OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    if ((check.rank + round) % 2 == 1) { // the next ones get another place here than on other ranks
        MPI_OK(MPI_Group_from_session_pset(session, "mpi://SELF", &self));
        MPI_OK(MPI_Comm_create_from_group(self, "own", MPI_INFO_NULL, MPI_ERRORS_RETURN, &own));
        MPI_OK(MPI_Group_free(&self));
    }
    MPI_OK(MPI_Comm_create_from_group(world, "one", MPI_INFO_NULL, MPI_ERRORS_RETURN, &one));
    MPI_OK(MPI_Comm_create_from_group(world, "other", MPI_INFO_NULL, MPI_ERRORS_RETURN, &other));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        around_the_ring(one, other, sizes[i]);
    MPI_OK(MPI_Comm_dup(one, &copy));
    around_the_ring(copy, one, 77);
    int sum = 0, term = check.rank + 1;
    MPI_OK(MPI_Allreduce(&term, &sum, 1, MPI_INT, MPI_SUM, copy));
    check_int("the sum over a duplicate", check.size * (check.size + 1) / 2, sum);
    MPI_OK(MPI_Comm_free(&copy));
    MPI_OK(MPI_Comm_free(&one));
    MPI_OK(MPI_Comm_free(&other));
    if (own != MPI_COMM_NULL)
        MPI_OK(MPI_Comm_free(&own));
    MPI_OK(MPI_Group_free(&world));
    MPI_OK(MPI_Session_finalize(&session));
}
#endif

int main(int argc, char **argv) {
    bool many = check_flag(argc, argv, "--many"), sessions = check_flag(argc, argv, "--sessions");
    check_start(&argc, &argv, many || sessions ? 1 : 2);
    check_no_more(argc);
    rank = check.rank, size = check.size;
    if (many) {
        very_many_alive_at_once(scaled(20000, 4000));
        return check_finish();
    }
    if (sessions) {
#ifdef MPI_SESSION_NULL
        check_case("communicators_without_a_parent_carry_messages");
        for (int round = 0; round < 3; round++)
            a_session(round);
#else
        check_skip("communicators_without_a_parent_carry_messages", "this MPI has no sessions");
#endif
        return check_finish();
    }
    int crowd = size > 4 ? 2 : 1;
    made_and_freed(scaled(300 / crowd, 10));
    split_every_way(scaled(150 / crowd, 10));
    alive_at_once(scaled(200 / crowd, 10));
    groups(scaled(40 / crowd, 4));
    intercommunicators(scaled(40 / crowd, 4));
    neighbourhoods();
    return check_finish();
}
