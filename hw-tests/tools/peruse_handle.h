// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Makes and releases event handles of PERUSE, which are active in between; a failure fails the test.
#pragma once

#include "../mpi/check.h"
#include <peruse.h>

static inline int event_of(peruse_event_h handle) {
    int event = PERUSE_EVENT_INVALID;
    check_int("PERUSE_Event_get", PERUSE_SUCCESS, PERUSE_Event_get(handle, &event));
    return event;
}

// The place of an event in a list of so many; `count` if it is not there.
static inline int place_of(int event, const int *events, int count) {
    int place = 0;
    while (place < count && events[place] != event)
        place++;
    return place;
}

static inline peruse_event_h opened(int event, MPI_Comm comm, peruse_comm_callback_f *callback, void *parameter) {
    peruse_event_h handle = PERUSE_EVENT_HANDLE_NULL;
    check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(event, comm, callback, parameter, &handle));
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    return handle;
}

static inline void released(peruse_event_h handle) {
    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handle));
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
    check_true("a released handle is null", handle == PERUSE_EVENT_HANDLE_NULL);
}

// A handle for each of so many events.
static inline void opened_all(int count, peruse_event_h *handles, const int *events, MPI_Comm comm,
                              peruse_comm_callback_f *callback, void *parameter) {
    for (int i = 0; i < count; i++)
        handles[i] = opened(events[i], comm, callback, parameter);
}

static inline void released_all(int count, const peruse_event_h *handles) {
    for (int i = 0; i < count; i++)
        released(handles[i]);
}
