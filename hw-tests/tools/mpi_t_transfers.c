// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Transfers where ibex does the matching: each message arrives once, and begins and ends once at both sides; its steps
// have the numbers of the ibex_comm_* events of the same request and message, and transfer all bytes once. With
// `stamped`, a port is the source of the events of its completions, which come in order. If the receiver reads a
// message, the sender's transfer begins and ends with the receiver's answer. 2 ranks.
#include "../mpi/elements.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { MESSAGES = 40, LONG = 60000, LONGEST = 3 << 20, READ_SIZE = 1 << 20, NAMES = 9, SENT = 0, RECEIVED = 1, SIDES = 2 };
static const char *const names[NAMES] = {"ibex_comm_req_xfer_begin", "ibex_comm_req_xfer_end", "ibex_comm_msg_arrived",
                                         "ibex_xfer_begin",          "ibex_xfer_continue",     "ibex_xfer_end",
                                         "ibex_msg_arrived",         "ibex_get_started",       "ibex_get_complete"};
enum { REQUEST_BEGIN, REQUEST_END, MESSAGE, BEGIN, CONTINUE, END, ARRIVED, READ_STARTED, READ_COMPLETE };
static const int lengths[] = {0, 8, 3000, LONG, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static MPI_Comm comm;
static bool is_stamped;

union element {
    struct transfer transfer;
    struct operation read;
    struct arrival arrived;
    struct matching matching;
    unsigned char bytes[128];
};

// The contents of a message's events on each side; the index is its tag.
static struct side {
    uint64_t request, message, named_request, named_message, moved;
    int begun, ended, arrived, order_is_wrong;
    uint32_t context;
    MPI_Count begun_at, ended_at;
    bool begins_by_port, ends_by_port, has_arrived_by_port;
} sides[SIDES][MESSAGES];
static bool is_of_port[256];

// The reads of messages: under way, and done, by receive.
enum { READS = 4096 };
static struct operation under_way[READS];
static int reads_under_way, reads_done;
static struct { uint64_t request, bytes; } was_read[MESSAGES];

static bool is_read(int tag) { return lengths[tag % LENGTHS] >= LONG; }

// A step from a port's source names its port; every step names the source of the thread that handled it.
static void check_by(bool is_by_port, uint32_t port, uint32_t thread) {
    check_true("a port of its source's", !is_by_port || port != UINT32_MAX);
    check_true("a thread's source", thread < 256 && !is_of_port[thread]);
}

// This process posts a read, and its adapter completes it, once.
static void on_read(const struct operation *read, bool is_complete, bool is_by_port) {
    check_true("a read of a message", read->request != 0);
    check_int("it is the host that posts, and the adapter that completes", is_complete && is_stamped, is_by_port);
    check_int("process that is read from", 1 - check.rank, read->peer);
    check_true("no longer than the caller has said", read->bytes > 0 && read->bytes <= READ_SIZE);
    int place = 0;
    while (place < reads_under_way && under_way[place].operation != read->operation)
        place++;
    check_int("a read that is done was posted, and one that is posted has a number of its own", is_complete, place < reads_under_way);
    if (!is_complete) {
        if (place < READS)
            under_way[reads_under_way++] = *read;
        return;
    }
    const struct operation *posted = &under_way[place];
    check_int("status", 0, read->status);
    check_true("a thread's source", read->thread < 256 && !is_of_port[read->thread]);
    check_true("by a port, which is that of the post", read->port != UINT32_MAX && read->port == posted->thread);
    check_true("of the same memory", posted->local == read->local && posted->remote == read->remote && posted->bytes == read->bytes);
    under_way[place] = under_way[--reads_under_way];
    for (place = 0; place < reads_done && was_read[place].request != read->request; place++)
        ;
    if (place == MESSAGES)
        return check_fail("reads of more messages than there are");
    reads_done += place == reads_done;
    was_read[place].request = read->request;
    was_read[place].bytes += read->bytes;
}

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *user) {
    int kind = *(const int *)user, source = -1;
    union element element;
    MPI_Count time;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &element));
    check_int("source", MPI_SUCCESS, MPI_T_event_get_source(instance, &source));
    check_int("timestamp", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &time));
    bool is_matching = kind <= MESSAGE, is_by_port = source >= 0 && source < 256 && is_of_port[source];
    if (kind >= READ_STARTED)
        return on_read(&element.read, kind == READ_COMPLETE, is_by_port);
    int tag = is_matching ? element.matching.tag : kind == ARRIVED ? element.arrived.tag : element.transfer.tag;
    if (tag < 0 || tag >= MESSAGES)
        return;
    bool is_received = kind == MESSAGE || kind == ARRIVED || (is_matching ? element.matching.operation == 1 : element.transfer.direction == 1);
    struct side *side = &sides[is_received][tag];
    switch (kind) {
    case REQUEST_BEGIN:
    case REQUEST_END:
        side->named_request = element.matching.id;
        return;
    case MESSAGE:
        side->named_message = element.matching.id;
        return;
    case ARRIVED:
        side->arrived++;
        side->message = element.arrived.message;
        side->context = element.arrived.context;
        side->has_arrived_by_port = is_by_port;
        check_by(is_by_port, element.arrived.port, element.arrived.thread);
        check_true("it came by a port", element.arrived.port != UINT32_MAX);
        check_int("sender of an arrival", 1 - check.rank, element.arrived.source);
        check_int("process of its sender", 1 - check.rank, element.arrived.peer);
        check_int("bytes of the whole message", lengths[tag % LENGTHS], (long long)element.arrived.total);
        check_int("bytes that have come", is_read(tag) ? 0 : lengths[tag % LENGTHS], (long long)element.arrived.bytes);
        return;
    default:
        break;
    }
    check_by(is_by_port, element.transfer.port, element.transfer.thread);
    bool is_answered = !is_received && is_read(tag);
    if (!is_received && kind == BEGIN)
        check_int("a send that is read begins by a completion, and any other by a post", is_answered, element.transfer.port != UINT32_MAX);
    if (!is_received && kind == END)
        check_int("a send ends on its port's source where a completion tells of it",
                  is_stamped && element.transfer.port != UINT32_MAX, is_by_port);
    if (is_answered)
        check_true("its begin has no bytes, and nothing is between that and its end", kind == BEGIN ? element.transfer.bytes == 0 : kind == END);
    check_int("sender", is_received ? 1 - check.rank : check.rank, element.transfer.source);
    check_int("process of the other", 1 - check.rank, element.transfer.peer);
    check_int("bytes of the whole message", lengths[tag % LENGTHS], (long long)element.transfer.total);
    side->begun += kind == BEGIN;
    side->ended += kind == END;
    side->order_is_wrong += kind == BEGIN ? side->begun != 1 : side->begun != 1 || side->ended != (kind == END);
    side->request = element.transfer.request;
    if (is_received)
        check_true("the number and communicator of the message, if it has arrived before",
                   side->message == 0 ||
                       (element.transfer.message == side->message && element.transfer.context == side->context));
    // The caller has set the length of the pieces in which a long message is read.
    check_true("no piece of a read is longer", !is_received || element.transfer.bytes <= READ_SIZE);
    side->moved += element.transfer.bytes;
    if (kind == BEGIN)
        side->begins_by_port = is_by_port, side->begun_at = time;
    if (kind == END)
        side->ends_by_port = is_by_port, side->ended_at = time;
}

static int kinds[NAMES] = {REQUEST_BEGIN, REQUEST_END, MESSAGE, BEGIN, CONTINUE, END, ARRIVED, READ_STARTED, READ_COMPLETE};
static MPI_T_event_registration registrations[NAMES];

static void listen(void) {
    int sources;
    for (int i = 0; i < NAMES; i++)
        registrations[i] = listen_to(names[i], &comm, on_event, &kinds[i]);
    check_int("sources", MPI_SUCCESS, MPI_T_source_get_num(&sources));
    for (int source = 0; source < sources && source < 256; source++)
        is_of_port[source] = !is_source(source, "host:");
}

// Each rank sends a message of each tag; those of even tags meet a receive, the others are unexpected.
static void exchange(void) {
    static unsigned char out[LONGEST], in[MESSAGES][LONGEST];
    MPI_Request requests[2 * MESSAGES];
    int other = 1 - check.rank;
    for (int tag = 0; tag < MESSAGES; tag += 2)
        MPI_OK(MPI_Irecv(in[tag], LONGEST, MPI_BYTE, other, tag, comm, &requests[tag]));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int tag = 0; tag < MESSAGES; tag++)
        MPI_OK(MPI_Isend(out, lengths[tag % LENGTHS], MPI_BYTE, other, tag, comm, &requests[MESSAGES + tag]));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
    for (int tag = 1; tag < MESSAGES; tag += 2)
        check_int("begins before there is a receive", !is_read(tag), sides[SENT][tag].begun);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int tag = 1; tag < MESSAGES; tag += 2)
        MPI_OK(MPI_Irecv(in[tag], LONGEST, MPI_BYTE, other, tag, comm, &requests[tag]));
    MPI_OK(MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    is_stamped = argc > 1 && strcmp(argv[1], "stamped") == 0;
    check_int("MPI_T", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    listen();
    check_case("each transfer is reported once, with all bytes, and the numbers of its request and message");
    exchange();
    for (int is_received = 0; is_received < SIDES; is_received++) {
        for (int tag = 0; tag < MESSAGES; tag++) {
            const struct side *side = &sides[is_received][tag];
            int length = lengths[tag % LENGTHS];
            check_int("begins", 1, side->begun);
            check_int("ends", 1, side->ended);
            check_int("out of order", 0, side->order_is_wrong);
            check_int("bytes", length, (long long)side->moved);
            check_true("the request's number", side->request != 0 && side->request == side->named_request);
            check_int("arrives", is_received, side->arrived);
            check_true("the message's number", side->message == side->named_message);
        }
    }
    check_case("each long message was read whole, and nothing else was");
    check_int("reads under way", 0, reads_under_way);
    for (int tag = 0; tag < MESSAGES; tag++) {
        int length = lengths[tag % LENGTHS], place = 0;
        while (place < reads_done && was_read[place].request != sides[RECEIVED][tag].request)
            place++;
        check_int("bytes that were read", length >= LONG ? length : 0, place < reads_done ? (long long)was_read[place].bytes : 0);
    }
    check_int("messages that were read", 2 * MESSAGES / LENGTHS, reads_done);
    check_case("completed steps have the adapter's time, and posted ones the host's");
    for (int tag = 0; tag < MESSAGES && is_stamped; tag++) {
        const struct side *received = &sides[RECEIVED][tag], *sent = &sides[SENT][tag];
        bool is_expected = tag % 2 == 0;
        check_true("an arrival is on its port's source", received->has_arrived_by_port);
        // The call that posts the receive copies an unexpected message; a read's completion ends one that is read.
        if (is_expected || is_read(tag))
            check_true("so is the end of what it brings, or a read", received->ends_by_port);
        check_int("the begin of a receive, with its bytes", is_expected && !is_read(tag), received->begins_by_port);
        check_int("the begin of a send is the host's, unless an answer tells it", is_read(tag), sent->begins_by_port);
        if (is_read(tag))
            check_true("which tells its end, too", sent->ends_by_port && sent->begun_at == sent->ended_at);
    }
    for (int i = 0; i < NAMES; i++)
        listen_no_more(registrations[i]);
    check_int("MPI_T", MPI_SUCCESS, MPI_T_finalize());
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
