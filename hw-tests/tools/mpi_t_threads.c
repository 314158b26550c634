// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MPI_T events where several threads communicate while others register and free. A callback that is not thread-safe
// runs in one thread at a time, and each event is delivered to it or counted as lost. A registration's free function is
// called once, and is the last call for it. 2 ranks, MPI_THREAD_MULTIPLE.
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { TALKERS = 2, TOOLS = 2, TAG = 200, MOST = 1 << 14, BYTES = 1 << 14 };

static MPI_Comm comm;
static int messages;
static atomic_int running;

// A registration that lives until the end.
struct listener {
    atomic_int events, dropped, inside;
    MPI_T_event_registration registration;
};

static void on_event(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety safety, void *user) {
    struct listener *listener = user;
    check_true("within its level", safety <= MPI_T_CB_REQUIRE_MPI_RESTRICTED);
    check_int("in one thread at a time", 0, atomic_fetch_add(&listener->inside, 1));
    listener->events++;
    atomic_fetch_sub(&listener->inside, 1);
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int, MPI_T_cb_safety, void *user) {
    struct listener *listener = user;
    check_true("the registration that lost them", registration == listener->registration);
    listener->dropped += (int)count;
}

static void start(struct listener *listener, const char *events) {
    MPI_Info info;
    MPI_OK(MPI_Info_create(&info));
    MPI_OK(MPI_Info_set(info, "ibex_buffer_events", events));
    listener->registration = registered("ibex_xfer_begin", &comm, info);
    MPI_OK(MPI_Info_free(&info));
    MPI_OK(MPI_T_event_set_dropped_handler(listener->registration, on_dropped));
    call_back(listener->registration, MPI_T_CB_REQUIRE_MPI_RESTRICTED, on_event, listener);
}

struct passing {
    atomic_int gone;
};

static struct passing passing[TOOLS][MOST];
static atomic_int ended[TOOLS], told;

static void on_passing(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *user) {
    MPI_Count time;
    check_int("not after its end", 0, ((struct passing *)user)->gone);
    check_int("MPI_T_event_get_timestamp", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &time));
}

static void on_end(MPI_T_event_registration, MPI_T_cb_safety, void *user) {
    check_int("one end", 0, atomic_fetch_add(&((struct passing *)user)->gone, 1));
    told++;
}

static void come_and_go(int number) {
    static const char *const names[] = {"ibex_xfer_begin", "ibex_xfer_end", "ibex_msg_arrived"};
    int index;
    unsigned seed = (unsigned)(check.rank * TOOLS + number);
    while ((running > 0 || ended[number] <= TOOLS) && ended[number] < MOST) {
        struct passing *one = &passing[number][ended[number]++];
        MPI_T_event_registration registration;
        int code = MPI_T_event_get_index(names[rand_r(&seed) % 3], &index);
        if (code == MPI_SUCCESS)
            code = MPI_T_event_handle_alloc(index, rand_r(&seed) % 2 ? &comm : NULL, MPI_INFO_NULL, &registration);
        for (int level = MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE; code == MPI_SUCCESS && level >= MPI_T_CB_REQUIRE_NONE; level--)
            if (rand_r(&seed) % 2)
                code = MPI_T_event_register_callback(registration, level, MPI_INFO_NULL, one, on_passing);
        for (int turns = rand_r(&seed) % 2000; turns > 0; turns--)
            atomic_thread_fence(memory_order_seq_cst);
        if (code == MPI_SUCCESS)
            code = MPI_T_event_handle_free(registration, one, on_end);
        check_int("a registration's life", MPI_SUCCESS, code);
    }
}

static void talk(int tag) {
    char *sent = check_alloc(BYTES), *got = check_alloc(BYTES);
    for (int i = 0; i < messages; i++)
        MPI_OK(MPI_Sendrecv(sent, i % 8 ? 8 : BYTES, MPI_CHAR, 1 - check.rank, tag, got, BYTES, MPI_CHAR, 1 - check.rank, tag, comm,
                            MPI_STATUS_IGNORE));
    free(sent);
    free(got);
    running--;
}

static void *talk_or_come_and_go(void *argument) {
    int number = (int)(intptr_t)argument;
    if (number < TALKERS)
        talk(TAG + number);
    else
        come_and_go(number - TALKERS);
    return NULL;
}

static void wait_for(atomic_int *count, const atomic_int *more, int wanted) {
    double end = MPI_Wtime() + 120;
    while (*count + (more ? *more : 0) < wanted && MPI_Wtime() < end)
        check_progress();
}

static void run(void) {
    static struct listener roomy, narrow;
    int wanted = 2 * TALKERS * messages;
    check_case("a_callback_that_is_not_fit_for_threads_runs_in_one_at_a_time_and_gets_all");
    start(&roomy, "65536");
    start(&narrow, "4");
    running = TALKERS;
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    check_in_threads(TALKERS + TOOLS, talk_or_come_and_go);
    // An event that came too late for its place in the adapter's order is dropped, and counted.
    wait_for(&roomy.events, &roomy.dropped, wanted);
    check_int("events, and those that came too late", wanted, roomy.events + roomy.dropped);
    check_true("few were late", roomy.dropped < wanted / 10);

    check_case("events_without_room_are_counted");
    wait_for(&narrow.events, &narrow.dropped, wanted);
    check_int("events and dropped ones", wanted, narrow.events + narrow.dropped);

    check_case("each_of_many_registrations_ended_once");
    int all = 0;
    for (int i = 0; i < TOOLS; i++)
        all += ended[i];
    wait_for(&told, NULL, all);
    check_int("ends told", all, told);
    check_true("there were some", all > 2 * TOOLS);
    MPI_OK(MPI_T_event_handle_free(roomy.registration, NULL, NULL));
    MPI_OK(MPI_T_event_handle_free(narrow.registration, NULL, NULL));
}

int main(int argc, char **argv) {
    listen_must(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &(int){0}), "MPI_T");
    check_start_with(MPI_THREAD_MULTIPLE, &argc, &argv, 2);
    messages = scaled(1000, 10);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    run();
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
