// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Connections made and taken down many times within one job. Two groups meet through a port, part, and meet again; with
// `spawn`, a job starts processes, exchanges messages with them and disconnects. Traffic of all sizes is checked each
// time, also that between the original ranks. Needs 2 or more ranks, with `spawn` 1.
//
// Open MPI 4.1 with Debian's PMIx now and then hangs in `spawn`, in the child's PMIx_Init before it opens a transport;
// so the program prints how many processes it starts. `spawn` needs `mpirun --oversubscribe` or free slots, and a
// transport between jobs (not vader alone).
//
// usage: connect_cycles [ports|spawn] [--cycles N] [--children C] [--connections M]
//        (defaults 5 times IBEX_TEST_SCALE, 2, and any number)
//   --connections  `spawn` ends only when at most M connections are left: those to ended processes are given up
#include "counts.h"

enum { LONGEST = 200000, CHILD_FAILED = 1 };
static const int lengths[] = {0, 8, 1000, 12289, 70000, LONGEST};
enum { KINDS = sizeof lengths / sizeof *lengths };

static char *program;
static struct counter connected;

// Every rank on one side (`side` 0) of `inter` exchanges every size with every rank on the other (1).
static void exchange_across(MPI_Comm inter, int side) {
    int me, others;
    MPI_OK(MPI_Comm_rank(inter, &me));
    MPI_OK(MPI_Comm_remote_size(inter, &others));
    for (int k = 0; k < KINDS; k++) {
        size_t bytes = (size_t)lengths[k];
        MPI_Request *requests = check_alloc(2 * (size_t)others * sizeof *requests);
        unsigned char *out = check_alloc(bytes * (size_t)others), *in = check_alloc(bytes * (size_t)others);
        for (int r = 0; r < others; r++) {
            unsigned char *from = out + (size_t)r * bytes;
            pattern_fill(from, bytes, seed_of(2 * me + side, r, k));
            MPI_OK(MPI_Isend(from, lengths[k], MPI_BYTE, r, k, inter, &requests[r]));
            MPI_OK(MPI_Irecv(in + (size_t)r * bytes, lengths[k], MPI_BYTE, r, k, inter, &requests[others + r]));
        }
        MPI_OK(MPI_Waitall(2 * others, requests, MPI_STATUSES_IGNORE));
        for (int r = 0; r < others; r++)
            pattern_check("message across", in + (size_t)r * bytes, bytes, seed_of(2 * r + (1 - side), me, k));
        free(requests);
        free(out);
        free(in);
    }
}

static void ring_of(MPI_Comm comm, int number) {
    static unsigned char out[LONGEST], in[LONGEST];
    check_ring(comm, 3, out, in, lengths[number % KINDS], number);
}

static int child(MPI_Comm parent) {
    check_case("child");
    MPI_OK(MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN));
    ring_of(MPI_COMM_WORLD, 3);
    exchange_across(parent, 1);
    int wrong = atomic_load(&check.wrong);
    MPI_OK(MPI_Reduce(&wrong, NULL, 1, MPI_INT, MPI_SUM, 0, parent));
    MPI_OK(MPI_Comm_disconnect(&parent));
    MPI_Finalize();
    return wrong ? CHILD_FAILED : 0;
}

// Prints how many processes are started now, so that the caller can tell how many never came.
static void say_processes(int number) {
    if (check.rank == 0)
        printf("processes %d\n", number);
}

static void spawn_cycles(int cycles, int children) {
    check_case("children_spawned_talked_to_and_disconnected_%d_times", cycles);
    for (int i = 0; i < cycles; i++) {
        MPI_Comm inter;
        int *codes = check_alloc((size_t)children * sizeof *codes), wrong = 0, none = 0;
        char *no_arguments[] = {NULL};
        say_processes(children);
        MPI_OK(MPI_Comm_spawn(program, no_arguments, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes));
        MPI_OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
        for (int c = 0; c < children; c++)
            check_int("error code of a spawned process", MPI_SUCCESS, codes[c]);
        exchange_across(inter, 0);
        MPI_OK(MPI_Reduce(&none, &wrong, 1, MPI_INT, MPI_SUM, check.rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter));
        check_int("mismatches the children saw", 0, wrong);
        MPI_OK(MPI_Comm_disconnect(&inter));
        ring_of(MPI_COMM_WORLD, i);
        free(codes);
    }
}

// Waits, in calls that make progress, until at most this many connections are left.
static void check_connections(int most) {
    double end = MPI_Wtime() + 60;
    check_case("no_connection_to_an_ended_process_is_left");
    while (counted(&connected) > most && MPI_Wtime() < end)
        check_progress();
    if (counted(&connected) > most)
        check_fail("connections: expected at most %d, got %lld", most, counted(&connected));
}

// Even ranks accept, odd ranks connect, several times through one port.
static void port_cycles(int cycles) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm side;
    int even = check.rank % 2 == 0;
    check_case("two_groups_meet_through_a_port_and_part_%d_times", cycles);
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, even, check.rank, &side));
    if (check.rank == 0)
        MPI_OK(MPI_Open_port(MPI_INFO_NULL, port));
    MPI_OK(MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD));
    for (int i = 0; i < cycles; i++) {
        MPI_Comm inter;
        if (even)
            MPI_OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, side, &inter));
        else
            MPI_OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, side, &inter));
        exchange_across(inter, even ? 0 : 1);
        MPI_OK(MPI_Comm_disconnect(&inter));
        ring_of(MPI_COMM_WORLD, i);
    }
    if (check.rank == 0)
        MPI_OK(MPI_Close_port(port));
    MPI_OK(MPI_Comm_free(&side));
}

int main(int argc, char **argv) {
    MPI_Comm parent;
    bool spawn = check_flag(argc, argv, "spawn");
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    check_attach(parent == MPI_COMM_NULL && !spawn ? 2 : 1);
    if (parent != MPI_COMM_NULL)
        return child(parent);
    program = argv[0];
    check_flag(argc, argv, "ports");
    int cycles = check_number(argc, argv, "--cycles", scaled(5, 2), 1 << 20);
    int children = check_number(argc, argv, "--children", 2, 1 << 10);
    int connections = check_number(argc, argv, "--connections", 0, 1 << 20);
    check_no_more(argc);
    say_processes(check.size);
    if (connections > 0)
        counter_open(&connected, "btl_ibex_connections");
    if (spawn)
        spawn_cycles(cycles, children);
    else
        port_cycles(cycles);
    if (connections > 0) {
        check_connections(connections);
        counter_close(&connected);
    }
    return check_finish();
}
