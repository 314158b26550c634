// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Two tools at once, one by PERUSE and one by MPI_T: both see every message of a communicator. MPI_T events are in the
// order of each source (peruse_order.c checks the order of PERUSE). Neither tool is affected when the other closes
// windows, frees handles or finalizes its interface. 2 or more ranks.
#include "mpi_t_listen.h"
#include "peruse_handle.h"
#include <ibex_mpi_t.h>
#include <peruse.h>

enum { MESSAGES = 20, LONG = 100000, MOST = 4 * MESSAGES };

// What a tool saw: the tags, of messages sent and received.
struct tool {
    int count;
    int tags[MOST];
};

// The last timestamp of each source.
static MPI_Count last[64];

static struct tool peruse, mpi_t;
static int tag_element = -1;
static const char *const xfer_end = "btl_ibex_xfer_end";

static void note(struct tool *tool, int tag) {
    if (tool->count < MOST && tag >= 0)
        tool->tags[tool->count++] = tag;
}

static int on_peruse(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    (void)handle, (void)id;
    note(parameter, spec->tag);
    return MPI_SUCCESS;
}

static void on_mpi_t(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    int tag = -1;
    (void)registration, (void)safety;
    int source = 0;
    MPI_Count timestamp = -1;
    check_int("read", MPI_SUCCESS, MPI_T_event_read(instance, tag_element, &tag));
    check_int("source", MPI_SUCCESS, MPI_T_event_get_source(instance, &source));
    check_int("timestamp", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &timestamp));
    // Each registration in its order; two take turns, and have the same events.
    check_true("in the order of the source's clock", timestamp >= last[source % 64]);
    last[source % 64] = timestamp;
    note(user, tag);
}

static void exchange(MPI_Comm comm) {
    static unsigned char out[LONG], in[LONG];
    int to = (check.rank + 1) % check.size, from = (check.rank + check.size - 1) % check.size;
    // Nobody sends before all have seen to their tools.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < MESSAGES; i++) {
        int bytes = i % 2 ? LONG : 8;
        MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, i, in, bytes, MPI_BYTE, from, i, comm, MPI_STATUS_IGNORE));
    }
    // Shows what is still on its way, to every tool.
    peruse_event_h handle;
    check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_IBEX_PUT_STARTED, comm, on_peruse, &peruse, &handle));
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
}

static void check_tool(const char *what, struct tool *tool, int messages) {
    int counts[MESSAGES] = {0};
    check_int(what, 2 * messages, tool->count);
    for (int i = 0; i < tool->count; i++)
        counts[tool->tags[i]]++;
    for (int tag = 0; tag < MESSAGES; tag++)
        check_int(what, 2 * messages / MESSAGES, counts[tag]);
    tool->count = 0;
}

// Finds the index of the element `tag`, the last element of its type (docs/events.md).
static void find_tag(void) {
    enum { ROOM = 32 };
    int index = -1, elements = ROOM;
    MPI_Datatype types[ROOM];
    check_int("index", MPI_SUCCESS, MPI_T_event_get_index(xfer_end, &index));
    check_int("info", MPI_SUCCESS,
              MPI_T_event_get_info(index, NULL, NULL, NULL, types, NULL, &elements, NULL, NULL, NULL, NULL, NULL));
    for (int i = 0; i < elements; i++)
        if (types[i] == MPI_INT)
            tag_element = i;
}

int main(int argc, char **argv) {
    MPI_T_event_registration registration;
    peruse_event_h handle, other;
    MPI_Comm comm;
    int provided;
    check_start(&argc, &argv, 2);
    check_case("two tools at once, by two interfaces");
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    check_int("MPI_T", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    find_tag();
    registration = listen_at(MPI_T_CB_REQUIRE_MPI_RESTRICTED, xfer_end, &comm, on_mpi_t, &mpi_t);
    handle = opened(PERUSE_COMM_REQ_XFER_END, comm, on_peruse, &peruse);

    exchange(comm);
    exchange(MPI_COMM_WORLD);
    check_tool("PERUSE", &peruse, MESSAGES);
    check_tool("MPI_T", &mpi_t, MESSAGES);

    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handle));
    exchange(comm);
    check_tool("PERUSE, closed", &peruse, 0);
    check_tool("MPI_T beside a closed window", &mpi_t, MESSAGES);

    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    listen_no_more(registration);
    exchange(comm);
    check_tool("PERUSE beside one that is freed", &peruse, MESSAGES);
    check_tool("MPI_T, freed", &mpi_t, 0);

    // Two of each.
    registration = listen_at(MPI_T_CB_REQUIRE_MPI_RESTRICTED, xfer_end, &comm, on_mpi_t, &mpi_t);
    listen_at(MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, xfer_end, &comm, on_mpi_t, &mpi_t);
    other = opened(PERUSE_COMM_REQ_XFER_END, comm, on_peruse, &peruse);
    exchange(comm);
    check_tool("two by PERUSE", &peruse, 2 * MESSAGES);
    check_tool("two by MPI_T", &mpi_t, 2 * MESSAGES);

    check_int("MPI_T", MPI_SUCCESS, MPI_T_finalize());
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&other));
    mpi_t.count = 0;
    exchange(comm);
    check_tool("PERUSE after MPI_T", &peruse, MESSAGES);
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
    MPI_OK(MPI_Comm_free(&comm));
    check_end_case();
    return check_finish();
}
