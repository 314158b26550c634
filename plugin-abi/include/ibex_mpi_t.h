/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The events of the MPI tool information interface (MPI 4.1, section 15.3.8), by ibex, for an MPI that has none.
 *
 * Include it before, after or instead of mpi.h, and link with -libex. Where the MPI has these calls itself (MPI 4),
 * this header declares nothing, and the MPI's calls are used. Every call has a PMPI_T_ name beside the MPI_T_ name.
 *
 * Beyond the standard:
 * - obj_handle of MPI_T_event_handle_alloc may be NULL for a type bound to communicators: events of all of them.
 * - Info keys: "ibex_buffered" ("true", "false"): events wait until progress delivers them; "ibex_buffer_events": the
 *   number of events that the buffer holds.
 * - A call returns MPI_INFO_NULL for an info object while MPI is not initialised or has been finalised.
 * - MPI_T_EVENT_REGISTRATION_NULL is no registration.
 * The enumeration of MPI_T_event_get_info has the names of the elements, in their order; their types are MPI_INT,
 * MPI_UNSIGNED or MPI_UNSIGNED_LONG (docs/events.md). The buffer of MPI_T_event_copy ends with the element that has the
 * largest displacement. docs/events-calls.md has the points that the standard leaves open.
 */
#ifndef IBEX_MPI_T_H
#define IBEX_MPI_T_H

#include <mpi.h>

#if MPI_VERSION < 4

#ifdef __cplusplus
extern "C" {
#endif

/* MPI_Error_string knows both once MPI_Init has opened a port for ibex, or a registration has been made after it. */
#ifndef MPI_T_ERR_NOT_ACCESSIBLE
#define MPI_T_ERR_NOT_ACCESSIBLE 81
#endif
#ifndef MPI_T_ERR_NOT_SUPPORTED
#define MPI_T_ERR_NOT_SUPPORTED 82
#endif

#ifndef MPI_T_BIND_MPI_SESSION
#define MPI_T_BIND_MPI_SESSION (MPI_T_BIND_MPI_INFO + 1)
#endif

/* Requirements on a callback; each includes those before it. */
typedef enum {
    MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    MPI_T_CB_REQUIRE_THREAD_SAFE,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE
} MPI_T_cb_safety;

typedef enum { MPI_T_SOURCE_ORDERED, MPI_T_SOURCE_UNORDERED } MPI_T_source_order;

typedef struct ibex_event_instance *MPI_T_event_instance;
typedef struct ibex_event_registration *MPI_T_event_registration;

#define MPI_T_EVENT_REGISTRATION_NULL ((MPI_T_event_registration) 0)

/* Types of functions, not of pointers to them, as the standard has it. */
typedef void MPI_T_event_cb_function(MPI_T_event_instance event_instance, MPI_T_event_registration event_registration,
                                     MPI_T_cb_safety cb_safety, void *user_data);
typedef void MPI_T_event_free_cb_function(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety,
                                          void *user_data);
typedef void MPI_T_event_dropped_cb_function(MPI_Count count, MPI_T_event_registration event_registration, int source_index,
                                             MPI_T_cb_safety cb_safety, void *user_data);

#define IBEX_MPI_T_CALLS(NAME)                                                                                             \
    int NAME##event_get_num(int *num_events);                                                                              \
    int NAME##event_get_info(int event_index, char *name, int *name_len, int *verbosity,                                   \
                             MPI_Datatype array_of_datatypes[], MPI_Aint array_of_displacements[], int *num_elements,      \
                             MPI_T_enum *enumtype, MPI_Info *info, char *desc, int *desc_len, int *bind);                  \
    int NAME##event_get_index(const char *name, int *event_index);                                                         \
    int NAME##event_handle_alloc(int event_index, void *obj_handle, MPI_Info info,                                         \
                                 MPI_T_event_registration *event_registration);                                            \
    int NAME##event_handle_set_info(MPI_T_event_registration event_registration, MPI_Info info);                           \
    int NAME##event_handle_get_info(MPI_T_event_registration event_registration, MPI_Info *info_used);                     \
    int NAME##event_register_callback(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety,              \
                                      MPI_Info info, void *user_data, MPI_T_event_cb_function event_cb_function);          \
    int NAME##event_callback_set_info(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety,              \
                                      MPI_Info info);                                                                      \
    int NAME##event_callback_get_info(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety,              \
                                      MPI_Info *info_used);                                                                \
    int NAME##event_handle_free(MPI_T_event_registration event_registration, void *user_data,                              \
                                MPI_T_event_free_cb_function free_cb_function);                                            \
    int NAME##event_set_dropped_handler(MPI_T_event_registration event_registration,                                       \
                                        MPI_T_event_dropped_cb_function dropped_cb_function);                              \
    int NAME##event_read(MPI_T_event_instance event_instance, int element_index, void *buffer);                            \
    int NAME##event_copy(MPI_T_event_instance event_instance, void *buffer);                                               \
    int NAME##event_get_timestamp(MPI_T_event_instance event_instance, MPI_Count *event_timestamp);                        \
    int NAME##event_get_source(MPI_T_event_instance event_instance, int *source_index);                                    \
    int NAME##source_get_num(int *num_sources);                                                                            \
    int NAME##source_get_info(int source_index, char *name, int *name_len, char *desc, int *desc_len,                      \
                              MPI_T_source_order *ordering, MPI_Count *ticks_per_second, MPI_Count *max_ticks,             \
                              MPI_Info *info);                                                                             \
    int NAME##source_get_timestamp(int source_index, MPI_Count *timestamp);                                                \
    int NAME##category_get_num_events(int cat_index, int *num_events);                                                     \
    int NAME##category_get_events(int cat_index, int len, int indices[]);

IBEX_MPI_T_CALLS(MPI_T_)
IBEX_MPI_T_CALLS(PMPI_T_)

#undef IBEX_MPI_T_CALLS

/*
 * Beyond the standard: converts timestamp of a source to the clock of the sources whose names begin with "host:". The
 * result is wrong by at most error ticks of the host's clock, in either direction; error may be NULL.
 * MPI_T_ERR_INVALID_INDEX: no such source; MPI_T_ERR_INVALID: timestamp is negative, or host_timestamp is NULL;
 * MPI_T_ERR_NOT_SUPPORTED: ibex knows too little of the source's clock, or the sources are those of an MPI that has
 * events itself; MPI_T_ERR_NOT_INITIALIZED.
 */
int ibex_source_to_host(int source_index, MPI_Count timestamp, MPI_Count *host_timestamp, MPI_Count *error);

/*
 * Beyond the standard: delivers all events that have happened before to the callbacks of all registrations, those that
 * may do anything (MPI_T_CB_REQUIRE_NONE) included. It waits for events that an adapter's port still holds (at most 200
 * microseconds), and for a thread that is delivering events. Events that callbacks raise wait for the next delivery.
 * The callbacks run in the calling thread. So call it where this thread may call MPI, without a lock that a callback
 * takes, and not from code that MPI has called (reduction operation, error handler, signal handler). Several threads
 * may call it at once. MPI_T_ERR_NOT_INITIALIZED; MPI_T_ERR_INVALID: within a callback, where it delivers nothing.
 */
int ibex_events_flush(void);

#ifdef __cplusplus
}
#endif

#endif /* MPI_VERSION < 4 */
#endif /* IBEX_MPI_T_H */
