// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE 2.0, 5.1.1: windows are independent. One that opens while a message is under way has the events that happen from then on,
// whether anybody listened before or not; and so has a registration of MPI_T. With an argument, where the transport has been told to
// send long messages in pieces, as `fragments`, of which the first comes with the announcement, or `written` by the sender: for
// handles that were registered, and not active, when the message began. 2 ranks.
#include "../mpi/check.h"
#include <ibex_mpi_t.h>
#include <peruse.h>

enum { TAG = 11, BYTES = 1 << 22, KINDS = 2 };

static MPI_Comm comm;
static unsigned char buffer[BYTES];
static int begins, ends;

// ---- a message under way ----------------------------------------------------------------------------------------------

static MPI_Request request;

// Rank 0 has sent it, and rank 1 knows of it and has no receive for it.
static void announce(void) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    begins = ends = 0;
    if (check.rank == 0)
        MPI_OK(MPI_Isend(buffer, BYTES, MPI_BYTE, 1, TAG, comm, &request));
    else
        MPI_OK(MPI_Probe(0, TAG, comm, MPI_STATUS_IGNORE));
}

static void receive(void) {
    if (check.rank == 1)
        MPI_OK(MPI_Irecv(buffer, BYTES, MPI_BYTE, 0, TAG, comm, &request));
}

static void complete(void) {
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void check_counts(const char *what, int begun_here) {
    check_int(what, check.rank == 1 ? begun_here : 0, begins);
    check_int(what, 1, ends);
}

// ---- by PERUSE --------------------------------------------------------------------------------------------------------

static int on_peruse(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *count) {
    (void)handle, (void)id;
    if (spec->tag != TAG)
        return MPI_SUCCESS;
    check_int("bytes", BYTES, spec->count);
    check_int("peer", 1 - check.rank, spec->peer);
    check_int("operation", check.rank ? PERUSE_RECV : PERUSE_SEND, spec->operation);
    check_true("communicator", spec->comm == comm);
    ++*(int *)count;
    return MPI_SUCCESS;
}

static peruse_event_h handles[KINDS];

static void register_peruse(void) {
    check_int("register", PERUSE_SUCCESS,
              PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_BEGIN, comm, on_peruse, &begins, &handles[0]));
    check_int("register", PERUSE_SUCCESS,
              PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, comm, on_peruse, &ends, &handles[1]));
}

static void activate_peruse(void) {
    for (int i = 0; i < KINDS; i++)
        check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handles[i]));
}

static void release_peruse(void) {
    for (int i = 0; i < KINDS; i++)
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handles[i]));
}

static void windows_of_peruse(void) {
    check_case("a window that is registered and opened while a message is under way");
    announce();
    register_peruse();
    activate_peruse();
    receive();
    complete();
    release_peruse();
    check_counts("registered before the receive", 1);
    check_end_case();

    check_case("a window that is registered and opened while a message is being read");
    announce();
    receive();
    register_peruse();
    activate_peruse();
    complete();
    release_peruse();
    check_counts("registered after the receive", 0);
    check_end_case();
}

// What was registered before: `begun_here` says whether no bytes come with the announcement.
static void windows_of_registered_handles(int begun_here) {
    check_case("a window of a handle that was registered before the message began");
    register_peruse();
    announce();
    activate_peruse();
    receive();
    complete();
    check_counts("opened before the receive", begun_here);
    for (int i = 0; i < KINDS; i++)
        check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handles[i]));
    announce();
    receive();
    complete();
    check_int("closed", 0, begins + ends);
    release_peruse();
    check_end_case();
}

// ---- by MPI_T ---------------------------------------------------------------------------------------------------------

static int tag_element = -1;

static void on_mpi_t(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *count) {
    int tag = -1;
    (void)registration, (void)safety;
    check_int("read", MPI_SUCCESS, MPI_T_event_read(instance, tag_element, &tag));
    *(int *)count += tag == TAG;
}

static MPI_T_event_registration listen(const char *name, int *count) {
    enum { ROOM = 32 };
    MPI_T_event_registration registration;
    MPI_Datatype types[ROOM];
    int index = -1, elements = ROOM;
    check_int("index", MPI_SUCCESS, MPI_T_event_get_index(name, &index));
    check_int("info", MPI_SUCCESS,
              MPI_T_event_get_info(index, NULL, NULL, NULL, types, NULL, &elements, NULL, NULL, NULL, NULL, NULL));
    // The tag is the last of its kind (docs/events.md).
    for (int i = 0; i < elements; i++)
        if (types[i] == MPI_INT)
            tag_element = i;
    check_int("alloc", MPI_SUCCESS, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &registration));
    check_int("callback", MPI_SUCCESS,
              MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, count, on_mpi_t));
    return registration;
}

static void registrations_of_mpi_t(void) {
    check_case("a registration of MPI_T while a message is under way");
    announce();
    MPI_T_event_registration one = listen("btl_ibex_xfer_begin", &begins), other = listen("btl_ibex_xfer_end", &ends);
    receive();
    complete();
    check_int("free", MPI_SUCCESS, MPI_T_event_handle_free(one, NULL, NULL));
    check_int("free", MPI_SUCCESS, MPI_T_event_handle_free(other, NULL, NULL));
    check_counts("registered before the receive", 1);
    check_end_case();
}

int main(int argc, char **argv) {
    int provided;
    check_start(&argc, &argv, 2);
    const char *pieces = argc > 1 ? argv[1] : NULL;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    check_int("MPI_T", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    if (!pieces) {
        registrations_of_mpi_t();
        windows_of_peruse();
    }
    windows_of_registered_handles(!pieces || strcmp(pieces, "fragments") != 0);
    check_int("MPI_T", MPI_SUCCESS, MPI_T_finalize());
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
