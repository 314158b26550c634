// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A tool that costs nothing itself: registers for every event of the transport with a callback that does nothing, so that what is
// measured is what events cost. Preloaded; `--mca btl_ibex_event_buffered 1` makes its registrations buffered.
// Build: mpicc -O2 -fPIC -shared -o every_event.so every_event.c -libex
//
// Over ibex's PML, EVERY_EVENT has it listen to the events of the matching instead, all those of a communicator:
//     peruse      MPI_COMM_WORLD's, by PERUSE
//     watched     to one of them alone, which short messages do not have
//     elsewhere   another's than the messages are on, by PERUSE
//     mpi_t       MPI_COMM_WORLD's, by MPI_T
//     buffered    the same, with buffers in which the events of some thousand messages wait
//     delivered   the same, with buffers that are as large as they are when nobody says anything
//
// At the end each rank prints one line, but for PERUSE, the events since it registered:
//     every_event: rank R raised A delivered B dropped C late D told E
// The first four are the transport's own counts, told is what the handler for lost events was told. When the
// registrations are freed nothing waits any more: each event was delivered, dropped or too late, and each loss was told.
#include <ibex_mpi_t.h>
#include <peruse.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 64, MOST_SOURCES = 256, COUNTS = 4, PERUSE_EVENTS = PERUSE_IBEX_REQ_FREE };

static const char *const names[COUNTS] = {"btl_ibex_events_raised", "btl_ibex_events_delivered", "btl_ibex_events_dropped",
                                          "btl_ibex_events_late"};

static MPI_T_event_registration registrations[MOST_EVENTS];
static int registered;
static peruse_event_h handles_of_peruse[PERUSE_EVENTS];
static int handled;
static MPI_Comm elsewhere = MPI_COMM_NULL;
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[COUNTS];
static unsigned long long before[COUNTS];
static atomic_llong told;

static void fail(const char *call, int answer) {
    fprintf(stderr, "every_event: %s answers %d\n", call, answer);
    abort();
}

static void must(int code, const char *call) {
    if (code != MPI_SUCCESS)
        fail(call, code);
}
#define OK(call) must((call), #call)

static void on_event(MPI_T_event_instance event, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)event, (void)registration, (void)safety, (void)user;
}

static int on_peruse_event(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    (void)handle, (void)id, (void)spec, (void)parameter;
    return MPI_SUCCESS;
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)source, (void)safety, (void)user;
    atomic_fetch_add(&told, count);
}

// A variable has a value for each source.
static unsigned long long sum(int which) {
    unsigned long long values[MOST_SOURCES], all = 0;
    memset(values, 0, sizeof values);
    OK(MPI_T_pvar_read(session, handles[which], values));
    for (int i = 0; i < MOST_SOURCES; i++)
        all += values[i];
    return all;
}

static void open_counts(void) {
    OK(MPI_T_pvar_session_create(&session));
    for (int i = 0; i < COUNTS; i++) {
        int index, values;
        OK(MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index));
        OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &values));
        if (values > MOST_SOURCES)
            fail("MPI_T_pvar_handle_alloc: more values than this tool has room for: it", values);
        before[i] = sum(i);
    }
}

static void register_for(int index, MPI_Comm *of, MPI_Info info) {
    MPI_T_event_registration *registration = &registrations[registered++];
    OK(MPI_T_event_handle_alloc(index, of, info, registration));
    OK(MPI_T_event_set_dropped_handler(*registration, on_dropped));
    OK(MPI_T_event_register_callback(*registration, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, on_event));
}

// Those that PERUSE has as well, so that both count the same.
static bool is_of_matching(int index) {
    static const char prefix[] = "ibex_comm_", own[] = "ibex_comm_req_protocol";
    char name[128] = "";
    int room = sizeof name, verbosity, elements = 0, bound;
    OK(MPI_T_event_get_info(index, name, &room, &verbosity, NULL, NULL, &elements, NULL, NULL, NULL, NULL, &bound));
    return strncmp(name, prefix, strlen(prefix)) == 0 && strcmp(name, own) != 0;
}

// To all events; or to those of the matching, of a communicator.
static void begin_mpi_t(MPI_Comm *of, MPI_Info info) {
    int provided, count;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    open_counts();
    OK(MPI_T_event_get_num(&count));
    if (count < 1 || count > MOST_EVENTS)
        fail("MPI_T_event_get_num: as many events as this tool cannot have: it", count);
    for (int i = 0; i < count; i++)
        if (of == NULL || is_of_matching(i))
            register_for(i, of, info);
}

static void begin_peruse(MPI_Comm of, int first, int last) {
    OK(PERUSE_Init());
    for (int event = first; event <= last; event++) {
        OK(PERUSE_Event_comm_register(event, of, on_peruse_event, NULL, &handles_of_peruse[handled]));
        OK(PERUSE_Event_activate(handles_of_peruse[handled++]));
    }
}

static void begin(void) {
    const char *way = getenv("EVERY_EVENT");
    MPI_Comm world = MPI_COMM_WORLD;
    if (way == NULL) {
        begin_mpi_t(NULL, MPI_INFO_NULL);
    } else if (strcmp(way, "peruse") == 0) {
        begin_peruse(world, 1, PERUSE_EVENTS);
    } else if (strcmp(way, "watched") == 0) {
        begin_peruse(world, PERUSE_COMM_REQ_XFER_CONTINUE, PERUSE_COMM_REQ_XFER_CONTINUE);
    } else if (strcmp(way, "elsewhere") == 0) {
        OK(PMPI_Comm_dup(world, &elsewhere));
        begin_peruse(elsewhere, 1, PERUSE_EVENTS);
    } else {
        MPI_Info info;
        OK(PMPI_Info_create(&info));
        OK(PMPI_Info_set(info, "ibex_buffered", strcmp(way, "mpi_t") == 0 ? "false" : "true"));
        if (strcmp(way, "buffered") == 0)
            OK(PMPI_Info_set(info, "ibex_buffer_events", "16384"));
        begin_mpi_t(&world, info);
        OK(PMPI_Info_free(&info));
    }
}

static void end_peruse(void) {
    for (int i = 0; i < handled; i++) {
        OK(PERUSE_Event_deactivate(handles_of_peruse[i]));
        OK(PERUSE_Event_release(&handles_of_peruse[i]));
    }
    if (elsewhere != MPI_COMM_NULL)
        OK(PMPI_Comm_free(&elsewhere));
}

static void end(void) {
    int rank;
    if (handled > 0)
        return end_peruse();
    for (int i = 0; i < registered; i++)
        OK(MPI_T_event_handle_free(registrations[i], NULL, NULL));
    OK(PMPI_Comm_rank(MPI_COMM_WORLD, &rank));
    printf("every_event: rank %d raised %llu delivered %llu dropped %llu late %llu told %lld\n", rank, sum(0) - before[0],
           sum(1) - before[1], sum(2) - before[2], sum(3) - before[3], atomic_load(&told));
    fflush(stdout);
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
}

int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS)
        begin();
    return code;
}

int MPI_Finalize(void) {
    end();
    return PMPI_Finalize();
}
