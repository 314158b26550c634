// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The events of requests, messages and searches, where ibex does the matching: order, ids and specifications, for early
// and late receives, short, long, with gaps, by every mode, wildcards, probes, cancelled, persistent, cut short, to
// the sender; a listener hears its own communicator alone. Rank 0 sends to rank 1. 2 ranks.
//
// A letter stands for an event, and a word for a sequence of events. Requests: A activated, P posted, R taken from the
// posted, U matched with an unexpected message, B E the transfer's begin and end, c its pieces between, X cancelled, C
// complete, N notified, F freed. Messages: a arrived, i inserted in the unexpected, r removed, m matched. Searches: [ ]
// of the posted, ( ) of the unexpected.
#include "peruse_handle.h"
#include <peruse.h>

enum { EVENTS = PERUSE_IBEX_REQ_FREE, MOST = 4096, LONG = 1 << 20, BLOCKS = 1 << 15, TAG = 7 };

static const char letters[EVENTS + 1] = "AUPRBECNairm[]()cXF";

static struct told {
    char letter;
    MPI_Aint id;
    peruse_comm_spec_t spec;
} told[MOST];
static int count;

static MPI_Comm comm;
static peruse_event_h handles[EVENTS];
static unsigned char sent[LONG], got[LONG];
static MPI_Datatype with_gaps;

static int on_event(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    check_true("the parameter is the registration's", parameter == told);
    if (count < MOST)
        told[count++] = (struct told){letters[event_of(handle) - 1], id, *spec};
    return MPI_SUCCESS;
}

static void listen_to(MPI_Comm of) {
    for (int i = 0; i < EVENTS; i++)
        handles[i] = opened(i + 1, of, on_event, told);
}

static void listen_no_more(void) { released_all(EVENTS, handles); }

static bool is_request(char letter) { return strchr("AUPRBcEXCNF", letter) != NULL; }

// Whether each id is of one thing: a request, a message, or a search, which has two events.
static void ids_are_of_one_thing(void) {
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            bool same = told[i].id == told[j].id;
            bool search = strchr("[]()", told[i].letter) != NULL || strchr("[]()", told[j].letter) != NULL;
            if (search)
                check_true("a search's id is its own", same == (j == i - 1 && strchr("])", told[i].letter) != NULL));
            else if (is_request(told[i].letter) != is_request(told[j].letter))
                check_true("a message's id is not a request's", !same);
        }
    }
}

// Expects exactly these events of `id` (0: of all) since the last call; all pieces of a transfer count as one.
static void expect_of(const char *what, MPI_Aint id, const char *word) {
    char seen[MOST + 1];
    int length = 0;
    for (int i = 0; i < count; i++)
        if ((id == 0 || told[i].id == id) && (told[i].letter != 'c' || length == 0 || seen[length - 1] != 'c'))
            seen[length++] = told[i].letter;
    seen[length] = '\0';
    if (strcmp(seen, word) != 0)
        check_fail("%s: expected %s, got %s", what, word, seen);
}

static void expect(const char *what, const char *word) { expect_of(what, 0, word); }

// Expects these events on the sender and on the receiver, and checks ids. Then begins anew.
static void told_of(const char *what, const char *by_sender, const char *by_receiver) {
    expect(what, check.rank == 0 ? by_sender : by_receiver);
    ids_are_of_one_thing();
    count = 0;
}

static void told_of_both(const char *what, const char *word) { told_of(what, word, word); }

// Checks what was said of one request, and of the message that it received.
static void said(const void *buffer, int items, MPI_Datatype datatype, int peer, int tag, int bytes) {
    MPI_Aint id = 0;
    for (int i = 0; i < count; i++) {
        peruse_comm_spec_t *spec = &told[i].spec;
        bool of_message = strchr("airm[]", told[i].letter) != NULL;
        check_true("communicator", spec->comm == comm);
        check_true("buffer", spec->buf == (of_message ? NULL : (void *)(uintptr_t)buffer));
        check_int("count", of_message ? bytes : items, spec->count);
        check_true("datatype", spec->datatype == (of_message ? MPI_BYTE : datatype));
        check_int("peer", of_message ? 1 - check.rank : peer, spec->peer);
        check_int("tag", of_message ? TAG : tag, spec->tag);
        check_int("operation", check.rank == 0 ? PERUSE_SEND : PERUSE_RECV, spec->operation);
        if (is_request(told[i].letter)) {
            check_true("one id for the request", id == 0 || id == told[i].id);
            id = told[i].id;
        }
    }
}

typedef int (*send_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm);

// A message to a receive that waits for it, and one that waits for its receive.
static void early_and_late(const char *what, send_function send, int items, MPI_Datatype datatype, const char *early,
                           const char *late, const char *send_word, bool wild) {
    int peer = wild ? MPI_ANY_SOURCE : 0, tag = wild ? MPI_ANY_TAG : TAG, size = 0;
    MPI_Request request;
    MPI_OK(MPI_Type_size(datatype, &size));
    check_case("%s, with a receive that waits for it", what);
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(got, items, datatype, peer, tag, comm, &request));
    check_meet();
    if (check.rank == 0) {
        MPI_OK(send(sent, items, datatype, 1, TAG, comm));
        said(sent, items, datatype, 1, TAG, 0);
    } else {
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        said(got, items, datatype, peer, tag, items * size);
    }
    told_of("early", send_word, early);

    if (late == NULL)
        return;
    check_case("%s, with a receive that comes late", what);
    if (check.rank == 0)
        MPI_OK(send(sent, items, datatype, 1, TAG, comm));
    check_meet();
    if (check.rank == 1) {
        expect("unexpected", "a[]i");
        MPI_OK(MPI_Recv(got, items, datatype, peer, tag, comm, MPI_STATUS_IGNORE));
        said(got, items, datatype, peer, tag, items * size);
    }
    told_of("late", send_word, late);
}

static void messages_of_every_kind(void) {
    const char *early = "A()Pa[]RmBECNF", *late = "a[]iA()rUBECN", *sending = "ABECN";
    early_and_late("an empty message", MPI_Send, 0, MPI_BYTE, early, late, sending, false);
    early_and_late("a short message", MPI_Send, 2, MPI_INT, early, late, sending, false);
    early_and_late("a short message for anybody", MPI_Send, 2, MPI_INT, early, late, sending, true);
    early_and_late("a message too long to be inline", MPI_Send, 1000, MPI_INT, early, late, sending, false);
    early_and_late("a short ready message", MPI_Rsend, 2, MPI_INT, early, NULL, sending, false);
    early_and_late("a short buffered message", MPI_Bsend, 2, MPI_INT, early, late, sending, false);
    early_and_late("a short synchronous message", MPI_Ssend, 2, MPI_INT, early, NULL, sending, false);
    early_and_late("a message in pieces", MPI_Send, 1, with_gaps, "A()Pa[]RmBcECNF", NULL, "ABcECN", false);
}

static void long_messages(int room) {
    const char *how = room < LONG ? "a long message that is cut" : "a long message";
    MPI_Request request = MPI_REQUEST_NULL;
    for (int is_late = 0; is_late < 2; is_late++) {
        check_case("%s, with a receive that %s", how, is_late ? "comes late" : "waits for it");
        int code = MPI_SUCCESS;
        if (check.rank == 1 && !is_late)
            MPI_OK(MPI_Irecv(got, room, MPI_BYTE, 0, TAG, comm, &request));
        check_meet();
        if (check.rank == 0)
            MPI_OK(MPI_Isend(sent, LONG, MPI_BYTE, 1, TAG, comm, &request));
        check_meet();
        if (check.rank == 1 && is_late)
            MPI_OK(MPI_Irecv(got, room, MPI_BYTE, 0, TAG, comm, &request));
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (check.rank == 1 && room < LONG)
            check_error_class("a receive that is too short", MPI_ERR_TRUNCATE, code);
        else
            MPI_OK(code);
        if (check.rank == 0)
            said(sent, LONG, MPI_BYTE, 1, TAG, 0);
        else
            said(got, room, MPI_BYTE, 0, TAG, LONG);
        // The adapter decides how many reads it takes.
        int kept = 0;
        for (int i = 0; i < count; i++)
            if (told[i].letter != 'c')
                told[kept++] = told[i];
        count = kept;
        told_of("long", "ABECNF", is_late ? "a[]iA()rUBECNF" : "A()Pa[]RmBECNF");
    }
}

static void a_synchronous_send_is_complete_when_it_is_matched(void) {
    MPI_Request request;
    check_case("a synchronous send is complete when it is matched");
    if (check.rank == 0)
        MPI_OK(MPI_Issend(sent, 1, MPI_INT, 1, TAG, comm, &request));
    check_meet();
    expect("before the receive", check.rank == 0 ? "ABE" : "a[]i");
    check_meet();
    if (check.rank == 0)
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    else
        MPI_OK(MPI_Recv(got, 1, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
    told_of("after", "ABECNF", "a[]iA()rUBECN");
}

static void a_message_that_is_cut(void) {
    MPI_Request request;
    check_case("a short message that is cut");
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(got, 1, MPI_INT, 0, TAG, comm, &request));
    check_meet();
    if (check.rank == 0)
        MPI_OK(MPI_Send(sent, 3, MPI_INT, 1, TAG, comm));
    else
        check_error_class("a receive that is too short", MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
    told_of("cut", "ABECN", "A()Pa[]RmBECNF");
}

static void a_receive_that_is_cancelled(void) {
    check_case("a receive that is cancelled");
    if (check.rank == 1) {
        MPI_Request request;
        MPI_OK(MPI_Irecv(got, 1, MPI_INT, 0, TAG, comm, &request));
        MPI_OK(MPI_Cancel(&request));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        said(got, 1, MPI_INT, 0, TAG, 0);
    }
    told_of("cancelled", "", "A()PRXCNF");
}

static void finish(MPI_Request *request, int how) {
    int done = 0, index = 0;
    do {
        switch (how) {
        case 0: MPI_OK(MPI_Wait(request, MPI_STATUS_IGNORE)); break;
        case 1: MPI_OK(MPI_Waitall(1, request, MPI_STATUSES_IGNORE)); break;
        case 2: MPI_OK(MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE)); break;
        case 3: MPI_OK(MPI_Waitsome(1, request, &done, &index, MPI_STATUSES_IGNORE)); break;
        case 4: MPI_OK(MPI_Test(request, &done, MPI_STATUS_IGNORE)); break;
        case 5: MPI_OK(MPI_Testall(1, request, &done, MPI_STATUSES_IGNORE)); break;
        case 6: MPI_OK(MPI_Testany(1, request, &index, &done, MPI_STATUS_IGNORE)); break;
        default: MPI_OK(MPI_Testsome(1, request, &done, &index, MPI_STATUSES_IGNORE));
        }
    } while (how > 3 && done == 0);
}

static void persistent_requests(void) {
    enum { ROUNDS = 8 };
    MPI_Request request;
    MPI_Aint last = 0;
    check_case("persistent requests, by every way of waiting");
    if (check.rank == 0)
        MPI_OK(MPI_Send_init(sent, 2, MPI_INT, 1, TAG, comm, &request));
    else
        MPI_OK(MPI_Recv_init(got, 2, MPI_INT, 0, TAG, comm, &request));
    expect("made", "");
    for (int round = 0; round < ROUNDS; round++) {
        if (check.rank == 1)
            MPI_OK(MPI_Start(&request));
        check_meet();
        if (check.rank == 0)
            MPI_OK(MPI_Start(&request));
        check_meet();
        expect("under way", check.rank == 0 ? "ABEC" : "A()Pa[]RmBEC");
        finish(&request, round);
        check_true("each start has an id of its own", count > 0 && told[0].id != last);
        last = told[0].id;
        if (check.rank == 0)
            said(sent, 2, MPI_INT, 1, TAG, 0);
        else
            said(got, 2, MPI_INT, 0, TAG, 8);
        told_of("told", "ABECN", "A()Pa[]RmBECN");
        check_meet();
    }
    MPI_OK(MPI_Request_free(&request));
    expect("freed", "F");
    check_true("as the last start", told[0].id == last);
    count = 0;
    MPI_OK(MPI_Recv_init(got, 2, MPI_INT, 1 - check.rank, TAG, comm, &request));
    MPI_OK(MPI_Request_free(&request));
    expect("never begun", "F");
    check_true("it has an id of its own", told[0].id != last);
    count = 0;
}

static void a_persistent_buffered_send(void) {
    MPI_Request request;
    check_case("a persistent buffered send");
    if (check.rank == 0) {
        MPI_OK(MPI_Bsend_init(sent, 2, MPI_INT, 1, TAG, comm, &request));
        MPI_OK(MPI_Start(&request));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        said(sent, 2, MPI_INT, 1, TAG, 0);
        MPI_OK(MPI_Request_free(&request));
    } else {
        MPI_OK(MPI_Recv(got, 2, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
        count = 0;
    }
    told_of("buffered", "ABECNF", "");
}

static void probes(void) {
    check_case("probes search, and a matched probe takes the message out");
    if (check.rank == 0) {
        MPI_OK(MPI_Send(sent, 2, MPI_INT, 1, TAG, comm));
        count = 0;
    }
    check_meet();
    if (check.rank == 1) {
        int found = 0;
        MPI_Message message;
        expect("unexpected", "a[]i");
        MPI_Aint id = told[0].id;
        count = 0;
        MPI_OK(MPI_Iprobe(0, TAG + 1, comm, &found, MPI_STATUS_IGNORE));
        check_int("nothing of that tag", 0, found);
        expect("no message", "()");
        MPI_OK(MPI_Probe(0, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE));
        expect("a message", "()()");
        check_int("tag of the search", MPI_ANY_TAG, told[3].spec.tag);
        count = 0;
        MPI_OK(MPI_Mprobe(MPI_ANY_SOURCE, TAG, comm, &message, MPI_STATUS_IGNORE));
        expect("taken out", "()r");
        check_true("it is the one that came", told[2].id == id);
        count = 0;
        MPI_OK(MPI_Mrecv(got, 2, MPI_INT, &message, MPI_STATUS_IGNORE));
        said(got, 2, MPI_INT, 0, TAG, 8);
    }
    told_of("received", "", "AUBECN");
}

static void messages_to_oneself(void) {
    MPI_Request request;
    MPI_Aint message = 0;
    check_case("a message of a rank to itself");
    MPI_OK(MPI_Irecv(got, 2, MPI_INT, check.rank, TAG, comm, &request));
    MPI_OK(MPI_Send(sent, 2, MPI_INT, check.rank, TAG, comm));
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < count; i++)
        message = told[i].letter == 'a' ? told[i].id : message;
    check_true("receive and send", count > 4 && told[0].letter == 'A' && told[4].letter == 'A');
    expect_of("receive", told[0].id, "APRBECNF");
    expect_of("send", told[4].id, "ABECN");
    expect_of("message", message, "am");
    told_of_both("its transfer begins when it is matched", "A()PAa[]RmBBEECCNNF");

    check_case("a message of a rank to itself whose receive comes late");
    MPI_OK(MPI_Send(sent, 2, MPI_INT, check.rank, TAG, comm));
    expect("a copy is kept", "Aa[]BiECN");
    MPI_OK(MPI_Recv(got, 2, MPI_INT, check.rank, TAG, comm, MPI_STATUS_IGNORE));
    told_of_both("received", "Aa[]BiECNA()rUBECN");
    MPI_OK(MPI_Issend(sent, 2, MPI_INT, check.rank, TAG, comm, &request));
    expect("it stays where it is", "Aa[]i");
    MPI_OK(MPI_Recv(got, 2, MPI_INT, check.rank, TAG, comm, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    told_of_both("received from there", "Aa[]iA()rUBBEECCNNF");

    check_case("a message of a rank to itself that is cut");
    MPI_OK(MPI_Irecv(got, 1, MPI_INT, check.rank, TAG, comm, &request));
    MPI_OK(MPI_Send(sent, 2, MPI_INT, check.rank, TAG, comm));
    check_error_class("a receive that is too short", MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
    told_of_both("as one with room", "A()PAa[]RmBBEECCNNF");
}

static void a_window_is_closed_for_copies_too(void) {
    MPI_Comm copy;
    check_case("a listener gets the events of copies that it follows, until its window is closed");
    for (int i = 0; i < EVENTS; i++) {
        check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handles[i]));
        check_int("propagate", PERUSE_SUCCESS, PERUSE_Event_propagate(handles[i], PERUSE_TRUE));
        check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handles[i]));
    }
    MPI_OK(MPI_Comm_dup(comm, &copy));
    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handles[PERUSE_COMM_REQ_NOTIFY - 1]));
    count = 0;
    check_one_way(sent, got, 2, MPI_INT, TAG, copy);
    check_meet();
    for (int i = 0; i < count; i++)
        check_true("the copy", told[i].spec.comm == copy);
    if (check.rank == 0)
        expect("a copy", "ABEC");
    else
        check_true("a copy", count > 6 && told[count - 1].letter == 'C');
    MPI_OK(MPI_Comm_free(&copy));
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handles[PERUSE_COMM_REQ_NOTIFY - 1]));
    count = 0;
}

static void a_window_that_opens_while_a_receive_waits(void) {
    MPI_Request request;
    check_case("a window that opens while a receive waits shows the rest of it");
    listen_no_more();
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
    listen_to(comm);
    check_meet();
    if (check.rank == 0) {
        MPI_OK(MPI_Send(sent, 2, MPI_INT, 1, TAG, comm));
    } else {
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        said(got, 2, MPI_INT, 0, TAG, 8);
    }
    told_of("the rest", "ABECN", "a[]RmBECNF");
}

static void blocking_receives(void) {
    enum { ROUNDS = 20 };
    check_case("a blocking receive waits, also behind another receive whose message comes first");
    for (int round = 0; round < ROUNDS; round++) {
        int second[2] = {0, 0};
        MPI_Request request;
        if (check.rank == 1) {
            MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
            MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
            MPI_OK(MPI_Recv(second, 2, MPI_INT, 0, TAG + 1, comm, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            check_true("what came", second[0] == round && second[1] == -round);
            expect_of("the first", told[0].id, "APRBECNF");
            MPI_Aint id = 0;
            for (int i = 1; i < count; i++)
                id = told[i].letter == 'A' ? told[i].id : id;
            // The message may have come when the first one's was looked for.
            bool is_unexpected = false;
            for (int i = 0; i < count; i++)
                is_unexpected |= told[i].letter == 'U';
            expect_of("the blocking one", id, is_unexpected ? "AUBECN" : "APRBECN");
        } else {
            int bytes[2] = {round, -round};
            MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Send(sent, 2, MPI_INT, 1, TAG, comm));
            MPI_OK(MPI_Send(bytes, 2, MPI_INT, 1, TAG + 1, comm));
            expect("both", "ABECNABECN");
        }
        ids_are_of_one_thing();
        count = 0;
    }
}

static void a_window_that_opens_after_what_nobody_was_told_of(void) {
    enum { BEFORE = 4 };
    check_case("a window shows all of requests that receives of unexpected messages used before");
    listen_no_more();
    // Before that the other rank would be told of the first message.
    check_meet();
    for (int i = 0; i < BEFORE; i++) {
        if (check.rank == 0)
            MPI_OK(MPI_Send(sent, 2, MPI_INT, 1, TAG, comm));
        check_meet();
        if (check.rank == 1)
            MPI_OK(MPI_Recv(got, 2, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
    }
    listen_to(comm);
    if (check.rank == 1)
        MPI_OK(MPI_Ssend(sent, 2, MPI_INT, 0, TAG, comm));
    else
        MPI_OK(MPI_Recv(got, 2, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE));
    if (check.rank == 1)
        expect("the send", "ABECN");
    count = 0;
    check_meet();
}

int main(int argc, char **argv) {
    static unsigned char attached[1 << 16];
    check_start(&argc, &argv, 2);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    MPI_OK(MPI_Buffer_attach(attached, sizeof attached));
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    // Too long to be whole, and a byte in every second of it.
    with_gaps = check_vector(BLOCKS * 4, 1, 2, MPI_BYTE);
    // Connects the ranks before anything is listened to.
    MPI_OK(MPI_Sendrecv(sent, 1, MPI_INT, check.rank, 0, got, 1, MPI_INT, check.rank, 0, comm, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Sendrecv(sent, 1, MPI_INT, 1 - check.rank, 0, got, 1, MPI_INT, 1 - check.rank, 0, comm, MPI_STATUS_IGNORE));
    listen_to(comm);
    check_meet();
    messages_of_every_kind();
    long_messages(LONG);
    long_messages(LONG / 2);
    long_messages(0);
    a_synchronous_send_is_complete_when_it_is_matched();
    a_message_that_is_cut();
    a_receive_that_is_cancelled();
    persistent_requests();
    a_persistent_buffered_send();
    probes();
    messages_to_oneself();
    a_window_is_closed_for_copies_too();
    a_window_that_opens_while_a_receive_waits();
    blocking_receives();
    a_window_that_opens_after_what_nobody_was_told_of();
    listen_no_more();
    MPI_OK(MPI_Type_free(&with_gaps));
    MPI_OK(MPI_Comm_free(&comm));
    MPI_OK(MPI_Buffer_detach(&(void *){NULL}, &(int){0}));
    return check_finish();
}
