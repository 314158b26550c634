// SPDX-License-Identifier: MIT OR Apache-2.0
//
// ibex_comm_req_protocol, where ibex does the matching, tells by which protocol, why and by which port a message goes:
// one event of each request before it is done, with its number and at the receiver the message's; two of a send whose
// receiver could read it and wants copies. Rank 0 sends to rank 1. 2 ranks.
//
// usage: mpi_t_protocols WHAT [no-inline]
//   adapter       by the adapter, each way that does not need a parameter; and to the sender itself
//   shared        by shared memory
//   held-back     with pml_ibex_unexpected_memory so small that senders are held back
//   unregistered  where memory cannot be registered from some moment on
//   rails         long messages by two ports
// no-inline: the adapter takes nothing inside a work request
#include "../mpi/elements.h"
#include "../mpi/told.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum protocol { INLINE, COPIED, READ, PIECES, SHARED, ONESELF };
enum reason { SIZE, SYNCHRONOUS, GAPS, NOT_REGISTERED, HELD_BACK, ADAPTER, TO_ONESELF, SAME_HOST };

enum { MOST = 1 << 14, LONG = 1 << 20, SHORT = 4096, TAG = 7, TRIES = 200 };
static const uint32_t NO_PORT = 4294967295u;

// The elements, as docs/events.md lays them out.
struct protocol_event {
    uint64_t id, message, bytes;
    uint32_t context, protocol, reason, port, queue_pair, rails;
};

// Letters of the events: request activated, its protocol, request complete; message arrived, message removed.
static const char letters[] = "ApCam";
static const char *const names[] = {"ibex_comm_req_activate", "ibex_comm_req_protocol", "ibex_comm_req_complete", "ibex_comm_msg_arrived",
                                    "ibex_comm_msg_remove_from_unex_q"};
enum { EVENTS = sizeof names / sizeof *names };

static struct told {
    char letter;
    uint64_t id;
    uint32_t context;
    int tag;
    struct protocol_event protocol;
} told[MOST];
static int count;
static uint32_t queue_pair_to[2][8];

static MPI_Comm comm;
static uint32_t context;
static bool has_inline = true;
static unsigned char *sent, *got;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *user) {
    const char letter = *(const char *)user;
    struct told event = {.letter = letter};
    if (letter == 'p') {
        struct protocol_event *protocol = &event.protocol;
        uint32_t read = 0;
        check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, protocol));
        check_int("read", MPI_SUCCESS, MPI_T_event_read(instance, 4, &read));
        check_int("the same protocol", protocol->protocol, read);
        event.id = protocol->id, event.context = protocol->context;
        bool is_nowhere = protocol->protocol == SHARED || protocol->protocol == ONESELF;
        check_true("a protocol", protocol->protocol <= ONESELF);
        check_true("a reason", protocol->reason <= SAME_HOST);
        check_true("a port if it goes by one", is_nowhere == (protocol->port == NO_PORT));
        check_true("a queue pair", is_nowhere == (protocol->queue_pair == 0));
        check_true("rails", is_nowhere ? protocol->rails == 0 : protocol->rails >= 1);
        check_true("a number", protocol->id != 0 && protocol->id != protocol->message);
    } else {
        struct matching matching;
        check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &matching));
        event.id = matching.id, event.context = matching.context, event.tag = matching.tag;
    }
    if (count < MOST)
        told[count++] = event;
}

static void on_connected(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    struct connection connected;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &connected));
    if (connected.peer < 2 && connected.port < 8)
        queue_pair_to[connected.peer][connected.port] = connected.queue_pair;
}

static void listen_to_all(void) {
    for (int i = 0; i < EVENTS; i++)
        listen_to(names[i], NULL, on_event, (void *)&letters[i]);
    listen_to("ibex_connection_established", NULL, on_connected, NULL);
}

// Place of the next event of this letter in the communicator; MOST if there is none.
static int next(char letter, int from, uint64_t id) {
    while (from < count && !(told[from].letter == letter && told[from].context == context && (id == 0 || told[from].id == id)))
        from++;
    return from < count ? from : MOST;
}

// Place of the second event of a send to be read, whose receiver wants copies; else `at`.
static int answered(int at) {
    int second = at < count && told[at].protocol.protocol == READ ? next('p', at + 1, told[at].id) : MOST;
    return second < MOST ? second : at;
}

// Returns the protocol event of the one request since the last call, the second if the receiver asked for copies. It
// must lie between the request's beginning and end (a buffered send may go later), and name the arrived message.
static const struct protocol_event *the_one(bool is_receive, bool is_buffered, bool is_asked, int bytes) {
    for (int is_there = 0, first = MOST; is_buffered && (first == MOST || (is_asked && answered(first) == first));) {
        MPI_OK(MPI_Iprobe(1 - check.rank, TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE));
        first = next('p', 0, 0);
    }
    int activated = next('A', 0, 0), first = next('p', 0, 0), at = answered(first);
    static const struct protocol_event none = {.protocol = 99, .reason = 99};
    if (at == MOST || activated == MOST) {
        check_fail("expected an event, got %s", at == MOST ? "none of a protocol" : "no request");
        return &none;
    }
    const struct protocol_event *event = &told[at].protocol;
    check_int("a second one, if the receiver wants copies", is_asked, at != first);
    check_int("none beyond it", MOST, next('p', at + 1, 0));
    check_true("first that it can be read", !is_asked || told[first].protocol.reason == SIZE);
    check_true("the request's number", event->id == told[activated].id && at > activated);
    check_true("before its end", is_buffered || next('C', 0, event->id) > at);
    check_int("bytes", bytes, (long long)event->bytes);
    if (is_receive) {
        int arrived = next('a', 0, 0);
        check_true("the message's number", arrived < at && event->message == told[arrived].id);
        int removed = next('m', 0, 0);
        check_true("as when it was unexpected", removed == MOST || (removed < at && told[removed].id == event->message));
    } else {
        check_true("a send has no message", event->message == 0);
    }
    uint32_t of_connection = event->port < 8 ? queue_pair_to[1 - check.rank][event->port] : 0;
    check_true("the queue pair of the connection", of_connection == 0 || of_connection == event->queue_pair);
    return event;
}

static void goes(const struct protocol_event *event, enum protocol protocol, enum reason reason) {
    if (event->protocol != protocol || event->reason != reason)
        check_fail("expected protocol %d for reason %d, got %u for %u", protocol, reason, event->protocol, event->reason);
}

enum sending { SEND, SSEND, ISEND, ISSEND, BSEND, RSEND, STARTED, SENDINGS };
enum receiving { RECV, EARLY, LATE, PROBED, EARLY_STARTED, RECEIVINGS };

static void send_by(enum sending how, const void *from, int items, MPI_Datatype type, int to) {
    MPI_Request request = MPI_REQUEST_NULL;
    switch (how) {
    case SEND: MPI_OK(MPI_Send(from, items, type, to, TAG, comm)); break;
    case SSEND: MPI_OK(MPI_Ssend(from, items, type, to, TAG, comm)); break;
    case ISEND: MPI_OK(MPI_Isend(from, items, type, to, TAG, comm, &request)); break;
    case ISSEND: MPI_OK(MPI_Issend(from, items, type, to, TAG, comm, &request)); break;
    case BSEND: MPI_OK(MPI_Bsend(from, items, type, to, TAG, comm)); break;
    case RSEND: MPI_OK(MPI_Rsend(from, items, type, to, TAG, comm)); break;
    default:
        MPI_OK(MPI_Send_init(from, items, type, to, TAG, comm, &request));
        MPI_OK(MPI_Start(&request));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Request_free(&request));
    }
    if (request != MPI_REQUEST_NULL)
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

struct expected {
    enum protocol protocol;
    enum reason reason;
};

// One message of so many integers; with gaps at either side if the types have some.
static void one(const char *what, enum sending sending, enum receiving receiving, int items, bool gaps_here, bool gaps_there,
                struct expected sender, struct expected receiver) {
    MPI_Datatype spread = check_vector(items, 1, 2, MPI_INT);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message;
    int bytes = 4 * items;
    bool with_gaps = check.rank == 0 ? gaps_here : gaps_there;
    MPI_Datatype type = with_gaps ? spread : MPI_INT;
    int of_type = with_gaps ? (items > 0) : items;
    check_case("%s, %d bytes, sent %d, received %d, gaps %d %d", what, bytes, sending, receiving, gaps_here, gaps_there);
    pattern_fill(sent, (size_t)bytes * 2, (uint64_t)bytes);
    count = 0;
    check_meet();
    bool is_early = receiving == EARLY || receiving == EARLY_STARTED;
    if (check.rank == 1 && receiving == EARLY)
        MPI_OK(MPI_Irecv(got, of_type, type, 0, TAG, comm, &request));
    if (check.rank == 1 && receiving == EARLY_STARTED) {
        MPI_OK(MPI_Recv_init(got, of_type, type, 0, TAG, comm, &request));
        MPI_OK(MPI_Start(&request));
    }
    if (is_early)
        check_meet();
    if (check.rank == 0) {
        // A synchronous send must not wait for a receive that comes late.
        if (receiving == LATE || receiving == PROBED) {
            MPI_OK(sending == SSEND ? MPI_Issend(sent, of_type, type, 1, TAG, comm, &request)
                                    : MPI_Isend(sent, of_type, type, 1, TAG, comm, &request));
            check_meet();
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            send_by(sending, sent, of_type, type, 1);
        }
        bool is_asked = !gaps_here && sender.protocol == PIECES;
        goes(the_one(false, sending == BSEND, is_asked, bytes), sender.protocol, sender.reason);
    } else {
        if (receiving == LATE || receiving == PROBED)
            check_meet();
        if (is_early) {
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else if (receiving == PROBED) {
            MPI_OK(MPI_Mprobe(0, TAG, comm, &message, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Mrecv(got, of_type, type, &message, MPI_STATUS_IGNORE));
        } else {
            MPI_OK(MPI_Recv(got, of_type, type, 0, TAG, comm, MPI_STATUS_IGNORE));
        }
        goes(the_one(true, false, false, bytes), receiver.protocol, receiver.reason);
        if (request != MPI_REQUEST_NULL)
            MPI_OK(MPI_Request_free(&request));
    }
    MPI_OK(MPI_Type_free(&spread));
}

// Each way to send and to receive it. Buffered data is packed, so it has no gaps.
static void each(const char *what, int items, bool gaps_here, bool gaps_there, struct expected sender, struct expected receiver) {
    for (enum sending sending = SEND; sending < SENDINGS; sending++)
        if (sending != BSEND || !gaps_here)
            one(what, sending, EARLY, items, gaps_here, gaps_there, sender, receiver);
    for (enum receiving receiving = RECV; receiving < RECEIVINGS; receiving++)
        one(what, receiving == LATE ? SSEND : SEND, receiving, items, gaps_here, gaps_there, sender, receiver);
}

static void to_oneself(void) {
    MPI_Request request;
    for (int items = 0; items <= LONG / 4; items = items == 0 ? 2 : items == 2 ? SHORT / 4 : items == SHORT / 4 ? LONG / 4 : LONG) {
        for (int is_late = 0; is_late < 2; is_late++) {
            check_case("to the rank itself, %d bytes, %s", 4 * items, is_late ? "late" : "early");
            count = 0;
            if (is_late)
                MPI_OK(MPI_Isend(sent, items, MPI_INT, check.rank, TAG, comm, &request));
            else
                MPI_OK(MPI_Irecv(got, items, MPI_INT, check.rank, TAG, comm, &request));
            if (is_late)
                MPI_OK(MPI_Recv(got, items, MPI_INT, check.rank, TAG, comm, MPI_STATUS_IGNORE));
            else
                MPI_OK(MPI_Send(sent, items, MPI_INT, check.rank, TAG, comm));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            int receives = 0, all = 0;
            for (int at = next('p', 0, 0); at < MOST; at = next('p', at + 1, 0), all++) {
                goes(&told[at].protocol, ONESELF, TO_ONESELF);
                check_int("bytes", 4 * items, (long long)told[at].protocol.bytes);
                if (told[at].protocol.message != 0) {
                    receives++;
                    check_true("its message", next('a', 0, told[at].protocol.message) < at);
                }
                check_true("its request", next('A', 0, told[at].id) < at && next('C', 0, told[at].id) > at);
            }
            check_int("one of the send, one of the receive", 2, all);
            check_int("one of the receive", 1, receives);
        }
    }
}

static void by_the_adapter(void) {
    const struct expected small = {has_inline ? INLINE : COPIED, has_inline ? SIZE : ADAPTER};
    const struct expected copied = {COPIED, has_inline ? SIZE : ADAPTER}, read = {READ, SIZE}, pieces = {PIECES, GAPS};
    const struct expected scattered = {COPIED, has_inline ? GAPS : ADAPTER};
    each("short", 2, false, false, small, small);
    each("empty", 0, false, false, small, small);
    each("with gaps there", 2, false, true, small, small);
    each("with gaps", 2, true, false, scattered, small);
    each("copied", SHORT / 4, false, false, copied, copied);
    each("copied with gaps", SHORT / 4, true, true, copied, copied);
    each("long", LONG / 4, false, false, read, read);
    each("long with gaps", LONG / 4, true, false, pieces, pieces);
    each("long with gaps there", LONG / 4, false, true, pieces, pieces);
    each("long with gaps on both sides", LONG / 4, true, true, pieces, pieces);
    one("buffered with gaps", BSEND, EARLY, 2, true, false, small, small);
    one("buffered with gaps", BSEND, EARLY, LONG / 4, true, false, read, read);
    to_oneself();
}

static void by_shared_memory(void) {
    const struct expected shared = {SHARED, SAME_HOST};
    for (int gaps = 0; gaps < 4; gaps++) {
        each("shared", 2, gaps & 1, gaps & 2, shared, shared);
        each("shared", SHORT / 4, gaps & 1, gaps & 2, shared, shared);
        each("shared", LONG / 4, gaps & 1, gaps & 2, shared, shared);
    }
    to_oneself();
}

// The first message between two processes waits for their connection, and then goes like any other.
static void the_first(void) {
    check_case("the first message waits for the connection");
    count = 0;
    // Rank 1 could get the message in MPI_Init already, and would forget its events here.
    check_true("rank 1 is there", check.rank == 0 ? is_told(0, 1) : (tell(0, 1), true));
    check_one_way(sent, got, 2, MPI_INT, TAG, MPI_COMM_WORLD);
    context = 0;
    goes(the_one(check.rank == 1, false, false, 8), has_inline ? INLINE : COPIED, has_inline ? SIZE : ADAPTER);
}

// The protocols of all requests in the communicator, in order. If a request has two events, the second counts.
static int all_told(struct expected *all, int most) {
    int found = 0;
    for (int at = next('p', 0, 0); at < MOST && found < most; at = next('p', at + 1, 0))
        if (answered(at) == at)
            all[found++] = (struct expected){(enum protocol)told[at].protocol.protocol, (enum reason)told[at].protocol.reason};
    return found;
}

// Compares the protocols of `messages` messages on both sides; they differ only where the receiver cannot know.
static void compare(int messages, enum protocol protocol, enum reason reason) {
    struct expected mine[TRIES], others[TRIES];
    int there = 0, found = all_told(mine, TRIES), seen = 0;
    check_int("one of each", messages, found);
    MPI_OK(MPI_Sendrecv(mine, sizeof mine, MPI_BYTE, 1 - check.rank, 0, others, sizeof others, MPI_BYTE, 1 - check.rank, 0,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Sendrecv(&found, 1, MPI_INT, 1 - check.rank, 0, &there, 1, MPI_INT, 1 - check.rank, 0, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
    check_int("as many there", found, there);
    for (int i = 0; i < found; i++) {
        bool here = mine[i].reason == reason;
        seen += here;
        check_true("both say so", here == (others[i].reason == reason) && (!here || mine[i].protocol == protocol));
    }
    check_true("some", seen > 0);
}

static void held_back(void) {
    enum { BYTES = 100 };
    MPI_Request requests[TRIES];
    check_case("senders that are held back announce, and send pieces");
    count = 0;
    check_meet();
    for (int i = 0; i < TRIES; i++) {
        if (check.rank == 0)
            MPI_OK(MPI_Isend(sent, BYTES, MPI_BYTE, 1, TAG, comm, &requests[i]));
        if (i < TRIES / 4)
            check_meet();
    }
    for (int i = 0; i < TRIES && check.rank == 1; i++)
        MPI_OK(MPI_Recv(got, BYTES, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE));
    if (check.rank == 0)
        MPI_OK(MPI_Waitall(TRIES, requests, MPI_STATUSES_IGNORE));
    compare(TRIES, PIECES, HELD_BACK);
}

static void unregistered(void) {
    enum { MESSAGES = 40, BYTES = 1 << 16 };
    check_case("messages whose memory cannot be registered go in pieces");
    count = 0;
    check_meet();
    for (int i = 0; i < MESSAGES; i++) {
        // Memory that was not registered before, and is not given back.
        unsigned char *fresh = check_alloc(BYTES);
        memset(fresh, i, BYTES);
        check_one_way(fresh, fresh, BYTES, MPI_BYTE, TAG, comm);
    }
    compare(MESSAGES, PIECES, NOT_REGISTERED);
}

static void by_rails(void) {
    int both = 0;
    check_case("long messages go by both ports");
    // One of them may take long to connect.
    for (int i = 0; i < 50 * TRIES && both < 3; i++) {
        count = 0;
        check_meet();
        check_one_way(sent, got, LONG, MPI_BYTE, TAG, comm);
        const struct protocol_event *event = the_one(check.rank == 1, false, false, LONG);
        goes(event, READ, SIZE);
        if (check.rank == 0)
            check_int("announced by both", 2, event->rails);
        int is_by_both = event->rails == 2;
        MPI_OK(MPI_Bcast(&is_by_both, 1, MPI_INT, 1, MPI_COMM_WORLD));
        both += is_by_both;
    }
    check_int("read by both", 3, both);
    const struct expected small = {has_inline ? INLINE : COPIED, has_inline ? SIZE : ADAPTER};
    const struct expected copied = {COPIED, has_inline ? SIZE : ADAPTER};
    each("short by one of two", 2, false, false, small, small);
    each("copied by one of two", SHORT / 4, false, false, copied, copied);
}

int main(int argc, char **argv) {
    static unsigned char attached[2 * LONG + 4096];
    const char *what = argc > 1 ? argv[1] : "adapter";
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    has_inline = argc < 3 || strcmp(argv[2], "no-inline") != 0;
    listen_to_all();
    check_start(&argc, &argv, 2);
    sent = check_alloc(2 * LONG), got = check_alloc(2 * LONG);
    memset(sent, 1, 2 * LONG);
    MPI_OK(MPI_Buffer_attach(attached, sizeof attached));
    if (strcmp(what, "adapter") == 0)
        the_first();
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    // Connects both ranks, and finds the communicator's context by a message in it.
    count = 0;
    check_meet();
    MPI_OK(MPI_Sendrecv(sent, 1, MPI_INT, 1 - check.rank, 0, got, 1, MPI_INT, 1 - check.rank, 0, comm, MPI_STATUS_IGNORE));
    for (int at = 0; at < count; at++)
        context = told[at].letter == 'A' ? told[at].context : context;
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
    if (strcmp(what, "shared") == 0)
        by_shared_memory();
    else if (strcmp(what, "held-back") == 0)
        held_back();
    else if (strcmp(what, "unregistered") == 0)
        unregistered();
    else if (strcmp(what, "rails") == 0)
        by_rails();
    else
        by_the_adapter();
    check_meet();
    MPI_OK(MPI_Comm_free(&comm));
    MPI_OK(MPI_Buffer_detach(&(void *){NULL}, &(int){0}));
    return check_finish();
}
