// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE has no timestamps: callbacks come as things happen, each message of a blocking exchange from begin to end
// before the next one, also while a tool by MPI_T has the same events by the adapter's clock. Neither tool notices when
// the other closes windows, frees handles or finalizes. 2 ranks.
#include "mpi_t_listen.h"
#include "peruse_handle.h"
#include <ibex_mpi_t.h>
#include <peruse.h>

enum { MESSAGES = 12, LONGEST = 1 << 20, ROOM = 256, KINDS = 2, ELEMENT_TAG = 7 };
enum { BEGIN = 'b', END = 'e' };

static const int lengths[] = {LONGEST, 8, 4000, LONGEST, 70000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static const char *const xfer_end = "ibex_xfer_end";

static MPI_Comm comm;

static int length_of(int tag) { return lengths[tag % LENGTHS]; }

static struct called {
    char what;
    int tag;
} calls[ROOM];
static int called;

static int on_peruse(peruse_event_h, MPI_Aint, peruse_comm_spec_t *spec, void *what) {
    if (spec->tag < 0 || called == ROOM)
        return MPI_SUCCESS;
    check_int("peer", 1 - check.rank, spec->peer);
    check_int("bytes", length_of(spec->tag), spec->count);
    calls[called++] = (struct called){*(char *)what, spec->tag};
    return MPI_SUCCESS;
}

// By MPI_T: how many of each message, and the last timestamp of each source.
static int shown[MESSAGES];
static MPI_Count last[64];

static void on_mpi_t(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    int source = -1, tag = -1;
    MPI_Count timestamp = -1;
    check_int("read", MPI_SUCCESS, MPI_T_event_read(instance, ELEMENT_TAG, &tag));
    check_int("source", MPI_SUCCESS, MPI_T_event_get_source(instance, &source));
    check_int("timestamp", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &timestamp));
    check_true("in the order of the source's clock", timestamp >= last[source % 64]);
    last[source % 64] = timestamp;
    if (tag >= 0 && tag < MESSAGES)
        shown[tag]++;
}

static unsigned char buffer[LONGEST];

static void exchange(MPI_Comm on) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int tag = 0; tag < MESSAGES; tag++) {
        if (check.rank == 0)
            MPI_OK(MPI_Ssend(buffer, length_of(tag), MPI_BYTE, 1, tag, on));
        else
            MPI_OK(MPI_Recv(buffer, length_of(tag), MPI_BYTE, 0, tag, on, MPI_STATUS_IGNORE));
    }
}

static void check_order(void) {
    check_int("calls", 2 * MESSAGES, called);
    for (int i = 0; i < called; i++) {
        check_int("the message", i / 2, calls[i].tag);
        check_int("begin, end", i % 2 ? END : BEGIN, calls[i].what);
    }
    called = 0;
}

// Shows the pending events, then checks how often each tool has seen each message, and clears the counts.
static void seen(const char *what, int by_peruse, int by_mpi_t) {
    released(opened(PERUSE_IBEX_PUT_STARTED, comm, on_peruse, NULL));
    for (int tag = 0; tag < MESSAGES; tag++) {
        int calls_of_tag = 0;
        for (int i = 0; i < called; i++)
            calls_of_tag += calls[i].tag == tag;
        check_int(what, by_peruse, calls_of_tag);
        check_int(what, by_mpi_t, shown[tag]);
    }
    called = 0;
    memset(shown, 0, sizeof shown);
}

static void events_are_called_as_they_happen(void) {
    char begin = BEGIN, end = END;
    peruse_event_h handles[KINDS] = {opened(PERUSE_COMM_REQ_XFER_BEGIN, comm, on_peruse, &begin),
                                     opened(PERUSE_COMM_REQ_XFER_END, comm, on_peruse, &end)};
    check_case("callbacks of PERUSE are called as things happen");
    exchange(comm);
    check_order();

    check_case("beside a tool by MPI_T, which has the order of the sources");
    MPI_T_event_registration registrations[KINDS] = {listen_to("ibex_xfer_begin", &comm, on_mpi_t, NULL),
                                                     listen_to(xfer_end, &comm, on_mpi_t, NULL)};
    exchange(comm);
    check_order();
    for (int i = 0; i < KINDS; i++)
        listen_no_more(registrations[i]);
    seen("both, begin and end, by MPI_T", 0, KINDS);
    released_all(KINDS, handles);
}

static void tools_do_not_touch_each_other(void) {
    char end = END;
    called = 0;
    check_case("two tools at once, by two interfaces, do not touch each other");
    MPI_T_event_registration registration = listen_at(MPI_T_CB_REQUIRE_MPI_RESTRICTED, xfer_end, &comm, on_mpi_t, NULL);
    peruse_event_h handle = opened(PERUSE_COMM_REQ_XFER_END, comm, on_peruse, &end), other;
    exchange(comm);
    exchange(MPI_COMM_WORLD);
    seen("both see their communicator alone", 1, 1);

    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handle));
    exchange(comm);
    seen("MPI_T beside a closed window", 0, 1);

    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    listen_no_more(registration);
    exchange(comm);
    seen("PERUSE beside a registration that is freed", 1, 0);

    listen_at(MPI_T_CB_REQUIRE_MPI_RESTRICTED, xfer_end, &comm, on_mpi_t, NULL);
    listen_at(MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, xfer_end, &comm, on_mpi_t, NULL);
    other = opened(PERUSE_COMM_REQ_XFER_END, comm, on_peruse, &end);
    exchange(comm);
    seen("two of each", 2, 2);

    check_int("MPI_T", MPI_SUCCESS, MPI_T_finalize());
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&other));
    exchange(comm);
    seen("PERUSE after MPI_T", 1, 0);
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    check_int("MPI_T", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    events_are_called_as_they_happen();
    tools_do_not_touch_each_other();
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
