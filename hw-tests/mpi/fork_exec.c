// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Ranks fork during traffic: children exec at once, or live on while messages are in flight. Then the parent writes to
// buffers that are registered, or about to be. If the kernel gives it a new page for that, the adapter goes on with the
// old one: the receiver sees old bytes of the buffer, or the parent never sees new ones. Runs with 2 or more ranks.
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT = 1000, LONG = 1 << 20, PAGE = 4096, KINDS = 2, WAYS = 2 };
static const size_t lengths[KINDS] = {SHORT, LONG};

// A child that execs at once, or one that keeps all pages of its parent until it is killed.
static pid_t start_child(bool execs) {
    pid_t child = fork();
    if (child == 0) {
        if (execs)
            execl("/bin/true", "true", (char *)NULL);
        else
            for (;;)
                pause();
        _exit(127);
    }
    if (child < 0)
        check_fail("fork: expected a process, got %d", (int)child);
    return child;
}

static void end_child(pid_t child, bool execs) {
    int status = 0;
    if (child < 0)
        return;
    if (!execs)
        kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child)
        check_fail("waitpid: expected the child %d", (int)child);
    else if (execs)
        check_int("exit status of /bin/true", 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

// The messages of a round are under way when the rank forks; the next ones are written after it, to the same buffers.
static void rounds_with(bool execs, int rounds, unsigned char *out[KINDS], unsigned char *in[KINDS]) {
    pid_t child = -1;
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[2 * KINDS];
        for (int k = 0; k < KINDS; k++) {
            pattern_fill(out[k], lengths[k], seed_of(check.rank, round, k));
            memset(in[k], 0, lengths[k]);
            MPI_OK(MPI_Irecv(in[k], (int)lengths[k], MPI_BYTE, left, k, MPI_COMM_WORLD, &requests[k]));
        }
        for (int k = 0; k < KINDS; k++)
            MPI_OK(MPI_Isend(out[k], (int)lengths[k], MPI_BYTE, right, k, MPI_COMM_WORLD, &requests[KINDS + k]));
        // Ranks take turns, so that each forks while others do and while others do not.
        bool forks = (round + check.rank) % 3 != 0;
        if (forks)
            child = start_child(execs);
        MPI_OK(MPI_Waitall(2 * KINDS, requests, MPI_STATUSES_IGNORE));
        for (int k = 0; k < KINDS; k++)
            pattern_check("message around a fork", in[k], lengths[k], seed_of(left, round, k));
        // A living child shares the pages: these are the parent's first writes since the fork.
        for (int k = 0; k < KINDS; k++) {
            pattern_fill(out[k], lengths[k], seed_of(check.rank, rounds + round, k));
            for (size_t at = 0; at < lengths[k]; at += PAGE)
                in[k][at] = (unsigned char)~pattern_byte(seed_of(left, rounds + round, k), at);
            MPI_OK(MPI_Sendrecv(out[k], (int)lengths[k], MPI_BYTE, right, KINDS + k, in[k], (int)lengths[k], MPI_BYTE, left,
                                KINDS + k, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            pattern_check("message written after a fork", in[k], lengths[k], seed_of(left, rounds + round, k));
        }
        if (forks)
            end_child(child, execs);
    }
}

static void window_with(bool execs, int rounds) {
    unsigned char *base = check_alloc(LONG), *local = check_alloc(LONG);
    MPI_Win window;
    MPI_OK(MPI_Win_create(base, LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI_OK(MPI_Win_fence(0, window));
    for (int round = 0; round < rounds; round++) {
        pid_t child = start_child(execs);
        memset(base, 0xff, LONG);
        pattern_fill(local, LONG, seed_of(check.rank, round, KINDS));
        MPI_OK(MPI_Win_fence(0, window));
        MPI_OK(MPI_Put(local, LONG, MPI_BYTE, right, 0, LONG, MPI_BYTE, window));
        MPI_OK(MPI_Win_fence(0, window));
        pattern_check("window after a fork", base, LONG, seed_of(left, round, KINDS));
        memset(local, 0, LONG);
        MPI_OK(MPI_Win_fence(0, window));
        MPI_OK(MPI_Get(local, LONG, MPI_BYTE, right, 0, LONG, MPI_BYTE, window));
        MPI_OK(MPI_Win_fence(0, window));
        pattern_check("got after a fork", local, LONG, seed_of(check.rank, round, KINDS));
        end_child(child, execs);
    }
    MPI_OK(MPI_Win_free(&window));
    free(base);
    free(local);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    int rounds = scaled(24, 3);
    unsigned char *out[KINDS], *in[KINDS];
    for (int k = 0; k < KINDS; k++) {
        out[k] = check_alloc(lengths[k]);
        in[k] = check_alloc(lengths[k]);
    }
    for (int way = 0; way < WAYS; way++) {
        bool execs = way == 0;
        check_case("messages around children that %s", execs ? "exec" : "live on");
        rounds_with(execs, rounds, out, in);
        check_case("a window around children that %s", execs ? "exec" : "live on");
        window_with(execs, rounds);
    }
    return check_finish();
}
