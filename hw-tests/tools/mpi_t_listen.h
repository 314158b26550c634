// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Registers callbacks for MPI_T events of a communicator (`of`; NULL: all), also before MPI_Init. A failure is fatal.
#pragma once

#include "../mpi/check.h"
#include <ibex_mpi_t.h>

static inline void listen_must(int code, const char *what) {
    if (code == MPI_SUCCESS)
        return;
    fprintf(stderr, "%s cannot be listened to: %d\n", what, code);
    exit(1);
}

static inline MPI_T_event_registration registered(const char *name, MPI_Comm *of, MPI_Info info) {
    MPI_T_event_registration registration = MPI_T_EVENT_REGISTRATION_NULL;
    int index = -1;
    listen_must(MPI_T_event_get_index(name, &index), name);
    listen_must(MPI_T_event_handle_alloc(index, of, info, &registration), name);
    return registration;
}

// Info by which a registration buffers so many events.
static inline MPI_Info with_buffer(const char *events) {
    MPI_Info info;
    MPI_OK(MPI_Info_create(&info));
    MPI_OK(MPI_Info_set(info, "ibex_buffered", "true"));
    MPI_OK(MPI_Info_set(info, "ibex_buffer_events", events));
    return info;
}

static inline void call_back(MPI_T_event_registration registration, MPI_T_cb_safety level, MPI_T_event_cb_function *function,
                             void *user) {
    listen_must(MPI_T_event_register_callback(registration, level, MPI_INFO_NULL, user, function), "a registration");
}

static inline MPI_T_event_registration listen_at(MPI_T_cb_safety level, const char *name, MPI_Comm *of,
                                                 MPI_T_event_cb_function *function, void *user) {
    MPI_T_event_registration registration = registered(name, of, MPI_INFO_NULL);
    call_back(registration, level, function, user);
    return registration;
}

// Registers a callback that several threads may call at once.
static inline MPI_T_event_registration listen_to(const char *name, MPI_Comm *of, MPI_T_event_cb_function *function, void *user) {
    return listen_at(MPI_T_CB_REQUIRE_THREAD_SAFE, name, of, function, user);
}

static inline void count_event(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *count) {
    ++*(int *)count;
}

static inline void listen_no_more(MPI_T_event_registration registration) {
    check_int("free", MPI_SUCCESS, MPI_T_event_handle_free(registration, NULL, NULL));
}

// Whether the name of a source begins so.
static inline bool is_source(int index, const char *beginning) {
    char name[128] = "";
    int room = sizeof name;
    check_int("source", MPI_SUCCESS, MPI_T_source_get_info(index, name, &room, NULL, NULL, NULL, NULL, NULL, NULL));
    return strncmp(name, beginning, strlen(beginning)) == 0;
}
