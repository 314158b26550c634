// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The MPI_T events of requests, messages and searches, where ibex does the matching: which come, in which order, with
// which elements and times, for an early receiver, a late one and a late wait; from full buffers; to callbacks that may
// do anything. Rank 0 of 2 ranks sends. Cases of `peruse_requests` come again: each interface has code of its own.
//
// A letter stands for an event, and a word for a sequence of events. Requests: A activated, P posted, R taken from the
// posted, U matched with an unexpected message, B E the transfer's begin and end, c its pieces between, X cancelled, C
// complete, N notified, F freed. Messages: a arrived, i inserted in the unexpected, r removed, m matched. Searches: [ ]
// of the posted, ( ) of the unexpected.
#include "../mpi/elements.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { EVENTS = 19, MOST = 1 << 16, LONG = 1 << 20, TAG = 7, ELEMENTS = 10 };

static const char letters[EVENTS + 1] = "AUPRBECNairm[]()cXF";
static const char *const names[EVENTS] = {
    "comm_req_activate",         "comm_req_match_unex",        "comm_req_insert_in_posted_q", "comm_req_remove_from_posted_q",
    "comm_req_xfer_begin",       "comm_req_xfer_end",          "comm_req_complete",           "comm_req_notify",
    "comm_msg_arrived",          "comm_msg_insert_in_unex_q",  "comm_msg_remove_from_unex_q", "comm_msg_match_posted_req",
    "comm_search_posted_q_begin", "comm_search_posted_q_end",  "comm_search_unex_q_begin",    "comm_search_unex_q_end",
    "comm_req_xfer_continue",    "comm_req_cancel",            "comm_req_free",
};

// The elements, as docs/events.md lays them out.
struct told {
    char letter;
    MPI_Count time;
    struct matching event;
};

static struct {
    struct told told[MOST];
    int count, dropped;
    MPI_T_event_registration registrations[EVENTS];
} tool;

static MPI_Comm comm;
static unsigned char sent[LONG], got[LONG];

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety,
                     void *user) {
    const char *letter = user;
    struct told told = {.letter = *letter};
    uint64_t id = 0;
    int source = -1;
    check_true("the registration is the one", registration == tool.registrations[letter - letters]);
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &told.event));
    check_int("time", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &told.time));
    check_int("read", MPI_SUCCESS, MPI_T_event_read(instance, 0, &id));
    check_true("the same id", id == told.event.id);
    check_int("no such element", MPI_T_ERR_INVALID_INDEX, MPI_T_event_read(instance, ELEMENTS, &id));
    check_int("source", MPI_SUCCESS, MPI_T_event_get_source(instance, &source));
    check_true("of the matching", is_source(source, "host:matching"));
    check_int("a flush within a callback", MPI_T_ERR_INVALID, ibex_events_flush());
    if (tool.count < MOST)
        tool.told[tool.count++] = told;
}

static void on_dropped(MPI_Count count, MPI_T_event_registration, int, MPI_T_cb_safety, void *) {
    tool.dropped += (int)count;
}

// Registers for an event of the communicator.
static MPI_T_event_registration registered_for(int event, MPI_Info info) {
    char name[64];
    snprintf(name, sizeof name, "ibex_%s", names[event]);
    return registered(name, &comm, info);
}

static void listen_to_all(MPI_Info info, int level) {
    for (int i = 0; i < EVENTS; i++) {
        tool.registrations[i] = registered_for(i, info);
        check_int("handler", MPI_SUCCESS, MPI_T_event_set_dropped_handler(tool.registrations[i], on_dropped));
        call_back(tool.registrations[i], level, on_event, (void *)&letters[i]);
    }
    tool.count = tool.dropped = 0;
}

static void listen_to_none(void) {
    for (int i = 0; i < EVENTS; i++)
        listen_no_more(tool.registrations[i]);
}

// Expects these events since the last call, each no earlier than the one before; leaves out further pieces and reads.
static void expect(const char *what, const char *by_sender, const char *by_receiver) {
    const char *word = check.rank == 0 ? by_sender : by_receiver;
    char seen[MOST + 1];
    int length = 0;
    for (int i = 0; i < tool.count; i++) {
        if (tool.told[i].letter != 'c')
            seen[length++] = tool.told[i].letter;
        if (i > 0)
            check_true("in the order of time", tool.told[i - 1].time <= tool.told[i].time);
    }
    seen[length] = '\0';
    if (strcmp(seen, word) != 0)
        check_fail("%s: expected %s, got %s", what, word, seen);
    tool.count = 0;
}

// Checks the events of one request and its message, of a receive for `peer` and `tag`.
static void elements(const void *buffer, int items, int bytes, int peer, int tag, bool is_late) {
    uint64_t request = 0, message = 0;
    for (int i = 0; i < tool.count; i++) {
        const struct told *told = &tool.told[i];
        const struct matching *event = &told->event;
        bool of_message = strchr("airm[]", told->letter) != NULL, of_search = strchr("[]()", told->letter) != NULL;
        uint64_t *id = of_message ? &message : &request;
        bool waits = !is_late && strchr("Pa[]", told->letter) != NULL, unexpected = is_late && strchr("iA(", told->letter) != NULL;
        if (!of_search) {
            check_true("one id for each", *id == 0 || *id == event->id);
            *id = event->id;
        }
        check_true("buffer", event->buffer == (of_message ? 0 : (uint64_t)(uintptr_t)buffer));
        check_int("bytes", bytes, (long long)event->bytes);
        check_int("count", of_message ? bytes : items, event->count);
        check_int("peer", of_message ? 1 - check.rank : peer, event->peer);
        check_int("tag", of_message ? TAG : tag, event->tag);
        check_int("operation", check.rank, event->operation);
        check_int("context", tool.told[0].event.context, event->context);
        if (check.rank == 1 && told->letter != ']') {
            check_int("receives that wait", waits, event->posted);
            check_int("unexpected messages", unexpected, event->unexpected);
        }
    }
    check_true("a request is no message", request != message);
}

// The first two are blocking calls, whose requests MPI never sees; MPI frees the requests of the others.
static const char *const late = "a[]iA()rUBECN", *const sending = "ABECN", *const early = "A()Pa[]RmBECNF", *const sending_on = "ABECNF";

static void early_receiver(int items, int peer, int tag) {
    MPI_Request request;
    check_case("an early receiver, %d numbers", items);
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(got, items, MPI_INT, peer, tag, comm, &request));
    check_meet();
    if (check.rank == 0) {
        MPI_OK(MPI_Ssend(sent, items, MPI_INT, 1, TAG, comm));
        elements(sent, items, 4 * items, 1, TAG, false);
    } else {
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        elements(got, items, 4 * items, peer, tag, false);
    }
    expect("early", sending, early);
}

static void late_receiver(int items) {
    MPI_Request request;
    check_case("a late receiver, %d numbers", items);
    if (check.rank == 0)
        MPI_OK(MPI_Isend(sent, items, MPI_INT, 1, TAG, comm, &request));
    check_meet();
    check_meet();
    if (check.rank == 0) {
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        elements(sent, items, 4 * items, 1, TAG, true);
    } else {
        MPI_OK(MPI_Recv(got, items, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
        elements(got, items, 4 * items, 0, TAG, true);
    }
    expect("late", sending_on, late);
}

// The request completes before its owner asks, which a wrapper around MPI's calls could not show.
static void late_wait(void) {
    MPI_Request request;
    MPI_Count asked = 0, complete = 0;
    int source;
    check_case("a late wait");
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
    check_meet();
    if (check.rank == 0)
        MPI_OK(MPI_Isend(sent, 2, MPI_INT, 1, TAG, comm, &request));
    check_meet();
    if (tool.count > 0)
        complete = tool.told[tool.count - 1].time;
    expect("before the wait", "ABEC", "A()Pa[]RmBEC");
    MPI_OK(MPI_T_source_get_num(&source));
    for (int i = 0; i < source; i++)
        if (is_source(i, "host:matching"))
            MPI_OK(MPI_T_source_get_timestamp(i, &asked));
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_true("complete before it is asked", complete > 0 && complete < asked);
    check_true("told after", tool.count == 2 && tool.told[0].time > asked);
    expect("by the wait", "NF", "NF");
}

// Requests that do not end by a wait.
static void cancelled_and_freed(void) {
    MPI_Request request;
    check_meet();
    tool.count = 0;
    check_case("a receive that is cancelled");
    if (check.rank == 1) {
        MPI_Status status;
        int was_cancelled = 0;
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
        MPI_OK(MPI_Cancel(&request));
        MPI_OK(MPI_Wait(&request, &status));
        MPI_OK(MPI_Test_cancelled(&status, &was_cancelled));
        check_true("it was", was_cancelled);
        elements(got, 2, 8, 0, TAG, false);
    }
    expect("cancelled", "", "A()PRXCNF");

    check_case("a receive that comes too late to be cancelled");
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
    check_meet();
    if (check.rank == 0)
        MPI_OK(MPI_Send(sent, 2, MPI_INT, 1, TAG, comm));
    check_meet();
    if (check.rank == 1) {
        MPI_OK(MPI_Cancel(&request));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    expect("not cancelled", sending, early);

    check_case("a receive that is freed before its message has come");
    if (check.rank == 1) {
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
        MPI_OK(MPI_Request_free(&request));
    }
    check_meet();
    if (check.rank == 0)
        MPI_OK(MPI_Send(sent, 2, MPI_INT, 1, TAG, comm));
    check_meet();
    if (check.rank == 1)
        check_true("the same request", tool.count == 13 && tool.told[4].event.id == tool.told[12].event.id);
    expect("freed early", sending, "A()PFa[]RmBEC");
}

static void exchange(void) {
    if (check.rank == 0)
        MPI_OK(MPI_Ssend(sent, 2, MPI_INT, 1, TAG, comm));
    else
        MPI_OK(MPI_Recv(got, 2, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
}

static void a_buffer_that_is_full(void) {
    enum { MESSAGES = 50 };
    MPI_Request requests[MESSAGES];
    MPI_Info info = with_buffer("4");
    check_case("a full buffer drops events, counts and reports them");
    listen_to_all(info, MPI_T_CB_REQUIRE_NONE);
    check_meet();
    // The program does not wait for these.
    for (int i = 0; i < MESSAGES && check.rank == 1; i++)
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &requests[i]));
    if (check.rank == 1) {
        check_int("flush", MPI_SUCCESS, ibex_events_flush());
        // Activated, posted, and two of a search: four events of each type are kept.
        check_int("told", 4 * 4, tool.count);
        check_int("lost", 4 * (MESSAGES - 4), tool.dropped);
        for (int i = 1; i < tool.count; i++)
            check_true("in the order of time", tool.told[i - 1].time <= tool.told[i].time);
    }
    check_meet();
    for (int i = 0; i < MESSAGES && check.rank == 0; i++)
        MPI_OK(MPI_Isend(sent, 2, MPI_INT, 1, TAG, comm, &requests[i]));
    MPI_OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    listen_to_none();
    int told = tool.count + tool.dropped;
    check_int("all is told or counted", MESSAGES * (int)strlen(check.rank == 0 ? sending_on : early), told);
    MPI_OK(MPI_Info_free(&info));
}

static struct {
    int events, within;
    MPI_T_cb_safety level;
} anything;

// Communicates with the other rank's callback, as only one of MPI_T_CB_REQUIRE_NONE may.
static void on_event_communicating(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety safety, void *) {
    int one = 1, sum = 0;
    check_int("one at a time", 0, anything.within++);
    MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    check_int("of both ranks", 2, sum);
    anything.events++;
    anything.level = safety;
    anything.within--;
}

static void callbacks_that_may_do_anything(void) {
    enum { NOTIFY = 7 };
    MPI_Request request;
    check_case("callbacks that may do anything are called at the end of a call of the program's");
    MPI_T_event_registration registration = registered_for(NOTIFY, MPI_INFO_NULL);
    call_back(registration, MPI_T_CB_REQUIRE_NONE, on_event_communicating, NULL);
    check_meet();
    exchange();
    check_int("at the end of a blocking call", 1, anything.events);
    check_int("nothing is asked of it", MPI_T_CB_REQUIRE_NONE, anything.level);
    if (check.rank == 0)
        MPI_OK(MPI_Issend(sent, 2, MPI_INT, 1, TAG, comm, &request));
    else
        MPI_OK(MPI_Irecv(got, 2, MPI_INT, 0, TAG, comm, &request));
    check_int("nothing yet", 1, anything.events);
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_int("at the end of a wait", 2, anything.events);
    listen_no_more(registration);
    check_int("no more at its end", 2, anything.events);
}

int main(int argc, char **argv) {
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    // Connects the ranks before anything is compared.
    MPI_OK(MPI_Sendrecv(sent, 1, MPI_INT, check.rank, 0, got, 1, MPI_INT, check.rank, 0, comm, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Sendrecv(sent, 1, MPI_INT, 1 - check.rank, 0, got, 1, MPI_INT, 1 - check.rank, 0, comm, MPI_STATUS_IGNORE));
    listen_to_all(MPI_INFO_NULL, MPI_T_CB_REQUIRE_THREAD_SAFE);
    for (int items = 0; items <= LONG / 4; items = items == 0 ? 2 : items == 2 ? 1000 : items == 1000 ? LONG / 4 : LONG) {
        early_receiver(items, 0, TAG);
        late_receiver(items);
    }
    early_receiver(2, MPI_ANY_SOURCE, MPI_ANY_TAG);
    late_wait();
    cancelled_and_freed();
    listen_to_none();
    a_buffer_that_is_full();
    callbacks_that_may_do_anything();
    MPI_OK(MPI_Comm_free(&comm));
    MPI_OK(MPI_T_finalize());
    return check_finish();
}
