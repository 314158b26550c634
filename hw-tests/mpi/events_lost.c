// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: ibex' PML raises the events.
//
// Full buffers: a tool has room for only a few events. Its events and the losses reported to it add up to the events of
// another tool, for each type and source; the performance variables agree; the events come in order. 2 or more ranks.
// Needs -libex.
#include "ibex_mpi_t.h"

#include "seen.h"

enum { MOST_EVENTS = 1 << 16, MOST_SOURCES = 64, TAG = 7, BURST = 200, BYTES = 2000 };

static const unsigned WATCHED = 1u << BEGIN | 1u << CONTINUE | 1u << END;

// One tool sees everything, the other has hardly any room.
static struct tool whole, narrow;
static _Atomic long long lost[KINDS][MOST_SOURCES];
static _Atomic long long told;

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety,
                       void *user) {
    const struct seen_callback *callback = user;
    check_true("the data of a callback of the registration that lost them",
               callback->tool == &narrow && registration == narrow.registrations[callback->kind]);
    if (count <= 0 || source < 0 || source >= MOST_SOURCES)
        check_fail("dropped: expected a source and a count, got source %d, %lld", source, (long long)count);
    else
        lost[callback->kind][source] += count;
    told++;
}

static void listen(void) {
    MPI_Info info = with_buffer("4");
    seen_listen(&whole, MOST_EVENTS, WATCHED, MPI_INFO_NULL);
    seen_listen(&narrow, MOST_EVENTS, WATCHED, info);
    MPI_OK(MPI_Info_free(&info));
    for (int kind = 0; kind < KINDS; kind++)
        if (WATCHED >> kind & 1)
            check_int("MPI_T_event_set_dropped_handler", MPI_SUCCESS,
                      MPI_T_event_set_dropped_handler(narrow.registrations[kind], on_dropped));
}

// Bursts of sends, in which nothing is delivered, then all of them received.
static void traffic(int rounds) {
    static char buffers[BURST][BYTES];
    MPI_Request requests[2 * BURST];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < BURST; i++)
            MPI_OK(MPI_Isend(buffers[i], 1 + i * BYTES / BURST, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &requests[i]));
        for (int i = 0; i < BURST; i++)
            MPI_OK(MPI_Irecv(buffers[i], BYTES, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &requests[BURST + i]));
        MPI_OK(MPI_Waitall(2 * BURST, requests, MPI_STATUSES_IGNORE));
    }
}

// The events of a source that the narrow tool got, of all types, are among those of the whole one, in the same order.
static void judge_rest(int source, long long all[KINDS], long long got[KINDS]) {
    int at = 0;
    for (int i = 0; i < seen_count(&whole); i++)
        all[whole.all[i].kind] += whole.all[i].source == source;
    for (int i = 0; i < seen_count(&narrow); i++) {
        const struct seen *seen = &narrow.all[i];
        if (seen->source != source)
            continue;
        while (at < seen_count(&whole) && !seen_alike(&whole.all[at], seen))
            at++;
        if (at == seen_count(&whole))
            check_fail("an event that is left: expected it among all, in order; got %s at %lld", seen_names[seen->kind],
                       (long long)seen->timestamp);
        at++;
        got[seen->kind]++;
    }
}

// The value that each variable must have for each source.
enum { DROPPED, RAISED, DELIVERED, BUFFERED, COUNTS };
static const char *const names[COUNTS] = {"btl_ibex_events_dropped", "btl_ibex_events_raised", "btl_ibex_events_delivered",
                                          "btl_ibex_events_buffered"};
static long long expected[COUNTS][MOST_SOURCES];

static long long judge_types(void) {
    long long total = 0;
    for (int source = 0; source < MOST_SOURCES; source++) {
        long long all[KINDS] = {0}, got[KINDS] = {0};
        judge_rest(source, all, got);
        for (int kind = 0; kind < KINDS; kind++) {
            if (all[kind] != got[kind] + lost[kind][source])
                check_fail("%s of source %d: expected %lld delivered and dropped, got %lld and %lld", seen_names[kind],
                           source, all[kind], got[kind], (long long)lost[kind][source]);
            expected[DROPPED][source] += lost[kind][source];
            expected[RAISED][source] += all[kind];
            expected[DELIVERED][source] += all[kind] + got[kind];
            expected[BUFFERED][source] += got[kind]; // each buffered event came out of the buffer
            total += lost[kind][source];
        }
    }
    return total;
}

int main(int argc, char **argv) {
    struct counter counters[COUNTS], late;
    check_start(&argc, &argv, 2);
    listen_must(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}), "MPI_T");
    counter_open(&late, "btl_ibex_events_late");
    for (int count = 0; count < COUNTS; count++)
        counter_open(&counters[count], names[count]);
    listen();
    traffic(scaled(20, 3));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    seen_stop(&narrow);
    seen_stop(&whole);

    check_case("the events raised are those delivered and those dropped, of each type and source");
    check_true("room for all events", atomic_load(&whole.count) < MOST_EVENTS);
    long long total = judge_types();
    check_true("something was dropped, and told", total > 0 && told > 0);
    check_true("something was not", seen_count(&narrow) > 0);
    check_case("the performance variables say the same");
    for (int source = 0; source < MOST_SOURCES; source++) {
        // An event that is late is dropped for both tools, so the whole one does not see it.
        long long slack = 2 * counted_of(&late, source);
        for (int count = 0; count < COUNTS; count++) {
            long long now = counted_of(&counters[count], source);
            if (now < expected[count][source] || now > expected[count][source] + slack)
                check_fail("%s of source %d: expected %lld (and up to %lld late), got %lld", names[count], source,
                           expected[count][source], slack, now);
        }
    }
    return check_finish();
}
