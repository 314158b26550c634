// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: ibex' PML raises the events.
//
// Several tools at once, and callbacks that do all a tool may do: two tools see the same events of each source; a slow
// callback loses nothing; one frees its own handle, and is called no more; one registers another, which sees later
// events. With one thread or several. 2 or more ranks. Needs -libex.
//
// usage: events_tools [--threads T]
#include "ibex_mpi_t.h"

#include "seen.h"

enum { MOST_EVENTS = 1 << 17, MOST_SOURCES = 64, TAG = 100, FREED_AFTER = 50 };

static const unsigned WATCHED = 1u << BEGIN | 1u << CONTINUE | 1u << END | 1u << GET_COMPLETE;

static struct tool tools[2], late;
static int threads = 1, rounds;

static atomic_int slow_calls, freeing_calls, freed, registering_calls, before_late;
static MPI_T_event_registration slow, freeing, registering;
static atomic_bool is_freed;

static void be_slow(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    if (atomic_fetch_add(&slow_calls, 1) % 20)
        return;
    for (long start = check_nanoseconds(CLOCK_MONOTONIC); check_nanoseconds(CLOCK_MONOTONIC) - start < 300000;)
        ;
}

static void on_freed(MPI_T_event_registration registration, MPI_T_cb_safety, void *user) {
    check_true("the handle that was freed", registration == freeing && user == &freed);
    atomic_store(&is_freed, true);
    atomic_fetch_add(&freed, 1);
}

static void free_itself(MPI_T_event_instance, MPI_T_event_registration registration, MPI_T_cb_safety, void *) {
    check_true("no call after the free callback", !atomic_load(&is_freed));
    if (atomic_fetch_add(&freeing_calls, 1) != FREED_AFTER)
        return;
    check_int("MPI_T_event_handle_free from within", MPI_SUCCESS, MPI_T_event_handle_free(registration, &freed, on_freed));
    check_true("a second time", MPI_T_event_handle_free(registration, &freed, on_freed) != MPI_SUCCESS);
}

static void register_another(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    if (atomic_fetch_add(&registering_calls, 1) != FREED_AFTER)
        return;
    seen_listen(&late, MOST_EVENTS, 1u << END, MPI_INFO_NULL);
    // Other threads may have raised many events meanwhile.
    atomic_store(&before_late, atomic_load(&registering_calls));
}

static void *exchange(void *argument) {
    static const int lengths[] = {8, 0, 64, 4000, 20000, 100000};
    int tag = TAG + (int)(intptr_t)argument;
    char *out = check_alloc(100000), *in = check_alloc(100000);
    for (int i = 0; i < rounds; i++) {
        int bytes = lengths[i % 6];
        MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, right, tag, in, bytes, MPI_BYTE, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    free(out);
    free(in);
    return NULL;
}

static void traffic(void) {
    check_in_threads(threads, exchange);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

// The next event of a source from `at` on.
static int next_of(const struct tool *tool, int count, int source, int at) {
    while (at < count && tool->all[at].source != source)
        at++;
    return at;
}

// Both tools have the same events of a source, in the order of time.
static void judge_source(int source) {
    int count[2] = {seen_count(&tools[0]), seen_count(&tools[1])}, at[2] = {0, 0};
    MPI_Count last = 0;
    for (;; at[0]++, at[1]++) {
        for (int tool = 0; tool < 2; tool++)
            at[tool] = next_of(&tools[tool], count[tool], source, at[tool]);
        if (at[0] == count[0] || at[1] == count[1])
            break;
        const struct seen *one = &tools[0].all[at[0]], *two = &tools[1].all[at[1]];
        if (!seen_alike(one, two)) {
            check_fail("source %d: expected the same, got %s at %lld and %s at %lld", source, seen_names[one->kind],
                       (long long)one->timestamp, seen_names[two->kind], (long long)two->timestamp);
            return;
        }
        if (one->timestamp < last)
            check_fail("source %d: expected at least %lld, got %lld (%s, number %d)", source, (long long)last, (long long)one->timestamp, seen_names[one->kind], at[0]);
        last = one->timestamp;
    }
    check_true("both have as many of a source", at[0] == count[0] && at[1] == count[1]);
}

// Number of the traffic's events of this kind.
static int number_of(struct tool *tool, int kind) {
    int number = 0;
    for (int i = 0; i < seen_count(tool); i++) {
        const struct seen *seen = &tool->all[i];
        number += seen->kind == kind && seen->data.transfer.tag >= TAG && seen->data.transfer.tag < TAG + CHECK_THREADS;
    }
    return number;
}

int main(int argc, char **argv) {
    threads = check_number(argc, argv, "--threads", 1, CHECK_THREADS);
    check_start_with(threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &argc, &argv, 2);
    check_no_more(argc);
    listen_must(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &(int){0}), "MPI_T");
    counter_open(&seen_dropped, "btl_ibex_events_dropped");
    rounds = scaled(600, 6 * FREED_AFTER) / threads;
    seen_listen(&tools[0], MOST_EVENTS, WATCHED, MPI_INFO_NULL);
    slow = listen_to(seen_names[BEGIN], NULL, be_slow, NULL);
    freeing = listen_to(seen_names[BEGIN], NULL, free_itself, NULL);
    registering = listen_to(seen_names[END], NULL, register_another, NULL);
    seen_listen(&tools[1], MOST_EVENTS, WATCHED, MPI_INFO_NULL);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    traffic();
    seen_stop(&tools[0]);
    seen_stop(&tools[1]);

    check_case("two tools see the same of each source, in order");
    check_true("room for all events", atomic_load(&tools[0].count) < MOST_EVENTS && atomic_load(&tools[1].count) < MOST_EVENTS);
    for (int source = 0; source < MOST_SOURCES; source++)
        judge_source(source);
    long long begins = number_of(&tools[0], BEGIN), ends = number_of(&tools[0], END), dropped = seen_all_dropped();
    if (ends > 2LL * rounds * threads || ends + dropped < 2LL * rounds * threads)
        check_fail("messages that ended: expected %d, got %lld (%lld dropped)", 2 * rounds * threads, ends, dropped);
    check_case("a slow callback gets all");
    check_true("as many begins", atomic_load(&slow_calls) >= begins && begins + dropped >= 2LL * rounds * threads);
    check_case("a callback that frees its own handle is called no more, and its free callback once");
    check_int("free callbacks", 1, atomic_load(&freed));
    check_true("calls", atomic_load(&freeing_calls) > FREED_AFTER && atomic_load(&freeing_calls) <= FREED_AFTER + threads);
    check_case("a registration made in a callback gets the events that follow");
    seen_stop(&late);
    int after = number_of(&late, END);
    check_true("most ends", after > 0 && after < ends && after + atomic_load(&before_late) + 3 * FREED_AFTER > ends);
    listen_no_more(slow);
    listen_no_more(registering);
    return check_finish();
}
