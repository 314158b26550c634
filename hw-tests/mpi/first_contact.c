// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The first messages between ranks, at the same moment: a transport that connects at first use has to connect here,
// from both sides at once. The ranks agree on the moment by the wall clock. A process can do this only once, so run the
// program many times, with another --delay-us each time. Runs with 2 or more ranks.
//
// usage: first_contact [blocking] [--delay-us D]
//              (default) all ranks send to all at once: empty, short and long messages
//   blocking   when a blocking send of the lower rank of a pair returns, its message has left: the sender makes no
//              progress until the receiver says by MPI_Publish_name, which moves no message, that it has the message
//   --delay-us odd ranks start D microseconds late, to meet a handshake in the middle (default 0)
#include "told.h"

enum { KINDS = 4, LONGEST = 300000 };
static const int lengths[KINDS] = {0, 8, 5000, LONGEST};

static int delay_us;

static double wall_clock(void) { return (double)check_nanoseconds(CLOCK_REALTIME) / 1e9; }

// Waits, without MPI, for the next multiple of a quarter of a second that is at least a tenth away, plus `late_us`.
// Ranks that leave MPI_Init at different times may choose different ones; then they just do not coincide.
static void moment(int late_us) {
    double now = wall_clock(), quarters = (now + 0.1) * 4;
    double at = ((double)(long long)quarters + 1) / 4 + late_us / 1e6;
    double nap = at - now - 0.003;
    check_sleep(nap > 0 ? nap : 0);
    while (wall_clock() < at) // exact to a microsecond if the processor is free
        continue;
}

struct exchange { // with one peer, every kind of message
    MPI_Request requests[2 * KINDS];
    unsigned char *out[KINDS], *in[KINDS];
};

static void prepare_exchange(struct exchange *exchange, int peer) {
    for (int k = 0; k < KINDS; k++) {
        exchange->requests[k] = exchange->requests[KINDS + k] = MPI_REQUEST_NULL;
        exchange->out[k] = check_alloc((size_t)lengths[k]);
        exchange->in[k] = check_alloc((size_t)lengths[k]);
        pattern_fill(exchange->out[k], (size_t)lengths[k], seed_of(check.rank, peer, k));
    }
}

// Starts the messages to and from `peer`, sends before receives: the first of them makes the connection.
static void start_exchange(struct exchange *exchange, int peer) {
    for (int k = 0; k < KINDS; k++)
        MPI_OK(MPI_Isend(exchange->out[k], lengths[k], MPI_BYTE, peer, k, MPI_COMM_WORLD, &exchange->requests[k]));
    for (int k = 0; k < KINDS; k++)
        MPI_OK(MPI_Irecv(exchange->in[k], lengths[k], MPI_BYTE, peer, k, MPI_COMM_WORLD, &exchange->requests[KINDS + k]));
}

static void end_exchange(struct exchange *exchange, int peer) {
    MPI_OK(MPI_Waitall(2 * KINDS, exchange->requests, MPI_STATUSES_IGNORE));
    for (int k = 0; k < KINDS; k++) {
        pattern_check("first message", exchange->in[k], (size_t)lengths[k], seed_of(peer, check.rank, k));
        free(exchange->out[k]);
        free(exchange->in[k]);
    }
}

static void all_pairs(void) {
    struct exchange *exchanges = check_alloc((size_t)check.size * sizeof *exchanges);
    for (int d = 1; d < check.size; d++)
        prepare_exchange(&exchanges[d], (check.rank + d) % check.size);
    moment(check.rank % 2 ? delay_us : 0);
    for (int d = 1; d < check.size; d++)
        start_exchange(&exchanges[d], (check.rank + d) % check.size);
    for (int d = 1; d < check.size; d++)
        end_exchange(&exchanges[d], (check.rank + d) % check.size);
    free(exchanges);
}

static void send_first(int receiver, int bytes) {
    unsigned char *out = check_alloc((size_t)bytes);
    pattern_fill(out, (size_t)bytes, seed_of(check.rank, receiver, 0));
    MPI_OK(MPI_Send(out, bytes, MPI_BYTE, receiver, 1, MPI_COMM_WORLD));
    if (!is_told(check.rank, receiver))
        check_fail("%d bytes to rank %d: not received while their sender made no progress", bytes, receiver);
    free(out);
}

static void receive_first(int sender, int bytes) {
    unsigned char *in = check_alloc((size_t)bytes);
    MPI_OK(MPI_Recv(in, bytes, MPI_BYTE, sender, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    pattern_check("first message", in, (size_t)bytes, seed_of(sender, check.rank, 0));
    tell(sender, check.rank);
    free(in);
}

static void blocking(void) {
    static const int eager[] = {0, 8, 200, 2000, 10000};
    int at = 0;
    // A rank begins to send when all lower ranks have sent to it: until then the ranks above it have no connection.
    for (int sender = 0; sender < check.size; sender++)
        for (int receiver = sender + 1; receiver < check.size; receiver++, at++) {
            if (check.rank == sender)
                send_first(receiver, eager[at % 5]);
            if (check.rank == receiver)
                receive_first(sender, eager[at % 5]);
        }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2); // sends nothing
    bool is_blocking = check_flag(argc, argv, "blocking");
    delay_us = check_number(argc, argv, "--delay-us", 0, 100000);
    check_no_more(argc);
    check_case("first_contact_%s_%d_us_late", is_blocking ? "blocking" : "of_all_pairs", delay_us);
    if (is_blocking)
        blocking();
    else
        all_pairs();
    return check_finish();
}
