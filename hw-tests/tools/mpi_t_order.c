// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The events of an ordered source are delivered in the order in which they happened, whatever their registrations: as
// they happen, from buffers, and in calls of the tool. One tool listens to every type. 2 ranks.
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { ROUNDS = 20, MOST_TYPES = 128, MOST_SOURCES = 256, LONGEST = 100000, NEVER = 9999 };

static struct {
    long long last;
    long events, steps_back;
} sources[MOST_SOURCES];
static long dropped;

static MPI_T_event_registration registrations[MOST_TYPES];
static int types;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    int source = -1;
    MPI_Count time = 0;
    check_int("source", MPI_SUCCESS, MPI_T_event_get_source(instance, &source));
    check_int("timestamp", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &time));
    if (source < 0 || source >= MOST_SOURCES)
        return;
    sources[source].events++;
    sources[source].steps_back += time < sources[source].last;
    sources[source].last = time;
}

static void on_dropped(MPI_Count count, MPI_T_event_registration, int, MPI_T_cb_safety, void *) {
    dropped += (long)count;
}

static void listen(const char *buffered, MPI_T_cb_safety level) {
    MPI_Info info = with_buffer("4096");
    MPI_OK(MPI_Info_set(info, "ibex_buffered", buffered));
    check_int("types", MPI_SUCCESS, MPI_T_event_get_num(&types));
    if (types > MOST_TYPES)
        types = MOST_TYPES;
    for (int type = 0; type < types; type++) {
        // On any communicator: below another PML it is not known which.
        check_int("alloc", MPI_SUCCESS, MPI_T_event_handle_alloc(type, NULL, info, &registrations[type]));
        call_back(registrations[type], level, on_event, NULL);
        check_int("dropped", MPI_SUCCESS, MPI_T_event_set_dropped_handler(registrations[type], on_dropped));
    }
    MPI_OK(MPI_Info_free(&info));
}

// Messages of every kind, some of them unexpected, and what one-sided operations there are.
static void exchange(MPI_Comm comm, MPI_Win window) {
    static const int lengths[] = {8, 5000, LONGEST};
    static unsigned char out[LONGEST], in[LONGEST];
    int other = 1 - check.rank, flag;
    for (int i = 0; i < 3 * ROUNDS; i++) {
        MPI_Request requests[4];
        int bytes = lengths[i % 3], number = i;
        MPI_OK(MPI_Irecv(in, bytes, MPI_BYTE, other, 1, comm, &requests[0]));
        MPI_OK(MPI_Isend(out, bytes, MPI_BYTE, other, 1, comm, &requests[1]));
        MPI_OK(MPI_Isend(&number, 1, MPI_INT, other, 2, comm, &requests[2]));
        MPI_OK(MPI_Iprobe(other, NEVER, comm, &flag, MPI_STATUS_IGNORE));
        int got;
        MPI_OK(MPI_Irecv(&got, 1, MPI_INT, other, 2, comm, &requests[3]));
        MPI_OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
        MPI_OK(MPI_Put(&number, 1, MPI_INT, other, 0, 1, MPI_INT, window));
        MPI_OK(MPI_Win_flush(other, window));
        MPI_OK(MPI_Get(&got, 1, MPI_INT, other, 0, 1, MPI_INT, window));
        MPI_OK(MPI_Win_flush(other, window));
        check_true("what was put is got", got == number);
    }
    MPI_OK(MPI_Barrier(comm));
}

static void in_order(const char *name, MPI_Comm comm, MPI_Win window, const char *buffered, MPI_T_cb_safety level) {
    long events = 0;
    check_case("%s", name);
    memset(sources, 0, sizeof sources);
    dropped = 0;
    listen(buffered, level);
    exchange(comm, window);
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
    for (int type = 0; type < types; type++)
        listen_no_more(registrations[type]);
    for (int source = 0; source < MOST_SOURCES; source++) {
        char name[128] = "";
        int room = sizeof name;
        MPI_T_source_order order;
        if (sources[source].events == 0)
            continue;
        check_int("source", MPI_SUCCESS, MPI_T_source_get_info(source, name, &room, NULL, NULL, &order, NULL, NULL, NULL));
        check_int(name, MPI_T_SOURCE_ORDERED, order);
        check_int(name, 0, sources[source].steps_back);
        events += sources[source].events;
    }
    check_int("dropped", 0, dropped);
    check_true("there were some", events >= 2L * 3 * ROUNDS);
}

int main(int argc, char **argv) {
    int *memory;
    MPI_Win window;
    check_start(&argc, &argv, 2);
    check_int("MPI_T", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    MPI_Comm comm = check_dup(MPI_COMM_WORLD);
    MPI_OK(MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, comm, &memory, &window));
    MPI_OK(MPI_Win_lock_all(0, window));
    in_order("as they happen", comm, window, "false", MPI_T_CB_REQUIRE_MPI_RESTRICTED);
    in_order("from buffers", comm, window, "true", MPI_T_CB_REQUIRE_MPI_RESTRICTED);
    in_order("where the tool calls", comm, window, "false", MPI_T_CB_REQUIRE_NONE);
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
    MPI_OK(MPI_Comm_free(&comm));
    check_int("MPI_T", MPI_SUCCESS, MPI_T_finalize());
    return check_finish();
}
