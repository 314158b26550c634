// SPDX-License-Identifier: MIT OR Apache-2.0
// A tool that costs nothing itself: registers for every event of the transport with a callback that does nothing, to
// measure the cost of events. Preloaded; `--mca btl_ibex_event_buffered 1` makes its registrations buffered.
// Build: mpicc -O2 -fPIC -shared -o every_event.so every_event.c -libex
//
// Over ibex's PML, EVERY_EVENT has it listen to the matching events instead, of MPI_COMM_WORLD and of communicators
// that are made later, by one thread at a time:
//     peruse      by PERUSE
//     watched     by PERUSE, to one of them alone, which short messages do not have
//     elsewhere   by PERUSE, to those of another communicator than that of the messages
//     mpi_t       by MPI_T
//     ibex_NAME   the same, to this event alone
//     buffered    the same, with buffers in which the events of some thousand messages stay
//     delivered   the same, with buffers of the default size
// and over any PML
//     nothing     to no event: initialises and finalises MPI_T
//
// At the end each rank that listens by MPI_T prints one line, which counts the events since it registered:
//     every_event: rank R raised A delivered B dropped C late D told E
// The first four are the transport's own counts; `told` counts the losses that ibex reported to the handler. After the
// registrations are freed each event was delivered, dropped or too late, and ibex has reported each loss.
#include <ibex_mpi_t.h>
#include <peruse.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 256, COUNTS = 4, PERUSE_EVENTS = PERUSE_IBEX_REQ_FREE };

static const char *const names[COUNTS] = {"btl_ibex_events_raised", "btl_ibex_events_delivered", "btl_ibex_events_dropped",
                                          "btl_ibex_events_late"};

static enum { NOTHING, BY_PERUSE, BY_MPI_T } how;

// A registration by PERUSE or MPI_T, and its communicator; MPI_COMM_NULL: none.
static struct listening {
    MPI_Comm to;
    MPI_T_event_registration registration;
    peruse_event_h handle;
} *listening;
static int registered, places;
static bool is_for_new;     // whether communicators that are made later are listened to as well
static int first_of_peruse, last_of_peruse; // events
static const char *only;    // the one event that is listened to; NULL: all
static MPI_Info info = MPI_INFO_NULL;
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

static void on_event(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
}

static int on_peruse_event(peruse_event_h, MPI_Aint, peruse_comm_spec_t *, void *) { return MPI_SUCCESS; }

static void on_dropped(MPI_Count count, MPI_T_event_registration, int, MPI_T_cb_safety, void *) {
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

static struct listening *registration_for(MPI_Comm to) {
    if (registered == places) {
        places = 2 * places + PERUSE_EVENTS;
        listening = realloc(listening, (size_t)places * sizeof *listening);
        if (listening == NULL)
            fail("realloc", places);
    }
    listening[registered].to = to;
    return &listening[registered++];
}

static void register_for(int index, MPI_Comm to) {
    MPI_T_event_registration *registration = &registration_for(to)->registration;
    OK(MPI_T_event_handle_alloc(index, to == MPI_COMM_NULL ? NULL : &to, info, registration));
    OK(MPI_T_event_set_dropped_handler(*registration, on_dropped));
    OK(MPI_T_event_register_callback(*registration, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, on_event));
}

// Whether it is the only one; without it, whether PERUSE has the event as well, so that both count the same.
static bool is_of_matching(int index) {
    static const char prefix[] = "ibex_comm_", own[] = "ibex_comm_req_protocol";
    char name[128] = "";
    int room = sizeof name, verbosity, elements = 0, bound;
    OK(MPI_T_event_get_info(index, name, &room, &verbosity, NULL, NULL, &elements, NULL, NULL, NULL, NULL, &bound));
    if (only != NULL)
        return strcmp(name, only) == 0;
    return strncmp(name, prefix, strlen(prefix)) == 0 && strcmp(name, own) != 0;
}

// Listens to all events, or to the matching events of a communicator.
static void listen_by_mpi_t(MPI_Comm to) {
    int count;
    OK(MPI_T_event_get_num(&count));
    if (count < 1)
        fail("MPI_T_event_get_num", count);
    for (int i = 0; i < count; i++)
        if (to == MPI_COMM_NULL || is_of_matching(i))
            register_for(i, to);
}

static void listen_by_peruse(MPI_Comm to) {
    for (int event = first_of_peruse; event <= last_of_peruse; event++) {
        peruse_event_h *handle = &registration_for(to)->handle;
        OK(PERUSE_Event_comm_register(event, to, on_peruse_event, NULL, handle));
        OK(PERUSE_Event_activate(*handle));
    }
}

static void stop(struct listening *one) {
    if (how == BY_PERUSE) {
        OK(PERUSE_Event_deactivate(one->handle));
        OK(PERUSE_Event_release(&one->handle));
    } else {
        OK(MPI_T_event_handle_free(one->registration, NULL, NULL));
    }
    *one = listening[--registered];
}

// ---- from MPI_Init to MPI_Finalize ----------------------------------------------------------------------------------

static void begin_peruse(MPI_Comm to, int first, int last) {
    how = BY_PERUSE;
    first_of_peruse = first;
    last_of_peruse = last;
    OK(PERUSE_Init());
    listen_by_peruse(to);
}

static void init_mpi_t(void) {
    int provided;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
}

static void begin_mpi_t(MPI_Comm to) {
    how = BY_MPI_T;
    init_mpi_t();
    open_counts();
    listen_by_mpi_t(to);
}

static void begin(void) {
    const char *way = getenv("EVERY_EVENT");
    if (way == NULL)
        return begin_mpi_t(MPI_COMM_NULL);
    if (strcmp(way, "nothing") == 0)
        return init_mpi_t();
    is_for_new = strcmp(way, "elsewhere") != 0;
    if (strcmp(way, "peruse") == 0)
        return begin_peruse(MPI_COMM_WORLD, 1, PERUSE_EVENTS);
    if (strcmp(way, "watched") == 0)
        return begin_peruse(MPI_COMM_WORLD, PERUSE_COMM_REQ_XFER_CONTINUE, PERUSE_COMM_REQ_XFER_CONTINUE);
    if (strcmp(way, "elsewhere") == 0) {
        OK(PMPI_Comm_dup(MPI_COMM_WORLD, &elsewhere));
        return begin_peruse(elsewhere, 1, PERUSE_EVENTS);
    }
    only = strncmp(way, "ibex_", 5) == 0 ? way : NULL;
    OK(PMPI_Info_create(&info));
    OK(PMPI_Info_set(info, "ibex_buffered", only != NULL || strcmp(way, "mpi_t") == 0 ? "false" : "true"));
    if (strcmp(way, "buffered") == 0)
        OK(PMPI_Info_set(info, "ibex_buffer_events", "16384"));
    begin_mpi_t(MPI_COMM_WORLD);
}

static void print_counts(void) {
    int rank;
    OK(PMPI_Comm_rank(MPI_COMM_WORLD, &rank));
    printf("every_event: rank %d raised %llu delivered %llu dropped %llu late %llu told %lld\n", rank, sum(0) - before[0],
           sum(1) - before[1], sum(2) - before[2], sum(3) - before[3], atomic_load(&told));
    fflush(stdout);
    OK(MPI_T_pvar_session_free(&session));
}

static void end(void) {
    is_for_new = false;
    while (registered > 0)
        stop(&listening[registered - 1]);
    free(listening);
    if (elsewhere != MPI_COMM_NULL)
        OK(PMPI_Comm_free(&elsewhere));
    if (info != MPI_INFO_NULL)
        OK(PMPI_Info_free(&info));
    if (how == BY_MPI_T)
        print_counts();
    if (how != BY_PERUSE)
        OK(MPI_T_finalize());
}

int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS)
        begin();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS)
        begin();
    return code;
}

int MPI_Finalize(void) {
    end();
    return PMPI_Finalize();
}

// ---- communicators that are made meanwhile --------------------------------------------------------------------------

static int made(int code, const MPI_Comm *comm) {
    if (code != MPI_SUCCESS || !is_for_new || *comm == MPI_COMM_NULL)
        return code;
    if (how == BY_PERUSE)
        listen_by_peruse(*comm);
    else
        listen_by_mpi_t(*comm);
    return code;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy) { return made(PMPI_Comm_dup(comm, copy), copy); }

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *part) {
    return made(PMPI_Comm_split(comm, color, key, part), part);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *part) {
    return made(PMPI_Comm_create(comm, group, part), part);
}

int MPI_Cart_create(MPI_Comm comm, int count, const int sizes[], const int periods[], int reorder, MPI_Comm *grid) {
    return made(PMPI_Cart_create(comm, count, sizes, periods, reorder, grid), grid);
}

int MPI_Comm_free(MPI_Comm *comm) {
    for (int i = registered - 1; i >= 0; i--)
        if (listening[i].to == *comm)
            stop(&listening[i]);
    return PMPI_Comm_free(comm);
}
