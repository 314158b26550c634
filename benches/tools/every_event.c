// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A tool that costs nothing itself: registers for every event of the transport with a callback that does nothing, so that what is
// measured is what events cost. Preloaded; `--mca btl_ibex_event_buffered 1` makes its registrations buffered.
// Build: mpicc -O2 -fPIC -shared -o every_event.so every_event.c -libex
//
// At the end each rank prints one line, the events since it registered:
//     every_event: rank R raised A delivered B dropped C late D told E
// The first four are the transport's own counts, told is what the handler for lost events was told. When the
// registrations are freed nothing waits any more: each event was delivered, dropped or too late, and each loss was told.
#include <ibex_mpi_t.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 64, MOST_SOURCES = 256, COUNTS = 4 };

static const char *const names[COUNTS] = {"btl_ibex_events_raised", "btl_ibex_events_delivered", "btl_ibex_events_dropped",
                                          "btl_ibex_events_late"};

static MPI_T_event_registration registrations[MOST_EVENTS];
static int registered;
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

static void begin(void) {
    int provided, count;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    open_counts();
    OK(MPI_T_event_get_num(&count));
    if (count < 1 || count > MOST_EVENTS)
        fail("MPI_T_event_get_num: as many events as this tool cannot have: it", count);
    for (int i = 0; i < count; i++) {
        OK(MPI_T_event_handle_alloc(i, NULL, MPI_INFO_NULL, &registrations[i]));
        OK(MPI_T_event_set_dropped_handler(registrations[i], on_dropped));
        OK(MPI_T_event_register_callback(registrations[i], MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, on_event));
    }
    registered = count;
}

static void end(void) {
    int rank;
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
