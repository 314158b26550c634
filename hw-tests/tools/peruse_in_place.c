// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Checks how much of a message is in the user's buffer when PERUSE reports a receive's transfer: nothing at the begin,
// one fragment more at each continue, all at the end. For contiguous messages, for gaps at either or both sides, and
// for messages to oneself. 2 ranks.
#include "peruse_handle.h"
#include <peruse.h>

enum { MOST = 100000, MOST_FRAGMENTS = 512, TAG = 5 };
static const int lengths[] = {1, 2000, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static MPI_Comm comm;
static int to[2 * MOST], from[2 * MOST];

// The receive, and how many items were in place at its begin, at each further fragment, and at its end.
static struct {
    int count, stride;
    int begun, continued, ended;
    int at_begin, at[MOST_FRAGMENTS], at_end;
} receive;

static int expected(int i) {
    return i * 7 + 1;
}

static int in_place(void) {
    int i = 0;
    while (i < receive.count && to[i * receive.stride] == expected(i))
        i++;
    return i;
}

enum kind { BEGIN, CONTINUE, END, KINDS };
static const int events[KINDS] = {PERUSE_COMM_REQ_XFER_BEGIN, PERUSE_COMM_REQ_XFER_CONTINUE, PERUSE_COMM_REQ_XFER_END};
static enum kind kinds[KINDS] = {BEGIN, CONTINUE, END};

static int on_event(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *kind) {
    (void)handle, (void)id;
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

static void check_receive(bool has_fragments) {
    check_int("begins", 1, receive.begun);
    check_int("ends", 1, receive.ended);
    check_int("in place at its end", receive.count, receive.at_end);
    check_true("not all is in place at its begin", receive.at_begin < receive.count);
    if (!has_fragments)
        return;
    check_int("in place at its begin", 0, receive.at_begin);
    check_true("there are fragments", receive.continued > 0);
    // All fragments but the last are as long: with the n-th of N there are n N-ths or more.
    int fragments = receive.continued + 2;
    for (int i = 0; i < receive.continued; i++) {
        long long least = (long long)receive.count * (i + 2) / fragments;
        if (receive.at[i] < least)
            check_fail("in place with fragment %d of %d: expected %lld or more of %d, got %d", i + 2, fragments, least, receive.count,
                       receive.at[i]);
    }
}

static void message(const char *name, int sender, int sent_stride, int received_stride) {
    check_case("%s", name);
    for (int i = 0; i < LENGTHS; i++) {
        int count = lengths[i];
        MPI_Request requests[2];
        int used = 0;
        MPI_Datatype sent = check_vector(count, 1, sent_stride, MPI_INT);
        MPI_Datatype received = check_vector(count, 1, received_stride, MPI_INT);
        memset(&receive, 0, sizeof receive);
        memset(to, 0, sizeof to);
        receive.count = count;
        receive.stride = received_stride;
        for (int k = 0; k < count; k++)
            from[k * sent_stride] = expected(k);
        if (check.rank == 1)
            MPI_OK(MPI_Irecv(to, 1, received, sender, TAG, comm, &requests[used++]));
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        if (check.rank == sender)
            MPI_OK(MPI_Isend(from, 1, sent, 1, TAG, comm, &requests[used++]));
        MPI_OK(MPI_Waitall(used, requests, MPI_STATUSES_IGNORE));
        if (check.rank == 1)
            check_receive(count == MOST && sender == 0 && (sent_stride > 1 || received_stride > 1));
        MPI_OK(MPI_Type_free(&sent));
        MPI_OK(MPI_Type_free(&received));
    }
}

int main(int argc, char **argv) {
    peruse_event_h handles[KINDS];
    check_start(&argc, &argv, 2);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < KINDS; i++)
        handles[i] = opened(events[i], comm, on_event, &kinds[i]);
    message("whole", 0, 1, 1);
    message("with gaps at the sender", 0, 2, 1);
    message("with gaps at the receiver", 0, 1, 2);
    message("with gaps on both sides", 0, 2, 2);
    message("whole, to oneself", 1, 1, 1);
    message("with gaps, to oneself", 1, 2, 2);
    for (int i = 0; i < KINDS; i++)
        released(handles[i]);
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
