// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A flood of unexpected messages makes each process larger by only some MiB (VmHWM). The receiver makes no MPI call, or
// probes for another message, or is in a collective, or floods the sender as well; then it receives all, and checks
// order and contents. Sends are blocking, or nonblocking with a window under way. A sender that is held back loses
// nothing: it waits until the receiver receives, and a message that the receiver asks for overtakes the others. Runs
// with 2 or more ranks.
//
// usage: unexpected_memory [--most MIB] [--messages N]
//        (default 64 MiB per process, and 200000 messages in all if they have 8 bytes, else an eighth of that)
#include "check.h"

enum { WINDOW = 512, TAG_FLOOD = 1, TAG_OTHER = 2, TAG_GO = 3, LONGEST = 12000 };

static double idle;
static int most, messages;
static unsigned char *out; // WINDOW slots of the sender

// The value of a line of /proc/self/status, MiB.
static double status_mib(const char *field) {
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = atof(line + strlen(field));
    if (file)
        fclose(file);
    return kib / 1024;
}

static double begun;

static void begin_case(void) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    begun = MPI_Wtime();
}

static void check_memory(void) {
    double grown = status_mib("VmHWM:") - idle, all = 0, took = MPI_Wtime() - begun;
    MPI_OK(MPI_Reduce(&grown, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD));
    if (check.rank == 0)
        printf("# %s: at most %.1f MiB more than idle, %.1f s\n", check.name, all, took);
    if (grown > most)
        check_fail("memory: expected at most %d MiB more than before, got %.1f", most, grown);
}

// A number, repeated as often as there is room: quicker than a pattern.
static void fill(unsigned char *to, int bytes, uint64_t seed) {
    memset(to, (int)(seed % 251), (size_t)bytes);
    memcpy(to, &seed, sizeof seed);
}

static void check_filled(const unsigned char *in, int bytes, uint64_t seed) {
    uint64_t got;
    memcpy(&got, in, sizeof got);
    if (got != seed)
        check_fail("message: expected %llx, got %llx", (unsigned long long)seed, (unsigned long long)got);
    else if (bytes > 8 && (in[8] != seed % 251 || in[bytes - 1] != seed % 251 || in[bytes / 2 + 4] != seed % 251))
        check_fail("message %llx: its bytes are wrong", (unsigned long long)seed);
}

enum how { BLOCKING, WINDOWED };

static void flood(int to, int count, int bytes, enum how how) {
    static MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < count; i++) {
        unsigned char *from = out + (size_t)(i % WINDOW) * LONGEST;
        if (how == WINDOWED)
            MPI_OK(MPI_Wait(&requests[i % WINDOW], MPI_STATUS_IGNORE));
        fill(from, bytes, seed_of(check.rank, 0, i));
        if (how == WINDOWED)
            MPI_OK(MPI_Isend(from, bytes, MPI_BYTE, to, TAG_FLOOD, MPI_COMM_WORLD, &requests[i % WINDOW]));
        else
            MPI_OK(MPI_Send(from, bytes, MPI_BYTE, to, TAG_FLOOD, MPI_COMM_WORLD));
    }
    MPI_OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
}

// Takes the messages of a rank from the one with the number `first` on.
static void take(int from, int first, int count, int bytes) {
    static unsigned char in[LONGEST];
    for (int i = first; i < count; i++) {
        MPI_Status status;
        MPI_OK(MPI_Recv(in, LONGEST, MPI_BYTE, from, TAG_FLOOD, MPI_COMM_WORLD, &status));
        check_status(&status, from, TAG_FLOOD, bytes);
        check_filled(in, bytes, seed_of(from, 0, i));
    }
}

enum meanwhile { SLEEPS, PROBES, COMPUTES };

static const char *const meanwhiles[] = {"sleeps", "probes", "computes"};

static void pass(enum meanwhile what, double seconds) {
    double until = MPI_Wtime() + seconds;
    int found;
    if (what == SLEEPS)
        check_sleep(seconds);
    while (MPI_Wtime() < until)
        if (what == PROBES) {
            MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, TAG_OTHER, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
            if (found)
                check_fail("a probe found a message that was not sent");
        }
}

// Number of messages in all if each has `bytes`.
static int count_of_size(int bytes) {
    int count = scaled(bytes == 8 ? messages : messages / 8, 600);
    return count / (check.size - 1);
}

static void one_receiver(enum meanwhile what, int bytes, enum how how) {
    int count = count_of_size(bytes);
    check_case("a_receiver_that_%s_and_a_flood_of_%d_bytes_by_%s_sends", meanwhiles[what], bytes,
               how == BLOCKING ? "blocking" : "nonblocking");
    begin_case();
    if (check.rank == 0) {
        pass(what, 0.5);
        for (int from = check.size - 1; from > 0; from--)
            take(from, 0, count, bytes);
    } else {
        flood(0, count, bytes, how);
    }
    check_memory();
}

// Ranks flood each other in pairs, with nonblocking sends; each receives when it can send no more.
static void both_directions(int bytes) {
    int peer = check.rank ^ 1, count = count_of_size(bytes) / 2, sent = 0, taken = 0;
    static unsigned char in[LONGEST];
    static MPI_Request requests[WINDOW];
    check_case("two_ranks_flood_each_other_with_%d_bytes", bytes);
    begin_case();
    for (int i = 0; i < WINDOW; i++)
        requests[i] = MPI_REQUEST_NULL;
    while (peer < check.size && (taken < count || sent < count)) {
        int at = sent % WINDOW, done = 1;
        for (int tries = 0; sent < count && tries < 50; tries++) {
            MPI_OK(MPI_Test(&requests[at], &done, MPI_STATUS_IGNORE));
            if (done)
                break;
        }
        if (sent < count && done) {
            unsigned char *from = out + (size_t)at * LONGEST;
            fill(from, bytes, seed_of(check.rank, 0, sent));
            MPI_OK(MPI_Isend(from, bytes, MPI_BYTE, peer, TAG_FLOOD, MPI_COMM_WORLD, &requests[at]));
            sent++;
            continue;
        }
        // All messages of the other may be here before this rank has sent all of its own.
        if (taken == count)
            continue;
        // It cannot send more before the other receives some.
        MPI_OK(MPI_Recv(in, LONGEST, MPI_BYTE, peer, TAG_FLOOD, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        check_filled(in, bytes, seed_of(peer, 0, taken));
        taken++;
    }
    MPI_OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
    check_memory();
}

// Begins so many sends to rank 0. Returns their memory.
static unsigned char *begin_sends(int count, int bytes, MPI_Request *requests) {
    unsigned char *memory = check_alloc((size_t)bytes * (size_t)count), *from = memory;
    for (int i = 0; i < count; i++, from += bytes) {
        fill(from, bytes, seed_of(check.rank, 0, i));
        MPI_OK(MPI_Isend(from, bytes, MPI_BYTE, 0, TAG_FLOOD, MPI_COMM_WORLD, &requests[i]));
    }
    return memory;
}

// Very many nonblocking sends, and behind them one that the receiver asks for first: by an early receive, by a late
// one, and by probes. The requests take memory of the sender, so only the receiver's is checked.
static void one_past_many(const char *how, int count, int bytes) {
    check_case("a_message_that_is_%s_comes_past_%d_of_%d_bytes", how, count, bytes);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (check.rank == 1) {
        MPI_Request *requests = check_alloc((size_t)(count + 1) * sizeof *requests);
        unsigned char *from = begin_sends(count, bytes, requests);
        int go;
        MPI_OK(MPI_Isend(&count, 1, MPI_INT, 0, TAG_OTHER, MPI_COMM_WORLD, &requests[count]));
        MPI_OK(MPI_Recv(&go, 1, MPI_INT, 0, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Waitall(count + 1, requests, MPI_STATUSES_IGNORE));
        free(requests);
        free(from);
    } else if (check.rank == 0) {
        int got = 0, found = 0, taken = 0;
        MPI_Request request;
        if (strcmp(how, "waited_for") == 0) {
            MPI_OK(MPI_Irecv(&got, 1, MPI_INT, 1, TAG_OTHER, MPI_COMM_WORLD, &request));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else if (strcmp(how, "received_late") == 0) {
            for (int i = 0; i < 20; i++)
                MPI_OK(MPI_Iprobe(1, TAG_FLOOD, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
            pass(SLEEPS, 0.3);
            MPI_OK(MPI_Recv(&got, 1, MPI_INT, 1, TAG_OTHER, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else if (strcmp(how, "behind_matched_probes") == 0) {
            // Matched probes take the flood's messages out of the queue first; they are received last.
            static MPI_Message held[4000];
            taken = count < 4000 ? count : 4000;
            for (int i = 0; i < taken; i++)
                MPI_OK(MPI_Mprobe(1, TAG_FLOOD, MPI_COMM_WORLD, &held[i], MPI_STATUS_IGNORE));
            MPI_OK(MPI_Recv(&got, 1, MPI_INT, 1, TAG_OTHER, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            static unsigned char in[LONGEST];
            for (int i = 0; i < taken; i++) {
                MPI_OK(MPI_Mrecv(in, LONGEST, MPI_BYTE, &held[i], MPI_STATUS_IGNORE));
                check_filled(in, bytes, seed_of(1, 0, i));
            }
        } else {
            while (!found)
                MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, TAG_OTHER, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Recv(&got, 1, MPI_INT, 1, TAG_OTHER, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        check_int("what came past", count, got);
        MPI_OK(MPI_Send(&got, 1, MPI_INT, 1, TAG_GO, MPI_COMM_WORLD));
        take(1, taken, count, bytes);
    }
}

// Each rank sends to itself before it receives. MPI does not promise that this works, but programs do it.
static void flood_to_oneself(int count, int bytes) {
    check_case("a_flood_of_%d_bytes_of_each_rank_to_itself", bytes);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    flood(check.rank, count, bytes, BLOCKING);
    take(check.rank, 0, count, bytes);
}

// A flood waits in nonblocking sends while all ranks are in collectives, on the same communicator.
static void collectives_beside(int count, int bytes) {
    check_case("collectives_go_on_beside_a_flood_of_%d_bytes", bytes);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Request *requests = check_alloc((size_t)count * sizeof *requests);
    unsigned char *from = check.rank == 1 ? begin_sends(count, bytes, requests) : NULL;
    for (int i = 0; i < scaled(200, 20); i++) {
        int mine = check.rank + i, all = 0;
        MPI_OK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        check_int("sum", check.size * i + check.size * (check.size - 1) / 2, all);
        if (i % 20 == 0) {
            MPI_Comm copy = check_dup(MPI_COMM_WORLD);
            MPI_OK(MPI_Barrier(copy));
            MPI_OK(MPI_Comm_free(&copy));
        }
    }
    if (check.rank == 0)
        take(1, 0, count, bytes);
    if (check.rank == 1)
        MPI_OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    free(requests);
    free(from);
}

int main(int argc, char **argv) {
    static const int sizes[] = {8, 1024, 8192};
    check_start(&argc, &argv, 2);
    most = check_number(argc, argv, "--most", 64, 1 << 20);
    messages = check_number(argc, argv, "--messages", 200000, 1 << 30);
    check_no_more(argc);
    out = check_alloc((size_t)WINDOW * LONGEST);
    memset(out, 1, (size_t)WINDOW * LONGEST);
    // Connects the ranks, and does nothing else.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    idle = status_mib("VmHWM:");

    for (int i = 0; i < 3; i++) {
        one_receiver(SLEEPS, sizes[i], BLOCKING);
        one_receiver(PROBES, sizes[i], BLOCKING);
        one_receiver(COMPUTES, sizes[i], WINDOWED);
        one_receiver(PROBES, sizes[i], WINDOWED);
        // Whether a rank hears in time that it is held back depends on chance; it matters if messages are long.
        for (int again = 0; again < (i == 2 ? 8 : 1); again++)
            both_directions(sizes[i]);
    }
    one_past_many("waited_for", scaled(30000, 2000), 8);
    one_past_many("received_late", scaled(30000, 2000), 8);
    one_past_many("probed_for", scaled(30000, 2000), 1024);
    one_past_many("behind_matched_probes", scaled(30000, 2000), 1024);
    flood_to_oneself(500, 8);
    collectives_beside(scaled(30000, 2000), 8);
    collectives_beside(scaled(4000, 1000), 8192);
    return check_finish();
}
