// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Plants waits of each kind, by computing before a call, while a recorder runs. Each message has its own tag, for which
// rank 0 prints the wait that the trace must have:
//
//     planted TAG KIND LEAST MOST LOST
//
// in nanoseconds. KIND `nothing`: no rank waits; LEAST 0: a rank may wait, at most MOST. MOST is the time between clock
// readings around the calls that begin and end the wait, and LEAST half of it. LOST is the time that both ranks
// together waited for a processor: the wait may be shorter than LEAST by that time, and other waits of that length may
// be found. The late rank begins to compute when the other one says that it is about to wait.
#include "steps.h"

enum { SHORT = 8, LONG = 1 << 20, MILLISECONDS = 100, LATE = 3 * MILLISECONDS };

static char bytes[2][LONG];

static long now(void) { return check_nanoseconds(CLOCK_MONOTONIC); }

// Returns the time that this process has waited for a processor so far, nanoseconds.
static long kept(void) {
    long ran, waited;
    FILE *file = fopen("/proc/self/schedstat", "r");
    bool is_said = file && fscanf(file, "%ld %ld", &ran, &waited) == 2;
    if (file)
        fclose(file);
    return is_said ? waited : 0;
}

static long kept_before;

#define begin_case(...) (check_case(__VA_ARGS__), kept_before = kept())

static void compute(int milliseconds) {
    for (long begin = now(); now() - begin < milliseconds * 1000000L;)
        ;
}

// Exchanges a number with the other rank, and returns the other's. Collective.
static long theirs(long mine) {
    long theirs;
    MPI_OK(MPI_Sendrecv(&mine, 1, MPI_LONG, !check.rank, 1000, &theirs, 1, MPI_LONG, !check.rank, 1000, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
    return theirs;
}

// Returns the time from the `moment` of rank `waits` to that of the other rank. Collective.
static long between(int waits, long moment) {
    long other = theirs(moment);
    return check.rank == waits ? other - moment : moment - other;
}

// Prints the line for a wait. Collective.
static void print_planted(int tag, const char *kind, long least, long most) {
    long lost = kept() - kept_before;
    lost += theirs(lost);
    if (check.rank == 0)
        printf("planted %d %s %ld %ld %ld\n", tag, kind, least, most, lost);
}

// `moment`: when rank `waits` begins to wait; on the other rank, when that ends the wait.
static void plant(int tag, const char *kind, int waits, long moment) {
    long most = between(waits, moment);
    check_true("the wait has been planted", most >= LATE * 1000000L);
    print_planted(tag, kind, most / 2, most);
}

static void plant_nothing(int tag) { print_planted(tag, "nothing", 0, 0); }

static void send(int tag, int count) { MPI_OK(MPI_Send(bytes[0], count, MPI_CHAR, 1, tag, MPI_COMM_WORLD)); }

static MPI_Request begin_receive(int tag) {
    MPI_Request request;
    MPI_OK(MPI_Irecv(bytes[tag % 2], LONG, MPI_CHAR, 0, tag, MPI_COMM_WORLD, &request));
    return request;
}

static void wait_for(MPI_Request request) { MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE)); }

static void receive(int tag) { MPI_OK(MPI_Recv(bytes[0], LONG, MPI_CHAR, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE)); }

// By rank 1: computes, and says that it is about to wait.
static long about_to_wait(void) {
    compute(MILLISECONDS);
    long moment = now();
    say();
    return moment;
}

// By rank 0: sends when rank 1 has waited for a while.
static long send_late(int tag) {
    hear();
    compute(LATE);
    send(tag, SHORT);
    return now();
}

enum how { BY_WAIT, BY_RECV, BY_PROBE };

static void late_sender(int tag, enum how how) {
    begin_case("the sender is late, %s", how == BY_WAIT ? "MPI_Wait" : how == BY_RECV ? "MPI_Recv" : "MPI_Probe");
    long moment;
    if (check.rank == 0) {
        moment = send_late(tag);
    } else if (how == BY_WAIT) {
        MPI_Request request = begin_receive(tag);
        moment = about_to_wait();
        wait_for(request);
    } else {
        moment = about_to_wait();
        if (how == BY_PROBE)
            MPI_OK(MPI_Probe(0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        receive(tag);
    }
    plant(tag, "late_sender", 1, moment);
}

// One call waits for several messages, of which the last one to come ends the wait.
static void late_senders(int first, int last) {
    begin_case("two senders are late, MPI_Waitall");
    long moment;
    if (check.rank == 0) {
        send_late(first);
        compute(LATE);
        send(last, SHORT);
        moment = now();
    } else {
        MPI_Request requests[] = {begin_receive(first), begin_receive(last)};
        moment = about_to_wait();
        MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
    plant_nothing(first);
    plant(last, "late_sender", 1, moment);
}

static void late_receiver(int tag, bool is_synchronous) {
    begin_case("the receiver is late, %s", is_synchronous ? "MPI_Ssend" : "MPI_Isend and MPI_Wait");
    long moment;
    if (check.rank == 0) {
        MPI_Request request;
        if (!is_synchronous)
            MPI_OK(MPI_Isend(bytes[0], LONG, MPI_CHAR, 1, tag, MPI_COMM_WORLD, &request));
        moment = about_to_wait();
        if (is_synchronous)
            MPI_OK(MPI_Ssend(bytes[0], SHORT, MPI_CHAR, 1, tag, MPI_COMM_WORLD));
        else
            wait_for(request);
    } else {
        hear();
        compute(LATE);
        MPI_Request request = begin_receive(tag);
        moment = now();
        wait_for(request);
    }
    plant(tag, "late_receiver", 0, moment);
}

// The receiver computes after MPI_Irecv: the sender of a long message waits; a short message arrives and waits, which
// only an adapter's timestamps show.
static void computing_receiver(int tag, bool is_long) {
    begin_case(is_long ? "the receiver computes after MPI_Irecv, and the sender waits" : "the message comes while the receiver computes");
    long moment;
    if (check.rank == 0) {
        hear();
        moment = is_long ? about_to_wait() : now();
        send(tag, is_long ? LONG : SHORT);
        if (!is_long)
            say();
    } else {
        MPI_Request request = begin_receive(tag);
        say();
        hear();
        compute(LATE);
        wait_for(request);
        moment = now();
    }
    plant(tag, is_long ? "no_progress" : "late_wait", 0, moment);
}

static void both_compute(int tag) {
    begin_case("both compute between a call and its wait");
    MPI_Request request;
    // A receive that finds its message in shared memory completes at once; only its wait comes late.
    if (check.rank == 0) {
        hear();
        MPI_OK(MPI_Isend(bytes[0], LONG, MPI_CHAR, 1, tag, MPI_COMM_WORLD, &request));
    } else {
        request = begin_receive(tag);
        say();
    }
    compute(LATE);
    // The other rank has called its send or receive.
    say();
    hear();
    long begin = now();
    wait_for(request);
    // Either rank may get its processor later.
    long most = between(0, check.rank == 0 ? begin : now());
    print_planted(tag, "no_progress", 0, most > 0 ? most : 0);
}

static void polls(int tag) {
    begin_case("the receiver tests again and again");
    if (check.rank == 0) {
        send_late(tag);
    } else {
        MPI_Request request = begin_receive(tag);
        about_to_wait();
        for (int is_done = 0; !is_done;)
            MPI_OK(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
    }
    plant_nothing(tag);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    steps_begin();
    late_sender(1, BY_WAIT);
    late_sender(2, BY_RECV);
    late_sender(3, BY_PROBE);
    late_senders(4, 5);
    late_receiver(6, false);
    late_receiver(7, true);
    computing_receiver(8, true);
    computing_receiver(9, false);
    both_compute(10);
    polls(11);
    return check_finish();
}
