/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A libibex.so for the tests of the logger, whose types, sources and events the test knows. Source 0 counts
 * nanoseconds, source 1 is a clock of 1 MHz that is 1 % too fast; both began with the process. */
#include <ibex_mpi_t.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ibex_event_instance {
    int type, source;
    MPI_Count ticks;
    unsigned long data[2];
};

struct ibex_event_registration {
    MPI_T_event_cb_function *callback;
    MPI_T_event_dropped_cb_function *dropped;
    void *user;
    int type, taken;
};

enum { TYPES = 4, EACH = 4 };

static const char *const types[] = {"ibex_get_started", "ibex_get_complete", "ibex_late", "ibex_communicator_freed"};
static struct ibex_event_registration registrations[TYPES][EACH];
static int waiting;

static MPI_Count now(int source)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    MPI_Count nanoseconds = time.tv_sec * 1000000000L + time.tv_nsec;
    return source == 0 ? nanoseconds : (MPI_Count) (nanoseconds * 1.01 / 1000);
}

/* Raises an event now, with the elements operation (unsigned long) and value (int). */
void mock_raise(int type, int source, unsigned long operation, int value)
{
    struct ibex_event_instance event = {type, source, now(source), {operation, (unsigned) value}};
    for (struct ibex_event_registration *registration = registrations[type]; registration < registrations[type] + EACH; ++registration)
        if (registration->callback)
            registration->callback(&event, registration, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, registration->user);
}

void mock_lose(int type, MPI_Count count)
{
    for (struct ibex_event_registration *registration = registrations[type]; registration < registrations[type] + EACH; ++registration)
        if (registration->dropped)
            registration->dropped(count, registration, 0, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, registration->user);
}

/* `count` events of the type ibex_late are delivered when its registration is freed. */
void mock_keep(int count) { waiting = count; }

/* The levels with which MPI_Pcontrol has reached the MPI, each as a digit. */
static char levels[64];

static int came(int level)
{
    levels[strlen(levels)] = '0' + level;
    return MPI_SUCCESS;
}

int MPI_Pcontrol(const int level, ...) { return came(level); }

int PMPI_Pcontrol(const int level, ...) { return came(level); }

const char *mock_levels(void) { return levels; }

int MPI_T_event_get_num(int *num)
{
    *num = TYPES;
    return MPI_SUCCESS;
}

int MPI_T_event_get_info(int index, char *name, int *name_len, int *verbosity, MPI_Datatype datatypes[], MPI_Aint displacements[],
                         int *num_elements, MPI_T_enum *enumtype, MPI_Info *info, char *desc, int *desc_len, int *bind)
{
    (void) verbosity, (void) info, (void) bind, (void) name_len, (void) desc_len;
    strcpy(name, types[index]);
    strcpy(desc, "A description.");
    datatypes[0] = MPI_UNSIGNED_LONG, displacements[0] = 0;
    datatypes[1] = MPI_INT, displacements[1] = 8;
    *num_elements = 2;
    *enumtype = (MPI_T_enum) &types;
    return MPI_SUCCESS;
}

int MPI_T_enum_get_item(MPI_T_enum, int index, int *value, char *name, int *)
{
    *value = index;
    strcpy(name, index == 0 ? "operation" : "value");
    return MPI_SUCCESS;
}

int MPI_T_event_handle_alloc(int index, void *, MPI_Info, MPI_T_event_registration *registration)
{
    for (int i = 0; i < EACH; ++i)
        if (!registrations[index][i].taken) {
            *registration = &registrations[index][i];
            (*registration)->taken = 1;
            (*registration)->type = index;
            return MPI_SUCCESS;
        }
    return MPI_ERR_OTHER;
}

int MPI_T_event_register_callback(MPI_T_event_registration registration, MPI_T_cb_safety, MPI_Info, void *user,
                                  MPI_T_event_cb_function callback)
{
    registration->user = user;
    registration->callback = callback;
    return MPI_SUCCESS;
}

int MPI_T_event_set_dropped_handler(MPI_T_event_registration registration, MPI_T_event_dropped_cb_function dropped)
{
    registration->dropped = dropped;
    return MPI_SUCCESS;
}

int MPI_T_event_handle_free(MPI_T_event_registration registration, void *, MPI_T_event_free_cb_function)
{
    for (; registration->type == 2 && waiting > 0; --waiting)
        mock_raise(2, 0, 0, waiting);
    registration->callback = NULL;
    registration->taken = 0;
    return MPI_SUCCESS;
}

int MPI_T_event_copy(MPI_T_event_instance event, void *buffer)
{
    memcpy(buffer, event->data, sizeof event->data);
    return MPI_SUCCESS;
}

int MPI_T_event_get_timestamp(MPI_T_event_instance event, MPI_Count *timestamp)
{
    *timestamp = event->ticks;
    return MPI_SUCCESS;
}

int MPI_T_event_get_source(MPI_T_event_instance event, int *source)
{
    *source = event->source;
    return MPI_SUCCESS;
}

int MPI_T_source_get_num(int *num)
{
    *num = 2;
    return MPI_SUCCESS;
}

int MPI_T_source_get_info(int index, char *name, int *name_len, char *desc, int *desc_len, MPI_T_source_order *ordering,
                          MPI_Count *ticks_per_second, MPI_Count *max_ticks, MPI_Info *info)
{
    (void) name_len, (void) desc_len, (void) max_ticks, (void) info;
    strcpy(name, index == 0 ? "host:0" : "adapter:1");
    strcpy(desc, "A clock.");
    *ordering = MPI_T_SOURCE_ORDERED;
    *ticks_per_second = index == 0 ? 1000000000 : 1000000;
    return MPI_SUCCESS;
}

int MPI_T_source_get_timestamp(int index, MPI_Count *timestamp)
{
    *timestamp = now(index);
    return MPI_SUCCESS;
}
