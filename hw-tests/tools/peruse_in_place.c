// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Checks how much of a message is in the user's buffer when PERUSE reports a receive's transfer: nothing at the begin,
// one fragment more at each continue, all at the end. For each way to receive contiguous messages, ones with gaps at
// either or both sides, and ones of a rank to itself. `ports N`: so many ports read a long message, each in several
// parts; `copied`: after some messages the adapter registers no more memory, so that it comes as copies. 2 ranks.
#include "peruse_handle.h"
#include <peruse.h>

enum { MOST = 100000, MOST_FRAGMENTS = 512, TAG = 5 };
static const int lengths[] = {1, 2000, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static MPI_Comm comm;
static int to[2 * MOST], from[2 * MOST], ports;
static bool are_copied;

// How a message meets its receive.
static const char *const meetings[] = {"posted", "late", "late, synchronous", "blocking", "probed", "cut"};
enum meeting { POSTED, LATE, SYNCHRONOUS, BLOCKING, PROBED, CUT, MEETINGS };

// The receive, and how many items were in place at its begin, at each further fragment, and at its end.
static struct {
    int count, stride;
    int begun, continued, ended;
    int at_begin, at[MOST_FRAGMENTS], at_end;
} receive;

static int expected(int i) { return i * 7 + 1; }

static int in_place(void) {
    int count = 0;
    for (int i = 0; i < receive.count; i++)
        count += to[i * receive.stride] == expected(i);
    return count;
}

enum kind { BEGIN, CONTINUE, END, KINDS };
static const int events[KINDS] = {PERUSE_COMM_REQ_XFER_BEGIN, PERUSE_COMM_REQ_XFER_CONTINUE, PERUSE_COMM_REQ_XFER_END};
static enum kind kinds[KINDS] = {BEGIN, CONTINUE, END};

static int on_event(peruse_event_h, MPI_Aint, peruse_comm_spec_t *spec, void *kind) {
    if (spec->operation != PERUSE_RECV || spec->tag != TAG)
        return MPI_SUCCESS;
    if (*(enum kind *)kind == BEGIN) {
        receive.begun++;
        receive.at_begin = in_place();
    } else if (*(enum kind *)kind == END) {
        receive.ended++;
        receive.at_end = in_place();
    } else if (receive.continued < MOST_FRAGMENTS) {
        receive.at[receive.continued++] = in_place();
    }
    return MPI_SUCCESS;
}

static void check_receive(bool is_copied, bool is_read) {
    check_int("begins", 1, receive.begun);
    check_int("ends", 1, receive.ended);
    check_int("in place at its end", receive.count, receive.at_end);
    check_true("not all is in place at its begin", receive.at_begin < receive.count);
    if (!is_copied && !is_read)
        return;
    check_int("in place at its begin", 0, receive.at_begin);
    check_true("there are fragments", receive.continued > 0);
    // The begin of copies has one of them, that of reads has none.
    int before = is_copied ? 2 : 1, fragments = receive.continued + before;
    // All fragments have one length, except the last and, if several ports read, the last of each port: with the n-th
    // of N there are n N-ths or more.
    int short_ones = is_read && ports > 1 ? ports : 0;
    for (int i = 0; i < receive.continued; i++) {
        long long least = (long long)receive.count * (i + before - short_ones) / fragments;
        if (receive.at[i] < least)
            check_fail("in place with fragment %d of %d: expected %lld or more of %d, got %d", i + before, fragments, least,
                       receive.count, receive.at[i]);
    }
}

static void receive_by(enum meeting meeting, MPI_Datatype type, int sender, MPI_Request *request) {
    MPI_Message message;
    if (meeting == PROBED) {
        MPI_OK(MPI_Mprobe(sender, TAG, comm, &message, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Imrecv(to, 1, type, &message, request));
    } else if (meeting == BLOCKING && sender != check.rank) {
        MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, sender, TAG, MPI_COMM_WORLD));
        MPI_OK(MPI_Recv(to, 1, type, sender, TAG, comm, MPI_STATUS_IGNORE));
    } else {
        MPI_OK(MPI_Irecv(to, 1, type, sender, TAG, comm, request));
    }
}

// The receive of one that is cut has room for half of it.
static void one(enum meeting meeting, int count, int sender, int sent_stride, int received_stride) {
    MPI_Request sending = MPI_REQUEST_NULL, receiving = MPI_REQUEST_NULL;
    bool is_early = meeting == POSTED || meeting == CUT, is_long = count == MOST && sender == 0;
    bool is_copied = are_copied || sent_stride > 1 || received_stride > 1;
    int room = meeting == CUT ? count / 2 : count;
    MPI_Datatype sent = check_vector(count, 1, sent_stride, MPI_INT);
    MPI_Datatype received = check_vector(room, 1, received_stride, MPI_INT);
    memset(&receive, 0, sizeof receive);
    memset(to, 0, sizeof to);
    receive.count = room;
    receive.stride = received_stride;
    for (int k = 0; k < count; k++)
        from[k * sent_stride] = expected(k);
    if (check.rank == 1 && is_early)
        receive_by(meeting, received, sender, &receiving);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (check.rank == sender) {
        if (meeting == BLOCKING && sender == 0)
            MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_OK((meeting == SYNCHRONOUS ? MPI_Issend : MPI_Isend)(from, 1, sent, 1, TAG, comm, &sending));
    }
    if (!is_early && meeting != BLOCKING)
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (check.rank == 1 && !is_early)
        receive_by(meeting, received, sender, &receiving);
    int code = MPI_Wait(&receiving, MPI_STATUS_IGNORE);
    check_error_class("the receive", check.rank == 1 && meeting == CUT ? MPI_ERR_TRUNCATE : MPI_SUCCESS, code);
    MPI_OK(MPI_Wait(&sending, MPI_STATUS_IGNORE));
    if (check.rank == 1)
        check_receive(is_long && is_copied, is_long && !is_copied && ports > 0);
    MPI_OK(MPI_Type_free(&sent));
    MPI_OK(MPI_Type_free(&received));
}

static void message(const char *name, int sender, int sent_stride, int received_stride) {
    for (enum meeting meeting = POSTED; meeting < MEETINGS; meeting++) {
        check_case("%s, %s", name, meetings[meeting]);
        for (int i = 0; i < LENGTHS; i++)
            if (meeting != CUT || lengths[i] > 1)
                one(meeting, lengths[i], sender, sent_stride, received_stride);
    }
}

// Uses up the registrations of the adapter. The memory stays allocated, so that no registration serves twice.
static void exhaust(void) {
    for (int i = 0; i < 40; i++) {
        int *fresh = check_alloc(MOST * sizeof *fresh);
        check_one_way(fresh, fresh, MOST, MPI_INT, TAG, MPI_COMM_WORLD);
    }
}

// Sends long messages until all ports read them: some may not be connected when the first comes.
static void connect_ports(void) {
    for (int has_fragments = 0; ports > 0 && !has_fragments; has_fragments = receive.continued > 0) {
        check_one_way(from, to, MOST, MPI_INT, TAG, comm);
        MPI_OK(MPI_Bcast(&receive, sizeof receive, MPI_BYTE, 1, MPI_COMM_WORLD));
    }
}

int main(int argc, char **argv) {
    peruse_event_h handles[KINDS];
    check_start(&argc, &argv, 2);
    ports = check_number(argc, argv, "ports", 0, 8);
    are_copied = check_flag(argc, argv, "copied");
    check_no_more(argc);
    if (are_copied)
        exhaust();
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int i = 0; i < KINDS; i++)
        handles[i] = opened(events[i], comm, on_event, &kinds[i]);
    connect_ports();
    message("whole", 0, 1, 1);
    message("with gaps at the sender", 0, 2, 1);
    message("with gaps at the receiver", 0, 1, 2);
    message("with gaps on both sides", 0, 2, 2);
    message("whole, to the rank itself", 1, 1, 1);
    message("with gaps, to the rank itself", 1, 2, 2);
    released_all(KINDS, handles);
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
