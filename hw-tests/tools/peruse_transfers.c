// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What PERUSE's callbacks are told: of messages of all ways of transfer, several at a time, that each begins and ends once and has one
// id, which no other has meanwhile, and every field of its specification; which callback is called, when windows open and
// close and callbacks are replaced; and of puts and gets, that each is started and completed. With the argument `pieces`, where the
// transport has been told to send long messages in pieces: that there are pieces, and not puts and gets. 2 or more ranks.
#include "../mpi/check.h"
#include <peruse.h>

enum { ROUNDS = 4, LENGTHS = 7, MESSAGES = ROUNDS * LENGTHS, MOST = 1 << 20, BYTES = 20000, OPERATIONS = 256 };

static const int lengths[LENGTHS] = {0, 1, 160, 4096, 20000, 70000, MOST};

static MPI_Comm comm;

static int event_of(peruse_event_h handle) {
    int event = PERUSE_EVENT_INVALID;
    check_int("PERUSE_Event_get", PERUSE_SUCCESS, PERUSE_Event_get(handle, &event));
    return event;
}

static peruse_event_h opened(int event, peruse_comm_callback_f *callback, void *parameter) {
    peruse_event_h handle = PERUSE_EVENT_HANDLE_NULL;
    check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(event, comm, callback, parameter, &handle));
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    return handle;
}

static void released(peruse_event_h handle) {
    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handle));
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
}

// ---- messages ---------------------------------------------------------------------------------------------------------

// A message, by its tag.
static struct message {
    MPI_Aint id;
    int begun, continued, ended;
} messages[MESSAGES];

static int on_transfer(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    int event = event_of(handle), tag = spec->tag, sends = check.rank == 0;
    // Messages of collective calls have tags of their own.
    if (tag < 0)
        return MPI_SUCCESS;
    if (tag >= MESSAGES) {
        check_fail("tag: expected one below %d, got %d", MESSAGES, tag);
        return MPI_SUCCESS;
    }
    check_true("the communicator is the handle's", spec->comm == comm);
    check_true("the parameter is the registration's", parameter == messages);
    check_true("the buffer is not known", spec->buf == NULL);
    check_true("the count is in bytes", spec->datatype == MPI_BYTE);
    check_int("count", lengths[tag % LENGTHS], spec->count);
    check_int("peer", 1 - check.rank, spec->peer);
    check_int("operation", sends ? PERUSE_SEND : PERUSE_RECV, spec->operation);
    struct message *message = &messages[tag];
    if (event == PERUSE_COMM_REQ_XFER_BEGIN) {
        message->id = id;
        message->begun++;
        for (int other = 0; other < MESSAGES; other++)
            check_true("no other has its id", other == tag || messages[other].begun == messages[other].ended || messages[other].id != id);
    } else {
        check_true("one id from begin to end", message->id == id);
        check_int("begun before", message->ended + 1, message->begun);
        message->continued += event == PERUSE_COMM_REQ_XFER_CONTINUE;
        message->ended += event == PERUSE_COMM_REQ_XFER_END;
    }
    return MPI_SUCCESS;
}

// Rank 0 sends all messages from `tag` on to rank 1.
static void exchange(int tag, int count) {
    static unsigned char buffers[MESSAGES][MOST];
    MPI_Request requests[MESSAGES];
    if (check.rank > 1)
        return;
    for (int i = 0; i < count; i++) {
        int bytes = lengths[(tag + i) % LENGTHS];
        if (check.rank == 0)
            MPI_OK(MPI_Isend(buffers[i], bytes, MPI_BYTE, 1, tag + i, comm, &requests[i]));
        else
            MPI_OK(MPI_Irecv(buffers[i], bytes, MPI_BYTE, 0, tag + i, comm, &requests[i]));
    }
    MPI_OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
}

static void each_begins_and_ends_once(bool in_pieces) {
    static const int kinds[] = {PERUSE_COMM_REQ_XFER_BEGIN, PERUSE_COMM_REQ_XFER_CONTINUE, PERUSE_COMM_REQ_XFER_END};
    peruse_event_h handles[3];
    int continued = 0;
    check_case("every message begins and ends once, with one id");
    for (int i = 0; i < 3; i++)
        handles[i] = opened(kinds[i], on_transfer, messages);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    exchange(0, MESSAGES);
    for (int i = 0; i < 3; i++)
        released(handles[i]);
    for (int tag = 0; tag < MESSAGES; tag++) {
        check_int("begins", check.rank < 2, messages[tag].begun);
        check_int("ends", check.rank < 2, messages[tag].ended);
        continued += messages[tag].continued;
    }
    if (in_pieces && check.rank < 2)
        check_true("the longest has pieces between its first and its last", continued >= ROUNDS);
    check_end_case();
}

// ---- which callback is called -----------------------------------------------------------------------------------------

static int first, second, third;

static int on_first(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    (void)handle, (void)id;
    *(int *)parameter += spec->tag >= 0;
    return MPI_SUCCESS;
}

static int on_second(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    (void)handle, (void)id, (void)parameter;
    second += spec->tag >= 0;
    return MPI_SUCCESS;
}

// Exchanges a few messages, and says how often each callback was called since the last time.
static void called(const char *what, int of_first, int of_second, int of_third) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    exchange(0, 4);
    // A window that is opened or closed shows what has happened before; so does any.
    released(opened(PERUSE_IBEX_PUT_STARTED, on_second, NULL));
    bool takes_part = check.rank < 2;
    check_int(what, takes_part ? of_first : 0, first);
    check_int(what, takes_part ? of_second : 0, second);
    check_int(what, takes_part ? of_third : 0, third);
    first = second = third = 0;
}

static void windows_are_independent(void) {
    const int event = PERUSE_COMM_REQ_XFER_END;
    check_case("windows are independent, and callbacks the last that were set");
    peruse_event_h one = opened(event, on_first, &first);
    called("one", 4, 0, 0);
    peruse_event_h other = opened(event, on_first, &third);
    called("two of one callback", 4, 0, 4);
    check_int("refused", PERUSE_ERR_EVENT_HANDLE, PERUSE_Event_comm_callback_set(one, on_second, NULL));
    called("one that is active cannot be replaced", 4, 0, 4);
    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(one));
    called("the window of one is closed", 0, 0, 4);
    check_int("set", PERUSE_SUCCESS, PERUSE_Event_comm_callback_set(one, on_second, NULL));
    called("replaced, and closed", 0, 0, 4);
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(one));
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(one));
    called("replaced, opened twice", 0, 4, 4);
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&one));
    called("one is released while it is open", 0, 0, 4);
    released(other);
    called("none is left", 0, 0, 0);
    check_end_case();
}

// ---- puts and gets ----------------------------------------------------------------------------------------------------

static struct operation {
    MPI_Aint id;
    peruse_comm_spec_t spec;
    bool completed;
} operations[OPERATIONS];
static int started;

static int on_operation(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    int event = event_of(handle);
    (void)parameter;
    check_int("tag", -1, spec->tag);
    check_true("the communicator is the handle's", spec->comm == comm);
    check_true("the count is in bytes", spec->datatype == MPI_BYTE);
    check_true("it has a place", spec->buf != NULL);
    check_true("its peer is in the communicator", spec->peer >= 0 && spec->peer < check.size);
    bool is_put = event == PERUSE_IBEX_PUT_STARTED || event == PERUSE_IBEX_PUT_COMPLETE;
    check_int("operation", is_put ? PERUSE_PUT : PERUSE_GET, spec->operation);
    if (event == PERUSE_IBEX_PUT_STARTED || event == PERUSE_IBEX_GET_STARTED) {
        operations[started % OPERATIONS] = (struct operation){id, *spec, false};
        started++;
        return MPI_SUCCESS;
    }
    for (int i = started - 1; i >= 0; i--) {
        struct operation *operation = &operations[i % OPERATIONS];
        if (operation->id != id || operation->completed)
            continue;
        operation->completed = true;
        check_int("bytes", operation->spec.count, spec->count);
        check_true("place", operation->spec.buf == spec->buf);
        check_int("peer", operation->spec.peer, spec->peer);
        check_int("operation", operation->spec.operation, spec->operation);
        return MPI_SUCCESS;
    }
    check_fail("operation %ld: expected a start, got none", (long)id);
    return MPI_SUCCESS;
}

static void puts_and_gets(void) {
    static const int kinds[] = {PERUSE_IBEX_PUT_STARTED, PERUSE_IBEX_PUT_COMPLETE, PERUSE_IBEX_GET_STARTED,
                                PERUSE_IBEX_GET_COMPLETE};
    static unsigned char memory[2 * BYTES], put[BYTES], got[BYTES];
    peruse_event_h handles[4];
    MPI_Win window;
    int found = 0, target = (check.rank + 1) % check.size;
    check_case("puts and gets are started and completed");
    for (int i = 0; i < 4; i++)
        handles[i] = opened(kinds[i], on_operation, NULL);
    MPI_OK(MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI_OK(MPI_Win_fence(0, window));
    MPI_OK(MPI_Put(put, BYTES, MPI_BYTE, target, 0, BYTES, MPI_BYTE, window));
    MPI_OK(MPI_Get(got, BYTES, MPI_BYTE, target, BYTES, BYTES, MPI_BYTE, window));
    MPI_OK(MPI_Win_fence(0, window));
    MPI_OK(MPI_Win_free(&window));
    for (int i = 0; i < 4; i++)
        released(handles[i]);
    for (int i = 0; i < started && i < OPERATIONS; i++) {
        peruse_comm_spec_t *spec = &operations[i].spec;
        check_true("it is complete", operations[i].completed);
        found += spec->count == BYTES && spec->peer == target && (spec->buf == put || spec->buf == got);
    }
    check_int("those of the program", 2, found);
    check_end_case();
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    bool in_pieces = argc > 1 && strcmp(argv[1], "pieces") == 0;
    each_begins_and_ends_once(in_pieces);
    windows_are_independent();
    if (!in_pieces)
        puts_and_gets();
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
