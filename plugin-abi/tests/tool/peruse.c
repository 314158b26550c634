/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every function of PERUSE with every code that it can return, in the phases of MPI, with communicators that are
 * duplicated and freed. Prints one line per wrong result; exits with 1 if there was one. */
#include <peruse.h>
#include "expect.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int on_event(peruse_event_h, MPI_Aint, peruse_comm_spec_t *, void *) { return MPI_SUCCESS; }

static int another(peruse_event_h, MPI_Aint, peruse_comm_spec_t *, void *) { return MPI_SUCCESS; }

/* The prototypes of appendix A. */
static int (*const init)(void) = PERUSE_Init;
static int (*const query_supported_events)(int *, char ***, int **) = PERUSE_Query_supported_events;
static int (*const query_event)(const char *, int *) = PERUSE_Query_event;
static int (*const query_event_name)(int, char **) = PERUSE_Query_event_name;
static int (*const query_environment)(int *, char ***) = PERUSE_Query_environment;
static int (*const query_queue_event_scope)(int *) = PERUSE_Query_queue_event_scope;
static int (*const comm_register)(int, MPI_Comm, peruse_comm_callback_f *, void *, peruse_event_h *) = PERUSE_Event_comm_register;
static int (*const activate)(peruse_event_h) = PERUSE_Event_activate;
static int (*const deactivate)(peruse_event_h) = PERUSE_Event_deactivate;
static int (*const release)(peruse_event_h *) = PERUSE_Event_release;
static int (*const callback_set)(peruse_event_h, peruse_comm_callback_f *, void *) = PERUSE_Event_comm_callback_set;
static int (*const callback_get)(peruse_event_h, peruse_comm_callback_f **, void **) = PERUSE_Event_comm_callback_get;
static int (*const event_get)(peruse_event_h, int *) = PERUSE_Event_get;
static int (*const object_get)(peruse_event_h, void **) = PERUSE_Event_object_get;
static int (*const propagate)(peruse_event_h, int) = PERUSE_Event_propagate;
static int (*const lock)(void) = PERUSE_Lock;
static int (*const unlock)(void) = PERUSE_Unlock;

/* The events of appendix D, and those of ibex. */
#define EVENT(name) {name, #name}
static const struct {
    int event;
    const char *name;
} events[] = {
    EVENT(PERUSE_COMM_REQ_ACTIVATE),            EVENT(PERUSE_COMM_REQ_MATCH_UNEX),
    EVENT(PERUSE_COMM_REQ_INSERT_IN_POSTED_Q),  EVENT(PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q),
    EVENT(PERUSE_COMM_REQ_XFER_BEGIN),          EVENT(PERUSE_COMM_REQ_XFER_END),
    EVENT(PERUSE_COMM_REQ_COMPLETE),            EVENT(PERUSE_COMM_REQ_NOTIFY),
    EVENT(PERUSE_COMM_MSG_ARRIVED),             EVENT(PERUSE_COMM_MSG_INSERT_IN_UNEX_Q),
    EVENT(PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q),  EVENT(PERUSE_COMM_MSG_MATCH_POSTED_REQ),
    EVENT(PERUSE_COMM_SEARCH_POSTED_Q_BEGIN),   EVENT(PERUSE_COMM_SEARCH_POSTED_Q_END),
    EVENT(PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN), EVENT(PERUSE_COMM_SEARCH_UNEX_Q_END),
    EVENT(PERUSE_COMM_REQ_XFER_CONTINUE),       EVENT(PERUSE_IBEX_REQ_CANCEL),
    EVENT(PERUSE_IBEX_REQ_FREE),                EVENT(PERUSE_IBEX_PUT_STARTED),
    EVENT(PERUSE_IBEX_PUT_COMPLETE),            EVENT(PERUSE_IBEX_GET_STARTED),
    EVENT(PERUSE_IBEX_GET_COMPLETE),            EVENT(PERUSE_IBEX_ACC_STARTED),
    EVENT(PERUSE_IBEX_ACC_COMPLETE),
};
enum { EVENTS = sizeof events / sizeof *events, SUPPORTED = 6 };

/* MPI is initialised and there is no port, so no event can happen. */
static int nothing_comes;

static int is_supported(int event) { return event >= PERUSE_IBEX_PUT_STARTED; }

/* All constants of one kind differ. */
static void constants(void)
{
    static const int codes[] = {
        PERUSE_SUCCESS,          PERUSE_ERR_INIT,      PERUSE_ERR_GENERIC, PERUSE_ERR_MALLOC,     PERUSE_ERR_EVENT,
        PERUSE_ERR_EVENT_HANDLE, PERUSE_ERR_PARAMETER, PERUSE_ERR_MPI_INIT, PERUSE_ERR_COMM,      PERUSE_ERR_MPI_OBJECT,
        PERUSE_ERR_LOCK,         PERUSE_ERR_UNLOCK,    PERUSE_ERR_LOCK_NOT_GRANTABLE};
    static const int scopes[] = {PERUSE_PER_COMM, PERUSE_PER_TAG, PERUSE_PER_SOURCE, PERUSE_PER_PEER, PERUSE_GLOBAL};
    static const int operations[] = {PERUSE_SEND, PERUSE_RECV,    PERUSE_PUT,     PERUSE_GET,
                                     PERUSE_ACC,  PERUSE_IO_READ, PERUSE_IO_WRITE};
    static const struct {
        const int *values;
        size_t count;
    } kinds[] = {{codes, sizeof codes / sizeof *codes},
                 {scopes, sizeof scopes / sizeof *scopes},
                 {operations, sizeof operations / sizeof *operations}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; ++kind)
        for (size_t one = 0; one < kinds[kind].count; ++one)
            for (size_t other = 0; other < one; ++other)
                HOLDS(kinds[kind].values[one] != kinds[kind].values[other]);
    for (int one = 0; one < EVENTS; ++one)
        for (int other = 0; other < one; ++other)
            HOLDS(events[one].event != events[other].event && events[one].event != PERUSE_EVENT_INVALID);
    HOLDS(PERUSE_SUCCESS == 0 && PERUSE_FALSE == 0 && PERUSE_TRUE == 1 && PERUSE_EVENT_HANDLE_NULL == 0);
    HOLDS(PERUSE_LOCK_NOT_GRANTABLE == PERUSE_ERR_LOCK_NOT_GRANTABLE);
    HOLDS(PERUSE_COMM_SEARCH_UNEX_Q_BEGIN == PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN);
    HOLDS(sizeof(peruse_event_h) == sizeof(long));
}

static void queries(void)
{
    int count = -1, scope = -1, event = -1;
    char **names = NULL, **again = NULL, *name = NULL;
    int *numbers = NULL, *numbers_again = NULL;
    EXPECT(PERUSE_SUCCESS, query_supported_events(&count, &names, &numbers));
    HOLDS(count == (nothing_comes ? 0 : SUPPORTED));
    HOLDS((names == NULL) == nothing_comes && (numbers == NULL) == nothing_comes);
    for (int i = 0; i < count; ++i) {
        EXPECT(PERUSE_SUCCESS, query_event(names[i], &event));
        HOLDS(event == numbers[i] && is_supported(event));
        EXPECT(PERUSE_SUCCESS, query_event_name(numbers[i], &name));
        HOLDS(strcmp(name, names[i]) == 0);
    }
    /* The library keeps the arrays, so these are the same. */
    EXPECT(PERUSE_SUCCESS, query_supported_events(&count, &again, &numbers_again));
    HOLDS(again == names && numbers_again == numbers);
    for (int i = 0; i < EVENTS; ++i) {
        int code = !nothing_comes && is_supported(events[i].event) ? PERUSE_SUCCESS : PERUSE_ERR_EVENT;
        name = NULL;
        EXPECT(code, query_event(events[i].name, &event));
        HOLDS(event == (code == PERUSE_SUCCESS ? events[i].event : PERUSE_EVENT_INVALID));
        EXPECT(code, query_event_name(events[i].event, &name));
        HOLDS(code == PERUSE_SUCCESS ? strcmp(name, events[i].name) == 0 : name == NULL);
    }
    static const char *const wrong_names[] = {"", "x", "PERUSE_IBEX_PUT", "PERUSE_IBEX_PUT_STARTED ",
                                              "peruse_ibex_put_started", "PERUSE_EVENT_INVALID"};
    for (size_t i = 0; i < sizeof wrong_names / sizeof *wrong_names; ++i) {
        event = -1;
        EXPECT(PERUSE_ERR_EVENT, query_event(wrong_names[i], &event));
        HOLDS(event == PERUSE_EVENT_INVALID);
    }
    static const int wrong_events[] = {PERUSE_EVENT_INVALID, -1, PERUSE_IBEX_ACC_COMPLETE + 1, 1000};
    for (size_t i = 0; i < sizeof wrong_events / sizeof *wrong_events; ++i)
        EXPECT(PERUSE_ERR_EVENT, query_event_name(wrong_events[i], &name));
    EXPECT(PERUSE_SUCCESS, query_queue_event_scope(&scope));
    HOLDS(scope == PERUSE_PER_COMM);
    EXPECT(PERUSE_ERR_PARAMETER, query_supported_events(NULL, &names, &numbers));
    EXPECT(PERUSE_ERR_PARAMETER, query_supported_events(&count, NULL, &numbers));
    EXPECT(PERUSE_ERR_PARAMETER, query_supported_events(&count, &names, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, query_event(NULL, &event));
    EXPECT(PERUSE_ERR_PARAMETER, query_event("x", NULL));
    EXPECT(PERUSE_ERR_PARAMETER, query_event_name(PERUSE_IBEX_PUT_COMPLETE, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, query_queue_event_scope(NULL));
}

static const char *const verbs_variables[] = {"RDMAV_FORK_SAFE", "IBV_SHOW_WARNINGS", "VERBS_LOG_LEVEL", "MLX_QP_ALLOC_TYPE",
                                              "MLX4_DEVICE_FATAL_CLEANUP", "MLX5_CQE_SIZE", "HUGE_CQ", "CXGB4_MA_WR", "T5_ENABLE_WC",
                                              "QELR_DP_LEVEL"};
enum { VERBS_VARIABLES = sizeof verbs_variables / sizeof *verbs_variables };

/* Counts a string in the environment that PERUSE returns. */
static int told(const char *text)
{
    int size = -1, found = 0;
    char **env = NULL;
    EXPECT(PERUSE_SUCCESS, query_environment(&size, &env));
    HOLDS(size >= 0 && (size == 0) == (env == NULL));
    for (int i = 0; i < size; ++i) {
        HOLDS(strchr(env[i], '=') != NULL);
        found += strcmp(env[i], text) == 0;
    }
    return found;
}

static void environment(void)
{
    int size = -1;
    char **env = NULL;
    HOLDS(told("OMPI_MCA_mpi_show_handle_leaks=0") == 1);
    HOLDS(told("IBEX_BYTES=\xff\xfe=\x80") == 1);
    HOLDS(told("PRTE_MCA_prte_verbose=0") == 1);
    for (size_t i = 0; i < VERBS_VARIABLES; ++i) {
        char text[64];
        snprintf(text, sizeof text, "%s=0", verbs_variables[i]);
        HOLDS(told(text) == 1);
    }
    HOLDS(told("OF_ANOTHER=1") == 0);
    setenv("IBEX_LATER", "1", 1);
    HOLDS(told("IBEX_LATER=1") == 0);
    EXPECT(PERUSE_ERR_PARAMETER, query_environment(&size, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, query_environment(NULL, &env));
}

/* Every call with the handle fails with `code`. */
static void unusable(peruse_event_h handle, int code)
{
    int event;
    void *object, *param;
    peruse_comm_callback_f *callback;
    peruse_event_h copy = handle;
    EXPECT(code, activate(handle));
    EXPECT(code, deactivate(handle));
    EXPECT(code, event_get(handle, &event));
    EXPECT(code, object_get(handle, &object));
    EXPECT(code, callback_set(handle, on_event, NULL));
    EXPECT(code, callback_get(handle, &callback, &param));
    EXPECT(code, propagate(handle, PERUSE_TRUE));
    EXPECT(code, release(&copy));
    HOLDS(copy == handle);
    /* A released handle is invalid, whatever code the release returned. */
    EXPECT(PERUSE_ERR_EVENT_HANDLE, event_get(handle, &event));
    EXPECT(PERUSE_ERR_EVENT_HANDLE, release(&copy));
}

/* A made-up number is not another tool's handle. */
static void cannot_be_guessed(MPI_Comm comm)
{
    peruse_event_h others[3];
    int event;
    for (int i = 0; i < 3; ++i)
        EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_STARTED, comm, on_event, NULL, &others[i]));
    for (peruse_event_h guess = 1; guess < 5000; ++guess) {
        peruse_event_h near[] = {guess, others[1] + guess, others[1] - guess};
        for (int i = 0; i < 3; ++i)
            EXPECT(PERUSE_ERR_EVENT_HANDLE, release(&near[i]));
    }
    for (int i = 0; i < 3; ++i) {
        EXPECT(PERUSE_SUCCESS, event_get(others[i], &event));
        EXPECT(PERUSE_SUCCESS, release(&others[i]));
    }
}

/* Registrations that fail; if several errors apply, the call reports the first in the order of the arguments. */
static void refused(MPI_Comm comm)
{
    peruse_event_h handle = 0;
    int size;
    MPI_Comm freed, copy;
    for (int i = 0; i < EVENTS; ++i)
        if (!is_supported(events[i].event))
            EXPECT(PERUSE_ERR_EVENT, comm_register(events[i].event, comm, on_event, NULL, &handle));
    EXPECT(PERUSE_ERR_EVENT, comm_register(PERUSE_EVENT_INVALID, comm, on_event, NULL, &handle));
    EXPECT(PERUSE_ERR_EVENT, comm_register(-1, MPI_COMM_NULL, NULL, NULL, NULL));
    EXPECT(PERUSE_ERR_COMM, comm_register(PERUSE_IBEX_PUT_COMPLETE, MPI_COMM_NULL, NULL, NULL, NULL));
    EXPECT(PERUSE_ERR_COMM, comm_register(PERUSE_IBEX_PUT_COMPLETE, NULL, on_event, NULL, &handle));
    EXPECT(PERUSE_ERR_COMM, comm_register(PERUSE_IBEX_PUT_COMPLETE, (MPI_Comm) (void *) &size, on_event, NULL, &handle));
    EXPECT(PERUSE_ERR_COMM, comm_register(PERUSE_IBEX_PUT_COMPLETE, (MPI_Comm) 16, on_event, NULL, &handle));
    MPI_Comm_dup(comm, &copy);
    freed = copy;
    MPI_Comm_free(&copy);
    EXPECT(PERUSE_ERR_COMM, comm_register(PERUSE_IBEX_PUT_COMPLETE, freed, on_event, NULL, &handle));
    EXPECT(PERUSE_ERR_PARAMETER, comm_register(PERUSE_IBEX_PUT_COMPLETE, comm, NULL, NULL, &handle));
    EXPECT(PERUSE_ERR_PARAMETER, comm_register(PERUSE_IBEX_PUT_COMPLETE, comm, on_event, NULL, NULL));
    HOLDS(handle == 0);
}

static void handles(MPI_Comm comm)
{
    int event, mark;
    void *object = NULL, *param = NULL;
    peruse_comm_callback_f *callback = NULL;
    peruse_event_h one = 0, two = 0, old;
    refused(comm);
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_COMPLETE, comm, on_event, &mark, &one));
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_COMPLETE, comm, on_event, &mark, &two));
    HOLDS(one != PERUSE_EVENT_HANDLE_NULL && two != PERUSE_EVENT_HANDLE_NULL && one != two);

    /* Inactive, at first and after a window. */
    for (int round = 0; round < 2; ++round) {
        EXPECT(PERUSE_SUCCESS, event_get(one, &event));
        HOLDS(event == PERUSE_IBEX_PUT_COMPLETE);
        EXPECT(PERUSE_SUCCESS, object_get(one, &object));
        HOLDS((MPI_Comm) object == comm);
        EXPECT(PERUSE_SUCCESS, callback_set(one, on_event, &mark));
        EXPECT(PERUSE_SUCCESS, callback_get(one, &callback, &param));
        HOLDS(callback == on_event && param == &mark);
        EXPECT(PERUSE_SUCCESS, callback_set(one, another, NULL));
        EXPECT(PERUSE_ERR_PARAMETER, callback_set(one, NULL, &mark));
        EXPECT(PERUSE_SUCCESS, callback_get(one, &callback, &param));
        HOLDS(callback == another && param == NULL);
        EXPECT(PERUSE_ERR_PARAMETER, callback_get(one, NULL, &param));
        EXPECT(PERUSE_ERR_PARAMETER, callback_get(one, &callback, NULL));
        EXPECT(PERUSE_ERR_PARAMETER, event_get(one, NULL));
        EXPECT(PERUSE_ERR_PARAMETER, object_get(one, NULL));
        EXPECT(PERUSE_SUCCESS, propagate(one, PERUSE_TRUE));
        EXPECT(PERUSE_SUCCESS, propagate(one, PERUSE_FALSE));
        EXPECT(PERUSE_SUCCESS, deactivate(one));

        EXPECT(PERUSE_SUCCESS, activate(one));
        EXPECT(PERUSE_SUCCESS, activate(one));
        EXPECT(PERUSE_SUCCESS, event_get(one, &event));
        HOLDS(event == PERUSE_IBEX_PUT_COMPLETE);
        EXPECT(PERUSE_SUCCESS, object_get(one, &object));
        HOLDS((MPI_Comm) object == comm);
        EXPECT(PERUSE_ERR_EVENT_HANDLE, callback_set(one, on_event, NULL));
        EXPECT(PERUSE_ERR_EVENT_HANDLE, callback_set(one, NULL, NULL));
        EXPECT(PERUSE_ERR_EVENT_HANDLE, callback_get(one, &callback, &param));
        EXPECT(PERUSE_ERR_EVENT_HANDLE, propagate(one, PERUSE_TRUE));
        /* This does not change the other handle. */
        EXPECT(PERUSE_SUCCESS, callback_get(two, &callback, &param));
        HOLDS(callback == on_event && param == &mark);
        EXPECT(PERUSE_SUCCESS, deactivate(one));
        EXPECT(PERUSE_SUCCESS, deactivate(one));
    }

    /* A handle can be released in both states. */
    old = one;
    EXPECT(PERUSE_SUCCESS, activate(two));
    EXPECT(PERUSE_SUCCESS, release(&one));
    EXPECT(PERUSE_SUCCESS, release(&two));
    HOLDS(one == PERUSE_EVENT_HANDLE_NULL && two == PERUSE_EVENT_HANDLE_NULL);
    EXPECT(PERUSE_ERR_PARAMETER, release(NULL));
    unusable(old, PERUSE_ERR_EVENT_HANDLE);
    unusable(PERUSE_EVENT_HANDLE_NULL, PERUSE_ERR_EVENT_HANDLE);
    cannot_be_guessed(comm);
    unusable(-1, PERUSE_ERR_EVENT_HANDLE);
}

/* Registers for a communicator, calls `end` for it, and checks that the handle is unusable. */
static void lost_with(MPI_Comm comm, int (*end)(MPI_Comm *))
{
    peruse_event_h idle, open, closed;
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_STARTED, comm, on_event, NULL, &idle));
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_STARTED, comm, on_event, NULL, &open));
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_STARTED, comm, on_event, NULL, &closed));
    EXPECT(PERUSE_SUCCESS, propagate(open, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, activate(open));
    EXPECT(PERUSE_SUCCESS, activate(closed));
    EXPECT(PERUSE_SUCCESS, release(&closed));
    EXPECT(MPI_SUCCESS, end(&comm));
    unusable(idle, PERUSE_ERR_MPI_OBJECT);
    unusable(open, PERUSE_ERR_MPI_OBJECT);
    unusable(closed, PERUSE_ERR_EVENT_HANDLE);
}

static void freed_communicators(void)
{
    enum { WAYS = 6 };
    MPI_Comm original, made[WAYS];
    MPI_Request request;
    peruse_event_h handle;
    int one = 1, zero = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &original);
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_STARTED, original, on_event, NULL, &handle));
    EXPECT(PERUSE_SUCCESS, propagate(handle, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, activate(handle));
    MPI_Comm_dup(original, &made[0]);
    MPI_Comm_dup(made[0], &made[1]);
    MPI_Comm_dup_with_info(original, MPI_INFO_NULL, &made[2]);
    MPI_Comm_idup(original, &made[3], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_split(original, 0, 0, &made[4]);
    MPI_Cart_create(original, 1, &one, &zero, 0, &made[5]);
    for (int i = 0; i < WAYS; ++i)
        handles(made[i]);
    lost_with(original, MPI_Comm_free);
    unusable(handle, PERUSE_ERR_MPI_OBJECT);
    for (int i = 0; i < WAYS; ++i)
        lost_with(made[i], i % 2 ? MPI_Comm_disconnect : MPI_Comm_free);
}

static void *unlocks_what_it_has_not(void *unused)
{
    EXPECT(PERUSE_ERR_LOCK, unlock());
    return unused;
}

static int counted;

static void *counts(void *unused)
{
    for (int i = 0; i < 10000; ++i) {
        EXPECT(PERUSE_SUCCESS, lock());
        ++counted;
        EXPECT(PERUSE_SUCCESS, unlock());
    }
    return unused;
}

static void *opens(void *handle)
{
    EXPECT(PERUSE_SUCCESS, activate(*(peruse_event_h *) handle));
    return handle;
}

static void *closes(void *handle)
{
    EXPECT(PERUSE_ERR_EVENT_HANDLE, propagate(*(peruse_event_h *) handle, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, deactivate(*(peruse_event_h *) handle));
    EXPECT(PERUSE_SUCCESS, release(handle));
    return handle;
}

/* One thread makes the handle, a second one opens its window, a third one closes and releases it. */
static void threads_share_a_handle(void)
{
    pthread_t thread;
    peruse_event_h handle;
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_COMPLETE, MPI_COMM_WORLD, on_event, NULL, &handle));
    pthread_create(&thread, NULL, opens, &handle);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, closes, &handle);
    pthread_join(thread, NULL);
    HOLDS(handle == PERUSE_EVENT_HANDLE_NULL);
}

static void locks(void)
{
    pthread_t threads[4];
    EXPECT(PERUSE_ERR_LOCK, unlock());
    EXPECT(PERUSE_SUCCESS, lock());
    EXPECT(PERUSE_ERR_LOCK, lock());
    pthread_create(&threads[0], NULL, unlocks_what_it_has_not, NULL);
    pthread_join(threads[0], NULL);
    EXPECT(PERUSE_SUCCESS, unlock());
    EXPECT(PERUSE_ERR_LOCK, unlock());
    for (int i = 0; i < 4; ++i)
        pthread_create(&threads[i], NULL, counts, NULL);
    for (int i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    HOLDS(counted == 40000);
}

/* Before PERUSE_Init there are no handles; queries work. */
static void before(int code)
{
    peruse_event_h handle = 0;
    queries();
    EXPECT(PERUSE_ERR_INIT, comm_register(PERUSE_IBEX_PUT_COMPLETE, MPI_COMM_WORLD, on_event, NULL, &handle));
    HOLDS(handle == 0);
    unusable(1, PERUSE_ERR_EVENT_HANDLE);
    if (code != PERUSE_SUCCESS)
        EXPECT(code, init());
}

int main(int argc, char **argv)
{
    peruse_event_h world, self, derived;
    MPI_Comm copy;
    setenv("OMPI_MCA_mpi_show_handle_leaks", "0", 1);
    setenv("IBEX_BYTES", "\xff\xfe=\x80", 1);
    setenv("OF_ANOTHER", "1", 1);
    setenv("PRTE_MCA_prte_verbose", "0", 1);
    for (size_t i = 0; i < VERBS_VARIABLES; ++i)
        setenv(verbs_variables[i], "0", 1);
    constants();
    before(PERUSE_ERR_MPI_INIT);
    MPI_Init(&argc, &argv);
    nothing_comes = 1;
    before(PERUSE_SUCCESS);
    EXPECT(PERUSE_SUCCESS, init());
    EXPECT(PERUSE_SUCCESS, init());
    environment();
    queries();
    handles(MPI_COMM_WORLD);
    handles(MPI_COMM_SELF);
    freed_communicators();
    threads_share_a_handle();
    locks();
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_COMPLETE, MPI_COMM_WORLD, on_event, NULL, &world));
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_COMPLETE, MPI_COMM_SELF, on_event, NULL, &self));
    EXPECT(PERUSE_SUCCESS, comm_register(PERUSE_IBEX_PUT_COMPLETE, copy, on_event, NULL, &derived));
    EXPECT(PERUSE_SUCCESS, propagate(world, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, activate(world));
    EXPECT(PERUSE_SUCCESS, activate(self));
    EXPECT(PERUSE_SUCCESS, activate(derived));
    MPI_Finalize();
    EXPECT(PERUSE_ERR_MPI_INIT, init());
    EXPECT(PERUSE_ERR_INIT, comm_register(PERUSE_IBEX_PUT_COMPLETE, MPI_COMM_WORLD, on_event, NULL, &world));
    unusable(world, PERUSE_ERR_MPI_OBJECT);
    unusable(self, PERUSE_ERR_MPI_OBJECT);
    unusable(derived, PERUSE_ERR_MPI_OBJECT);
    queries();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
