// SPDX-License-Identifier: MIT OR Apache-2.0
// Small messages between two ranks that take turns, for an instruction counter: the cost of a message without waiting.
// Build: mpicc -O2 -o ibex_mpi_instructions ibex_mpi_instructions.c
// Run: mpirun -n 1 valgrind --tool=callgrind --toggle-collect=counted_send --toggle-collect=counted_recv
//          ./ibex_mpi_instructions 1000 8 : -n 1 ./ibex_mpi_instructions 1000 8
// A third argument, `nonblocking`, counts MPI_Isend, MPI_Irecv and MPI_Wait in place of MPI_Send and MPI_Recv. Each
// rank sends, then hands the turn to the other through a datagram socket on which the other sleeps. So a message has
// arrived when MPI_Recv looks for it, no rank polls in vain, and the count is the same in each run. The first messages
// (connections, caches, first use of a code path) go through functions of other names, which are not counted.
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, TAG = 1, MESSAGES_BEFORE = 500, USAGE_EXIT = 2 };

static int rank, bytes, turns = -1;
static struct sockaddr_un peer;
static socklen_t peer_length;
static char sent[MOST_BYTES], received[MOST_BYTES];

static void fail(const char *what) {
    fprintf(stderr, "ibex_mpi_instructions: rank %d: ", rank);
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// An abstract name, which needs no file, of this job and a rank.
static socklen_t name_of(struct sockaddr_un *address, int job, int of_rank) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "ibex-turn-%d-%d", job, of_rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static void open_turns(void) {
    struct sockaddr_un own;
    int job = getpid();
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    socklen_t own_length = name_of(&own, job, rank);
    peer_length = name_of(&peer, job, 1 - rank);
    turns = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (turns < 0 || bind(turns, (struct sockaddr *)&own, own_length) != 0)
        fail("cannot open the socket for turns");
    MPI_Barrier(MPI_COMM_WORLD);
}

static void give_turn(void) {
    if (sendto(turns, "", 1, 0, (struct sockaddr *)&peer, peer_length) != 1)
        fail("cannot give the turn");
}

static void await_turn(void) {
    char turn;
    if (recv(turns, &turn, 1, 0) != 1)
        fail("cannot take the turn");
}

static inline void send_one(void) { MPI_Send(sent, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD); }

static inline void receive_one(void) {
    MPI_Recv(received, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static inline void isend_one(void) {
    MPI_Request request;
    MPI_Isend(sent, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static inline void ireceive_one(void) {
    MPI_Request request;
    MPI_Irecv(received, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Global and never inlined: the counter finds these by their names.
__attribute__((noinline)) void counted_send(void);
__attribute__((noinline)) void counted_recv(void);
__attribute__((noinline)) void counted_isend(void);
__attribute__((noinline)) void counted_irecv(void);
void counted_send(void) { send_one(); }
void counted_recv(void) { receive_one(); }
void counted_isend(void) { isend_one(); }
void counted_irecv(void) { ireceive_one(); }

static void messages(long count, void (*send)(void), void (*receive)(void)) {
    for (long i = 0; i < count; i++)
        if (rank == 0) {
            send();
            give_turn();
            await_turn();
            receive();
        } else {
            await_turn();
            receive();
            send();
            give_turn();
        }
}

int main(int argc, char **argv) {
    int ranks;
    bool nonblocking = argc == 4 && strcmp(argv[3], "nonblocking") == 0;
    bool usable = argc == 3 || nonblocking;
    long count = usable ? strtol(argv[1], NULL, 10) : 0;
    long size = usable ? strtol(argv[2], NULL, 10) : -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || count < 1 || size < 0 || size > MOST_BYTES) {
        if (rank == 0)
            fprintf(stderr, "usage: mpirun -n 2 ibex_mpi_instructions MESSAGES BYTES [nonblocking]\n"
                            "(MESSAGES of each rank, from 1; BYTES from 0 to %d)\n", MOST_BYTES);
        MPI_Finalize();
        return USAGE_EXIT;
    }
    bytes = (int)size;
    open_turns();
    if (nonblocking) {
        messages(MESSAGES_BEFORE, isend_one, ireceive_one);
        messages(count, counted_isend, counted_irecv);
    } else {
        messages(MESSAGES_BEFORE, send_one, receive_one);
        messages(count, counted_send, counted_recv);
    }
    close(turns);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
