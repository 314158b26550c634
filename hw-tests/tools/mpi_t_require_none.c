// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Callbacks that may do anything (MPI_T_CB_REQUIRE_NONE): they get all of a thousand messages, at the end of a call of
// the tool's or by ibex_events_flush, and may call MPI; not in a thread that may not. 2 ranks.
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>
#include <pthread.h>

enum { TAG = 78, MESSAGES = 1000, ELEMENT_TAG = 7 };

static struct {
    int events, dropped, freed, within, sums;
    MPI_Comm comm; // to communicate on from within, MPI_COMM_NULL: not
    pthread_t thread;
} heard;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    int tag = -1;
    (void)registration, (void)user;
    check_int("read", MPI_SUCCESS, MPI_T_event_read(instance, ELEMENT_TAG, &tag));
    if (tag != TAG)
        return;
    check_int("nothing is asked of it", MPI_T_CB_REQUIRE_NONE, safety);
    check_int("one at a time", 0, heard.within++);
    heard.thread = pthread_self();
    heard.events++;
    if (heard.events % 100 == 0) {
        int sum = 0;
        check_int("a flush within a callback", MPI_T_ERR_INVALID, ibex_events_flush());
        if (heard.comm != MPI_COMM_NULL)
            MPI_OK(MPI_Allreduce(&heard.events, &sum, 1, MPI_INT, MPI_SUM, heard.comm));
        heard.sums += sum;
    }
    heard.within--;
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)source, (void)safety, (void)user;
    heard.dropped += (int)count;
}

static MPI_T_event_registration listen(MPI_Comm comm) {
    memset(&heard, 0, sizeof heard);
    heard.comm = MPI_COMM_NULL;
    MPI_T_event_registration registration = listen_at(MPI_T_CB_REQUIRE_NONE, "ibex_xfer_end", &comm, on_event, NULL);
    check_int("handler", MPI_SUCCESS, MPI_T_event_set_dropped_handler(registration, on_dropped));
    // The other rank's first message may not come before.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    return registration;
}

static void exchange(MPI_Comm comm, int messages) {
    for (int i = 0; i < messages / 2; i++) {
        int sent = i, got = -1;
        MPI_OK(MPI_Sendrecv(&sent, 1, MPI_INT, 1 - check.rank, TAG, &got, 1, MPI_INT, 1 - check.rank, TAG, comm, MPI_STATUS_IGNORE));
        check_int("message", i, got);
    }
}

static void all_are_seen(MPI_Comm comm) {
    int number;
    check_case("callbacks_that_may_do_anything_get_a_thousand_events_where_the_tool_calls");
    MPI_T_event_registration registration = listen(comm);
    exchange(comm, MESSAGES);
    check_int("none within MPI", 0, heard.events);
    // An event that an adapter's port still holds may come with the next call.
    check_int("a call of the tool's", MPI_SUCCESS, MPI_T_source_get_num(&number));
    check_true("most of them", heard.events >= MESSAGES / 2);
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
    check_int("all of them", MESSAGES, heard.events);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    exchange(comm, MESSAGES);
    listen_no_more(registration);
    check_int("at its end", 2 * MESSAGES, heard.events);
    check_int("lost", 0, heard.dropped);
    check_end_case();
}

static void callbacks_communicate(MPI_Comm comm, MPI_Comm own) {
    check_case("such_a_callback_may_communicate");
    MPI_T_event_registration registration = listen(comm);
    heard.comm = own;
    exchange(comm, MESSAGES);
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
    check_int("all of them", MESSAGES, heard.events);
    check_int("sums of both ranks", 2 * 100 * (10 * 11 / 2), heard.sums);
    listen_no_more(registration);
    check_int("lost", 0, heard.dropped);
    check_end_case();
}

static void *calls(void *unused) {
    int number;
    check_int("a call in another thread", MPI_SUCCESS, MPI_T_source_get_num(&number));
    return unused;
}

static void on_freed(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety, (void)user;
    heard.freed++;
    heard.thread = pthread_self();
}

static void *frees(void *registration) {
    check_int("free", MPI_SUCCESS, MPI_T_event_handle_free(*(MPI_T_event_registration *)registration, NULL, on_freed));
    return NULL;
}

// MPI was initialised for calls in the main thread; another thread calls.
static void not_in_threads_that_may_not(const char *name, MPI_Comm comm, void *does(void *)) {
    pthread_t thread;
    check_case("%s", name);
    MPI_T_event_registration registration = listen(comm);
    exchange(comm, MESSAGES);
    pthread_create(&thread, NULL, does, &registration);
    pthread_join(thread, NULL);
    check_int("none", 0, heard.events);
    check_int("it is not gone before it has them", 0, heard.freed);
    check_int("flush", MPI_SUCCESS, ibex_events_flush());
    check_int("all of them", MESSAGES, heard.events);
    check_int("then it is, where it was freed", does == frees, heard.freed);
    check_true("here", pthread_equal(heard.thread, pthread_self()));
    if (does != frees)
        listen_no_more(registration);
    check_int("lost", 0, heard.dropped);
    check_end_case();
}

int main(int argc, char **argv) {
    int provided, level;
    MPI_Comm comm, own;
    if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return 1;
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Query_thread(&level));
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    all_are_seen(comm);
    callbacks_communicate(comm, own);
    if (level < MPI_THREAD_SERIALIZED) {
        not_in_threads_that_may_not("and_is_not_called_in_a_thread_that_may_not_call_mpi", comm, calls);
        not_in_threads_that_may_not("nor_where_such_a_thread_frees_it", comm, frees);
    }
    MPI_OK(MPI_Comm_free(&own));
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
