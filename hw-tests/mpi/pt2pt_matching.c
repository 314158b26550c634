// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Checks which message each receive gets: any source and any tag, probe and matched probe, and cancelled sends;
// traffic.c has the order of many, pending_receives.c cancels receives, pt2pt_truncation.c cuts messages. Ranks form a
// ring (one rank talks to itself). Runs with 1 or more ranks.
#include "check.h"

enum { MAX_BYTES = 300000, TAG_TOKEN = 99 };

static unsigned char *send_arena, *receive_arena;

// Sizes of both sides of the eager and fragment limits, in an order that mixes them.
static const int mixed[] = {8, 100000, 0, 4000, 70000, 1, 12289, 64, 20000, 300, 250001, 16};
enum { MIXED = sizeof mixed / sizeof *mixed };

static MPI_Request start_send(unsigned char *from, int bytes, int tag, int number) {
    MPI_Request request;
    pattern_fill(from, (size_t)bytes, seed_of(check.rank, 0, number));
    MPI_OK(MPI_Isend(from, bytes, MPI_BYTE, right, tag, MPI_COMM_WORLD, &request));
    return request;
}

// Three receives with wildcards of different width, three messages: each goes to the first posted one that fits.
static void first_fitting_receive(bool late) {
    static const int tags[3] = {5, 6, 5};
    MPI_Request sends[3], receives[3];
    MPI_Status statuses[3];
    int numbers[3] = {-1, -1, -1}, sent[3] = {100, 101, 102};
    check_case("a_message_goes_to_the_first_receive_that_fits_posted_%s", late ? "late" : "first");
    for (int pass = 0; pass < 2; pass++) {
        if ((pass == 1) == late) {
            MPI_OK(MPI_Irecv(&numbers[0], 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &receives[0]));
            MPI_OK(MPI_Irecv(&numbers[1], 1, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD, &receives[1]));
            MPI_OK(MPI_Irecv(&numbers[2], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receives[2]));
            if (!late)
                MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); // a token would fit the receives
        } else {
            for (int i = 0; i < 3; i++)
                MPI_OK(MPI_Isend(&sent[i], 1, MPI_INT, right, tags[i], MPI_COMM_WORLD, &sends[i]));
            if (late)
                check_token(right, left, TAG_TOKEN);
        }
    }
    MPI_OK(MPI_Waitall(3, receives, statuses));
    MPI_OK(MPI_Waitall(3, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 3; i++) {
        check_int("message of the receive", 100 + i, numbers[i]);
        check_status(&statuses[i], left, tags[i], 4);
    }
}

static void probes(void) {
    check_case("iprobe_finds_a_message_that_came_and_none_that_did_not");
    int found = 1;
    MPI_Status status;
    MPI_OK(MPI_Iprobe(left, 30, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
    check_int("message found before any was sent", 0, found);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Request sent = start_send(send_arena, 5000, 30, 1);
    check_token(right, left, TAG_TOKEN);
    while (!found)
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, 30, MPI_COMM_WORLD, &found, &status));
    check_status(&status, left, 30, 5000);
    MPI_OK(MPI_Iprobe(left, 31, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
    check_int("message of another tag found", 0, found);
    MPI_OK(MPI_Recv(receive_arena, 5000, MPI_BYTE, left, 30, MPI_COMM_WORLD, &status));
    pattern_check("message", receive_arena, 5000, seed_of(left, 0, 1));
    MPI_OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Iprobe(left, 30, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
    check_int("received message found again", 0, found);
}

// A matched message is out of reach of later receives, and may be received after messages that follow it.
static void matched_probes(void) {
    check_case("a_matched_message_is_received_by_its_handle_only");
    for (int i = 0; i < MIXED; i++) {
        int bytes = mixed[i], after = mixed[(i + 1) % MIXED], found = 0;
        unsigned char *second = send_arena + MAX_BYTES / 2;
        MPI_Message message;
        MPI_Status status;
        MPI_Request requests[3];
        if (bytes > MAX_BYTES / 2 || after > MAX_BYTES / 2)
            continue;
        requests[0] = start_send(send_arena, bytes, 40, 2 * i);
        requests[1] = start_send(second, after, 40, 2 * i + 1);
        if (i % 2)
            MPI_OK(MPI_Mprobe(MPI_ANY_SOURCE, 40, MPI_COMM_WORLD, &message, &status));
        else
            while (!found)
                MPI_OK(MPI_Improbe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &message, &status));
        check_status(&status, left, 40, bytes);
        unsigned char *to = guarded_ready(receive_arena, (size_t)after, 1);
        MPI_OK(MPI_Recv(to, after, MPI_BYTE, left, 40, MPI_COMM_WORLD, &status));
        check_status(&status, left, 40, after);
        pattern_check("message after the matched one", to, (size_t)after, seed_of(left, 0, 2 * i + 1));
        to = guarded_ready(receive_arena, (size_t)bytes, 2);
        if (i % 4 < 2) {
            MPI_OK(MPI_Mrecv(to, bytes, MPI_BYTE, &message, &status));
        } else {
            MPI_OK(MPI_Imrecv(to, bytes, MPI_BYTE, &message, &requests[2]));
            MPI_OK(MPI_Wait(&requests[2], &status));
        }
        check_true("message handle is null after its receive", message == MPI_MESSAGE_NULL);
        check_status(&status, left, 40, bytes);
        pattern_check("matched message", to, (size_t)bytes, seed_of(left, 0, 2 * i));
        guarded_check("receive", to, (size_t)bytes);
        MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
}

// MPI may send a cancelled message all the same; in both cases its status must be exactly true.
static void cancelled_sends(void) {
    check_case("a_cancelled_send_is_either_gone_or_whole");
    for (int i = 0; i < MIXED; i++) {
        MPI_Request sent = start_send(send_arena, mixed[i], 70, i);
        MPI_Status status;
        int cancelled = 0, left_cancelled = 0, found = 1;
        MPI_OK(MPI_Cancel(&sent));
        if (mixed[i] <= 1024) { // a long one may need its receive to end
            MPI_OK(MPI_Wait(&sent, &status));
            MPI_OK(MPI_Test_cancelled(&status, &cancelled));
        }
        MPI_OK(MPI_Sendrecv(&cancelled, 1, MPI_INT, right, 71, &left_cancelled, 1, MPI_INT, left, 71, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
        if (!left_cancelled) {
            MPI_OK(MPI_Recv(receive_arena, mixed[i], MPI_BYTE, left, 70, MPI_COMM_WORLD, &status));
            check_status(&status, left, 70, mixed[i]);
            pattern_check("message", receive_arena, (size_t)mixed[i], seed_of(left, 0, i));
        } else {
            MPI_OK(MPI_Iprobe(left, 70, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
            check_int("cancelled message found", 0, found);
        }
        if (sent != MPI_REQUEST_NULL)
            MPI_OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    send_arena = check_alloc(guarded_bytes(MAX_BYTES));
    receive_arena = check_alloc(guarded_bytes(MAX_BYTES));

    first_fitting_receive(false);
    first_fitting_receive(true);
    probes();
    matched_probes();
    cancelled_sends();
    return check_finish();
}
