/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every function of PERUSE with every code it can answer, in the phases of MPI, with communicators that are duplicated and freed.
 * Prints one line per wrong answer; exits with whether there was one. */
#include <peruse.h>
#include <stdio.h>
#include <string.h>

static int wrong;

#define EXPECT(code, call)                                                                            \
    do {                                                                                              \
        int got = (call);                                                                             \
        if (got != (code)) {                                                                          \
            printf("%s:%d: %s: %d, not %s\n", __FILE__, __LINE__, #call, got, #code);                 \
            ++wrong;                                                                                  \
        }                                                                                             \
    } while (0)

#define HOLDS(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                    \
            ++wrong;                                                                                  \
        }                                                                                             \
    } while (0)

static int on_event(peruse_event_h event_h, MPI_Aint unique_id, peruse_comm_spec_t *spec, void *param)
{
    (void) event_h, (void) unique_id, (void) spec, (void) param;
    return MPI_SUCCESS;
}

static int another(peruse_event_h event_h, MPI_Aint unique_id, peruse_comm_spec_t *spec, void *param)
{
    return on_event(event_h, unique_id, spec, param);
}

static void queries(void)
{
    int count = -1, scope = -1, size = -1, event = -1;
    char **names = NULL, **env = NULL, *name = NULL;
    int *events = NULL;
    EXPECT(PERUSE_SUCCESS, PERUSE_Query_supported_events(&count, &names, &events));
    HOLDS(count >= 2 && names != NULL && events != NULL);
    for (int i = 0; i < count; ++i) {
        EXPECT(PERUSE_SUCCESS, PERUSE_Query_event(names[i], &event));
        HOLDS(event == events[i] && event != PERUSE_EVENT_INVALID);
        EXPECT(PERUSE_SUCCESS, PERUSE_Query_event_name(events[i], &name));
        HOLDS(strcmp(name, names[i]) == 0);
    }
    EXPECT(PERUSE_SUCCESS, PERUSE_Query_event("PERUSE_COMM_REQ_XFER_BEGIN", &event));
    HOLDS(event == PERUSE_COMM_REQ_XFER_BEGIN);
    EXPECT(PERUSE_SUCCESS, PERUSE_Query_event("PERUSE_COMM_REQ_XFER_END", &event));
    HOLDS(event == PERUSE_COMM_REQ_XFER_END);
    EXPECT(PERUSE_SUCCESS, PERUSE_Query_event("PERUSE_COMM_REQ_XFER_CONTINUE", &event));
    HOLDS(event == PERUSE_COMM_REQ_XFER_CONTINUE && event >= PERUSE_FIRST_CUSTOM_EVENT);
    EXPECT(PERUSE_ERR_EVENT, PERUSE_Query_event("PERUSE_COMM_REQ_ACTIVATE", &event));
    HOLDS(event == PERUSE_EVENT_INVALID);
    EXPECT(PERUSE_ERR_EVENT, PERUSE_Query_event_name(PERUSE_COMM_REQ_ACTIVATE, &name));
    EXPECT(PERUSE_ERR_EVENT, PERUSE_Query_event_name(PERUSE_EVENT_INVALID, &name));
    EXPECT(PERUSE_ERR_EVENT, PERUSE_Query_event_name(1000, &name));
    EXPECT(PERUSE_SUCCESS, PERUSE_Query_environment(&size, &env));
    HOLDS(size >= 0 && (size == 0) == (env == NULL));
    for (int i = 0; i < size; ++i)
        HOLDS(strchr(env[i], '=') != NULL);
    EXPECT(PERUSE_SUCCESS, PERUSE_Query_queue_event_scope(&scope));
    HOLDS(scope == PERUSE_PER_COMM);
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Query_supported_events(NULL, &names, &events));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Query_event(NULL, &event));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Query_event("x", NULL));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Query_event_name(PERUSE_COMM_REQ_XFER_END, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Query_environment(&size, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Query_queue_event_scope(NULL));
}

/* Every call with a handle fails with `code`. */
static void unusable(peruse_event_h handle, int code)
{
    int event;
    void *object, *param;
    peruse_comm_callback_f *callback;
    peruse_event_h copy = handle;
    EXPECT(code, PERUSE_Event_activate(handle));
    EXPECT(code, PERUSE_Event_deactivate(handle));
    EXPECT(code, PERUSE_Event_get(handle, &event));
    EXPECT(code, PERUSE_Event_object_get(handle, &object));
    EXPECT(code, PERUSE_Event_comm_callback_set(handle, on_event, NULL));
    EXPECT(code, PERUSE_Event_comm_callback_get(handle, &callback, &param));
    EXPECT(code, PERUSE_Event_propagate(handle, PERUSE_TRUE));
    EXPECT(code, PERUSE_Event_release(&copy));
    HOLDS(copy == handle);
}

static void handles(MPI_Comm comm)
{
    int event, mark;
    void *object = NULL, *param = NULL;
    peruse_comm_callback_f *callback = NULL;
    peruse_event_h one = 0, two = 0, old;
    EXPECT(PERUSE_ERR_EVENT, PERUSE_Event_comm_register(PERUSE_COMM_REQ_ACTIVATE, comm, on_event, NULL, &one));
    EXPECT(PERUSE_ERR_EVENT, PERUSE_Event_comm_register(PERUSE_EVENT_INVALID, comm, on_event, NULL, &one));
    EXPECT(PERUSE_ERR_COMM, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, MPI_COMM_NULL, on_event, NULL, &one));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, comm, NULL, NULL, &one));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, comm, on_event, NULL, NULL));
    HOLDS(one == 0);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, comm, on_event, &mark, &one));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, comm, on_event, NULL, &two));
    HOLDS(one != PERUSE_EVENT_HANDLE_NULL && one != two);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_get(one, &event));
    HOLDS(event == PERUSE_COMM_REQ_XFER_END);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_object_get(one, &object));
    HOLDS((MPI_Comm) object == comm);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_callback_get(one, &callback, &param));
    HOLDS(callback == on_event && param == &mark);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_callback_set(one, another, NULL));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_callback_get(one, &callback, &param));
    HOLDS(callback == another && param == NULL);
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Event_comm_callback_set(one, NULL, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Event_get(one, NULL));
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Event_object_get(one, NULL));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_propagate(one, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_propagate(one, PERUSE_FALSE));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_deactivate(one));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_activate(one));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_activate(one));
    EXPECT(PERUSE_ERR_EVENT_HANDLE, PERUSE_Event_comm_callback_set(one, on_event, NULL));
    EXPECT(PERUSE_ERR_EVENT_HANDLE, PERUSE_Event_comm_callback_get(one, &callback, &param));
    EXPECT(PERUSE_ERR_EVENT_HANDLE, PERUSE_Event_propagate(one, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_deactivate(one));
    old = one;
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_activate(two));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_release(&one));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_release(&two));
    HOLDS(one == PERUSE_EVENT_HANDLE_NULL && two == PERUSE_EVENT_HANDLE_NULL);
    EXPECT(PERUSE_ERR_PARAMETER, PERUSE_Event_release(NULL));
    unusable(old, PERUSE_ERR_EVENT_HANDLE);
    unusable(PERUSE_EVENT_HANDLE_NULL, PERUSE_ERR_EVENT_HANDLE);
    unusable(-1, PERUSE_ERR_EVENT_HANDLE);
}

static void freed_communicators(void)
{
    MPI_Comm original, copy, copy_of_copy;
    peruse_event_h one, two;
    MPI_Comm_dup(MPI_COMM_WORLD, &original);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_BEGIN, original, on_event, NULL, &one));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_propagate(one, PERUSE_TRUE));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_activate(one));
    MPI_Comm_dup(original, &copy);
    handles(copy);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_BEGIN, copy, on_event, NULL, &two));
    MPI_Comm_dup(copy, &copy_of_copy);
    MPI_Comm_free(&original);
    unusable(one, PERUSE_ERR_MPI_OBJECT);
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_activate(two));
    MPI_Comm_free(&copy);
    unusable(two, PERUSE_ERR_MPI_OBJECT);
    handles(copy_of_copy);
    MPI_Comm_free(&copy_of_copy);
}

int main(int argc, char **argv)
{
    peruse_event_h handle = 0;
    EXPECT(PERUSE_ERR_MPI_INIT, PERUSE_Init());
    MPI_Init(&argc, &argv);
    EXPECT(PERUSE_ERR_INIT, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, MPI_COMM_WORLD, on_event, NULL, &handle));
    EXPECT(PERUSE_SUCCESS, PERUSE_Init());
    EXPECT(PERUSE_SUCCESS, PERUSE_Init());
    queries();
    handles(MPI_COMM_WORLD);
    handles(MPI_COMM_SELF);
    freed_communicators();
    EXPECT(PERUSE_ERR_LOCK, PERUSE_Unlock());
    EXPECT(PERUSE_SUCCESS, PERUSE_Lock());
    EXPECT(PERUSE_ERR_LOCK, PERUSE_Lock());
    EXPECT(PERUSE_SUCCESS, PERUSE_Unlock());
    EXPECT(PERUSE_ERR_LOCK, PERUSE_Unlock());
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, MPI_COMM_WORLD, on_event, NULL, &handle));
    EXPECT(PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    MPI_Finalize();
    EXPECT(PERUSE_ERR_MPI_INIT, PERUSE_Init());
    EXPECT(PERUSE_ERR_INIT, PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, MPI_COMM_WORLD, on_event, NULL, &handle));
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
