// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Listens to events of ibex by MPI_T, and keeps each in the order of delivery: for the programs events*.c, which
// include ibex_mpi_t.h first and are linked with -libex. Any thread may raise events; the main thread calls the rest.
#pragma once

#include "../tools/mpi_t_listen.h"
#include "counts.h"
#include "elements.h"

enum kind {
    BEGIN, CONTINUE, END, ARRIVED, PUT_STARTED, PUT_COMPLETE, GET_STARTED, GET_COMPLETE, ATOMIC_STARTED, ATOMIC_COMPLETE, CONNECTED,
    FLUSH_STARTED, FLUSH_COMPLETE, KINDS
};
static const char *const seen_names[KINDS] = {
    "ibex_xfer_begin",     "ibex_xfer_continue",   "ibex_xfer_end",     "ibex_msg_arrived",
    "ibex_put_started",    "ibex_put_complete",    "ibex_get_started",  "ibex_get_complete",
    "ibex_atomic_started", "ibex_atomic_complete", "ibex_connection_established",
    "ibex_flush_started",  "ibex_flush_complete",
};

struct seen {
    int kind, source;
    MPI_Count timestamp;
    union {
        struct transfer transfer;
        struct arrival arrival;
        struct operation operation;
        struct atomic atomic;
        struct flush flush;
        struct connection connection;
        unsigned char bytes[96];
    } data;
};

struct tool {
    struct seen *all;
    int room;
    atomic_int count;
    MPI_T_event_registration registrations[KINDS];
};

struct seen_callback {
    struct tool *tool;
    int kind;
};

static inline void seen_event(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *user) {
    struct seen_callback *callback = user;
    struct tool *tool = callback->tool;
    int place = atomic_fetch_add(&tool->count, 1);
    if (place >= tool->room)
        return;
    struct seen *seen = &tool->all[place];
    seen->kind = callback->kind;
    MPI_T_event_copy(instance, &seen->data);
    MPI_T_event_get_timestamp(instance, &seen->timestamp);
    MPI_T_event_get_source(instance, &seen->source);
}

// Listens to every type of `kinds` (a bit each); may be called before MPI_Init.
static inline void seen_listen(struct tool *tool, int room, unsigned kinds, MPI_Info info) {
    tool->all = check_alloc((size_t)room * sizeof *tool->all);
    tool->room = room;
    atomic_store(&tool->count, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        tool->registrations[kind] = MPI_T_EVENT_REGISTRATION_NULL;
        if (!(kinds >> kind & 1))
            continue;
        struct seen_callback *callback = check_alloc(sizeof *callback); // until the process ends
        *callback = (struct seen_callback){tool, kind};
        tool->registrations[kind] = registered(seen_names[kind], NULL, info);
        call_back(tool->registrations[kind], MPI_T_CB_REQUIRE_THREAD_SAFE, seen_event, callback);
    }
}

// Frees the handles; by then all events have been delivered.
static inline void seen_stop(struct tool *tool) {
    for (int kind = 0; kind < KINDS; kind++)
        if (tool->registrations[kind] != MPI_T_EVENT_REGISTRATION_NULL)
            MPI_T_event_handle_free(tool->registrations[kind], NULL, NULL);
}

static inline int seen_count(struct tool *tool) {
    int count = atomic_load(&tool->count);
    return count < tool->room ? count : tool->room;
}

// Whether two tools have seen the same event of a transfer.
static inline bool seen_alike(const struct seen *a, const struct seen *b) {
    return a->kind == b->kind && a->source == b->source && a->timestamp == b->timestamp &&
           memcmp(&a->data, &b->data, sizeof(struct transfer)) == 0;
}

// A source: its name, whether it is a thread's (else a port's), and the width of a port's clock.
struct source {
    char name[64];
    bool is_host;
    int bits;
    MPI_T_source_order order;
    MPI_Count rate;
};

static inline struct source seen_source(int index) {
    struct source source = {.bits = 64};
    char text[256];
    int room = sizeof source.name, more = sizeof text;
    check_int("MPI_T_source_get_info", MPI_SUCCESS,
              MPI_T_source_get_info(index, source.name, &room, text, &more, &source.order, &source.rate, NULL, NULL));
    source.is_host = strncmp(source.name, "host", 4) == 0;
    const char *bits = strchr(text, '(');
    // A port whose adapter does not stamp has the host's clock, and no events.
    source.is_host |= strncmp(text, "nothing", 7) == 0;
    if (!source.is_host && (!bits || sscanf(bits, "(%d bits", &source.bits) != 1))
        check_fail("the description of %s: expected the bits of its clock, got %s", source.name, text);
    return source;
}

// Counts lost events: too late for their place among those of their source, or waiting in a thread that ended.
static struct counter seen_dropped;

static inline long long seen_all_dropped(void) { return counted(&seen_dropped); }
