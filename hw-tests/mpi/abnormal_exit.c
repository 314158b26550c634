// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One rank ends abnormally in traffic; the caller checks how and when the job ends. The others go on talking to the
// dead rank: the first MPI error that one sees is printed (`survivor: ...`) and ends the job. A rank that sees no error
// within --seconds prints `not ok` and ends the job with status 3, or SIGALRM ends it. With `mpirun --enable-recovery`
// the runtime does not end the job, so the error has to come from the transport. Needs 2 or more ranks.
//
// usage: abnormal_exit HOW [--traffic small|large|flood|one_sided] [--after N] [--seconds S]
//   HOW        _exit, exit (without MPI_Finalize), abort, kill (SIGKILL), segv, mpi_abort
//   --traffic  what runs when it dies: exchanges of 8 B or 1 MiB, a flood that nobody receives, or puts (default small)
//   --after    rounds before the last rank dies (default 50, 5 of 1 MiB)
//   --seconds  how long the others try (default 60)
#include "check.h"

#include <signal.h>
#include <unistd.h>

enum { BYTES = 1 << 20, GAVE_UP_EXIT = 3 };
enum traffic { SMALL, LARGE, FLOOD, ONE_SIDED };
static const char *const traffic_names[] = {"small", "large", "flood", "one_sided"};

static enum traffic traffic = SMALL;
static int victim, seconds;
static unsigned char *out, *in;
static MPI_Win window = MPI_WIN_NULL;

static void die(const char *how) {
    printf("dying: rank %d, process %d, by %s\n", check.rank, (int)getpid(), how);
    if (strcmp(how, "_exit") == 0)
        _exit(9);
    if (strcmp(how, "exit") == 0)
        exit(9);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strcmp(how, "mpi_abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
    kill(getpid(), SIGKILL);
}

// Prints the error of MPI that a survivor waits for, and ends the job.
static void told(int code, double since) {
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("survivor: rank %d saw an error after %.1f s: %s\n", check.rank, MPI_Wtime() - since, text);
    MPI_Abort(MPI_COMM_WORLD, 7);
}

// Ends the job if a survivor has seen no error in its time.
static void give_up_after(double start) {
    if (MPI_Wtime() - start <= seconds)
        return;
    printf("not ok %s: expected an error or the end of the job, got neither in %d s, rank %d\n", check.name, seconds, check.rank);
    MPI_Abort(MPI_COMM_WORLD, GAVE_UP_EXIT);
}

static void complete(int count, MPI_Request *requests, double start) {
    for (int done = 0; !done;) {
        told(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE), start);
        if (!done)
            give_up_after(start);
    }
}

// One round between the victim and every other rank.
static void round_of_traffic(int round, double start) {
    int bytes = traffic == SMALL ? 8 : traffic == FLOOD ? 1000 : BYTES;
    for (int r = 0; r < check.size; r++) {
        int peer = check.rank == victim ? r : victim;
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        if (peer == check.rank || (check.rank != victim && r > 0))
            continue;
        if (traffic == ONE_SIDED) {
            told(MPI_Put(out, BYTES, MPI_BYTE, peer, 0, BYTES, MPI_BYTE, window), start);
            told(MPI_Win_flush(peer, window), start);
            continue;
        }
        if (traffic != FLOOD)
            told(MPI_Irecv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]), start);
        pattern_fill(out, (size_t)bytes, (uint64_t)(check.rank * 1000 + round));
        told(MPI_Isend(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[1]), start);
        complete(2, requests, start);
        if (traffic != FLOOD)
            pattern_check("message", in, (size_t)bytes, (uint64_t)(peer * 1000 + round));
    }
}

int main(int argc, char **argv) {
    int kind = SMALL;
    check_start(&argc, &argv, 2);
    victim = check.size - 1;
    const char *how = argc > 1 ? argv[1] : "", *name = check_option(argc, argv, "--traffic");
    while (name && kind <= ONE_SIDED && strcmp(name, traffic_names[kind]) != 0)
        kind++;
    check.misread |= kind > ONE_SIDED;
    traffic = (enum traffic)kind;
    int after = check_number(argc, argv, "--after", traffic == SMALL || traffic == FLOOD ? 50 : 5, 1 << 30);
    seconds = check_number(argc, argv, "--seconds", 60, 1 << 20);
    check_no_more(argc - 1);
    check_case("rank_%d_ends_by_%s_during_%s_traffic", victim, how, traffic_names[traffic]);
    out = check_alloc(BYTES);
    in = check_alloc(BYTES);
    memset(out, 1, BYTES);
    if (traffic == ONE_SIDED) {
        MPI_OK(MPI_Win_create(in, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
        MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
        MPI_OK(MPI_Win_lock_all(0, window));
    }
    double start = MPI_Wtime();
    for (int round = 0;; round++) {
        if (check.rank == victim && round == after)
            die(how);
        if (round == after) { // about when the victim dies
            start = MPI_Wtime();
            alarm((unsigned)seconds + 10); // for calls that have no limit: SIGALRM ends this process
        }
        give_up_after(start); // floods and puts may complete though nobody receives them
        round_of_traffic(round, start);
    }
}
