// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Callbacks of MPI_T events: which level of safety gets what, what may be read where, what a registration for one
// communicator hears, also once that is freed; that events come at the latest with the next call of MPI that makes
// progress, and none while the interface is not initialised. 2 ranks.
#include "../mpi/elements.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { TAG = 77, MESSAGES = 20, LEVELS = 4, ELEMENT_TAG = 7, ELEMENTS = 12, ROUNDS = 60, LONGEST = 1 << 20 };
static const int lengths[] = {8, 4096, 40000, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };
static const char *const xfer_begin = "ibex_xfer_begin";

struct heard {
    atomic_int events, levels[LEVELS], freed;
    MPI_T_event_registration registration;
};

static MPI_T_event_instance stale;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    struct heard *heard = user;
    int tag = -1;
    check_int("MPI_T_event_read", MPI_SUCCESS, MPI_T_event_read(instance, ELEMENT_TAG, &tag));
    check_true("the registration is the one", registration == heard->registration);
    if (tag != TAG)
        return;
    heard->events++;
    heard->levels[safety]++;
}

// In a callback: each call on its instance, with arguments that it must refuse.
static void on_event_asking(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    long buffer[ELEMENTS] = {-7};
    int source = -7, number = -7;
    MPI_Count time = -7, now;
    check_int("no such element", MPI_T_ERR_INVALID_INDEX, MPI_T_event_read(instance, ELEMENTS, buffer));
    check_int("a negative element", MPI_T_ERR_INVALID_INDEX, MPI_T_event_read(instance, -1, buffer));
    check_int("no buffer", MPI_T_ERR_INVALID, MPI_T_event_read(instance, 0, NULL));
    check_int("no buffer to copy to", MPI_T_ERR_INVALID, MPI_T_event_copy(instance, NULL));
    check_int("no place for the time", MPI_T_ERR_INVALID, MPI_T_event_get_timestamp(instance, NULL));
    check_int("no place for the source", MPI_T_ERR_INVALID, MPI_T_event_get_source(instance, NULL));
    if (stale != NULL && stale != instance)
        check_int("an instance of before", MPI_T_ERR_INVALID_HANDLE, MPI_T_event_read(stale, 0, buffer));
    check_int("no instance", MPI_T_ERR_INVALID_HANDLE, MPI_T_event_copy(NULL, buffer));
    check_int("nothing was written", -7, buffer[0]);
    check_int("MPI_T_event_get_timestamp", MPI_SUCCESS, MPI_T_event_get_timestamp(instance, &time));
    check_int("MPI_T_event_get_source", MPI_SUCCESS, MPI_T_event_get_source(instance, &source));
    // A callback may call all of the interface.
    check_int("MPI_T_source_get_timestamp", MPI_SUCCESS, MPI_T_source_get_timestamp(source, &now));
    check_true("the event was before", time <= now);
    check_int("MPI_T_source_get_num", MPI_SUCCESS, MPI_T_source_get_num(&number));
    check_true("the source is one of them", source >= 0 && source < number);
    stale = instance;
    on_event(instance, registration, safety, user);
}

static void on_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety;
    ((struct heard *)user)->freed++;
}

// Frees itself, twice.
static void on_event_freeing(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    struct heard *heard = user;
    on_event(instance, registration, safety, user);
    check_int("freed in its callback", MPI_SUCCESS, MPI_T_event_handle_free(registration, heard, on_free));
    check_int("freed twice", MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_free(registration, heard, on_free));
    check_int("not while its callback runs", 0, heard->freed);
}

static void register_for(struct heard *heard, MPI_Comm *comm) {
    memset(heard, 0, sizeof *heard);
    heard->registration = registered(xfer_begin, comm, MPI_INFO_NULL);
}

static void call(struct heard *heard, int level, MPI_T_event_cb_function callback) {
    call_back(heard->registration, level, callback, heard);
}

static void stop(struct heard *heard) {
    check_int("MPI_T_event_handle_free", MPI_SUCCESS, MPI_T_event_handle_free(heard->registration, heard, on_free));
}

// Each rank sends so many messages to the other, once both listen.
static void exchange(MPI_Comm comm, int peer, int messages) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < messages; i++) {
        int sent = i, got = -1;
        MPI_OK(MPI_Sendrecv(&sent, 1, MPI_INT, peer, TAG, &got, 1, MPI_INT, peer, TAG, comm, MPI_STATUS_IGNORE));
        check_int("message", i, got);
    }
}

// Lets progress deliver until so many events were heard; then there must be no more.
static void hears(const char *who, struct heard *heard, int wanted) {
    double end = MPI_Wtime() + 120;
    int flag;
    while (heard->events < wanted && MPI_Wtime() < end)
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, TAG + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    for (int i = 0; i < 1000; i++)
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, TAG + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    check_int(who, wanted, heard->events);
}

// Every message has one begin on each side. As one thread runs MPI, events go to the callback of the least level that
// may be called within MPI; a callback that may only be called outside of it gets them when it is freed.
static void safety_levels(MPI_Comm comm) {
    struct heard alone[LEVELS], all, chosen[LEVELS];
    check_case("the_callback_of_the_least_level_that_is_fit_is_called");
    register_for(&all, &comm);
    for (int level = LEVELS - 1; level >= 0; level--) {
        register_for(&alone[level], &comm);
        call(&alone[level], level, on_event);
        chosen[level] = all;
        call_back(all.registration, level, on_event, &chosen[level]);
    }
    exchange(comm, 1 - check.rank, MESSAGES);
    for (int level = 1; level < LEVELS; level++)
        hears("one of this level alone", &alone[level], 2 * MESSAGES);
    hears("one that may do anything", &alone[MPI_T_CB_REQUIRE_NONE], 0);
    hears("the least that is fit", &chosen[MPI_T_CB_REQUIRE_MPI_RESTRICTED], 2 * MESSAGES);
    // Outside of MPI's calls.
    stop(&alone[MPI_T_CB_REQUIRE_NONE]);
    hears("one that may do anything, at its end", &alone[MPI_T_CB_REQUIRE_NONE], 2 * MESSAGES);
    check_int("and at its level", 2 * MESSAGES, alone[MPI_T_CB_REQUIRE_NONE].levels[MPI_T_CB_REQUIRE_NONE]);
    for (int level = 1; level < LEVELS; level++) {
        stop(&alone[level]);
        check_int("freed", 1, alone[level].freed);
        check_int("asked for no more than the place does", 2 * MESSAGES, alone[level].levels[MPI_T_CB_REQUIRE_MPI_RESTRICTED]);
    }
    // Without the callback that got them, the next level gets what follows.
    call(&all, MPI_T_CB_REQUIRE_MPI_RESTRICTED, NULL);
    exchange(comm, 1 - check.rank, MESSAGES);
    hears("the next", &chosen[MPI_T_CB_REQUIRE_THREAD_SAFE], 2 * MESSAGES);
    hears("no other", &chosen[MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE], 0);
    stop(&all);
    check_end_case();
}

static void in_callbacks(MPI_Comm comm) {
    struct heard asking, freeing;
    check_case("what_a_callback_may_ask_and_that_it_may_free_itself");
    register_for(&asking, &comm);
    register_for(&freeing, &comm);
    call(&asking, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event_asking);
    call(&freeing, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event_freeing);
    exchange(comm, 1 - check.rank, MESSAGES);
    hears("one that asks", &asking, 2 * MESSAGES);
    hears("one that frees itself", &freeing, 1);
    check_int("and is told that it is gone", 1, freeing.freed);
    stop(&asking);
    long buffer[ELEMENTS];
    check_int("an instance after its callback", MPI_T_ERR_INVALID_HANDLE, MPI_T_event_copy(stale, buffer));
    check_end_case();
}

// Each of two registrations hears the messages of its communicator alone.
static void bound(const char *name, MPI_Comm comm, int peer, MPI_Comm other, int other_peer) {
    struct heard here, there;
    check_case(name);
    register_for(&here, &comm);
    register_for(&there, &other);
    call(&here, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event);
    call(&there, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event);
    exchange(comm, peer, MESSAGES);
    exchange(other, other_peer, 3);
    hears("on the one", &here, 2 * MESSAGES);
    hears("on the other", &there, 2 * 3);
    stop(&here);
    stop(&there);
    check_end_case();
}

static void bindings(MPI_Comm comm) {
    MPI_Comm other, between, self = MPI_COMM_SELF;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    bound("a_registration_hears_its_communicator_alone", comm, 1 - check.rank, other, 1 - check.rank);
    MPI_OK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - check.rank, TAG + 2, &between));
    bound("and_one_between_two_groups", between, 0, other, 1 - check.rank);
    MPI_OK(MPI_Comm_free(&between));

    check_case("what_is_freed_is_not_heard_as_its_successor");
    struct heard of_freed, of_self;
    register_for(&of_self, &self);
    register_for(&of_freed, &other);
    call(&of_self, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event);
    call(&of_freed, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event);
    exchange(other, 1 - check.rank, MESSAGES);
    MPI_OK(MPI_Comm_free(&other));
    // Open MPI gives the lowest number that is free.
    for (int i = 0; i < 4; i++) {
        MPI_Comm next;
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &next));
        exchange(next, 1 - check.rank, MESSAGES);
        MPI_OK(MPI_Comm_free(&next));
    }
    exchange(MPI_COMM_SELF, 0, 1);
    hears("of the freed one", &of_freed, 2 * MESSAGES);
    hears("of this process to itself, sent and received", &of_self, 2);
    stop(&of_freed);
    check_int("freed", 1, of_freed.freed);
    stop(&of_self);
    check_end_case();
}

union element {
    struct arrival arrived;
    struct transfer transfer;
    unsigned char bytes[128];
};
static union element arrived, ended;
static int arrivals, ends;

static void on_arrived(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety, (void)user;
    union element element;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &element));
    if (element.arrived.tag >= 0) {
        arrived = element;
        arrivals++;
    }
}

// Ends of sends count too; they may come after the answer.
static void on_transfer_end(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety, (void)user;
    union element element;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &element));
    if (element.transfer.tag >= 0 && element.transfer.direction == 1) {
        ended = element;
        ends++;
    }
}

static void make_progress(MPI_Comm comm) {
    int flag;
    MPI_OK(MPI_Iprobe(1 - check.rank, TAG + 1, comm, &flag, MPI_STATUS_IGNORE));
}

static void check_message(int bytes, int tag) {
    check_int("ends", 1, ends);
    check_int("arrivals", 1, arrivals);
    check_true("of one message", arrived.arrived.message == ended.transfer.message);
    check_int("bytes", bytes > 4096 ? 0 : bytes, (long long)arrived.arrived.bytes);
    check_int("bytes in all", bytes, (long long)arrived.arrived.total);
    check_int("tag", tag, arrived.arrived.tag);
    check_int("sender", 1 - check.rank, arrived.arrived.source);
    check_int("sender's rank in the job", 1 - check.rank, arrived.arrived.peer);
    check_true("communicator", arrived.arrived.context == ended.transfer.context);
}

static void arrivals_are_shown_by_the_next_call(MPI_Comm comm) {
    static unsigned char buffer[LONGEST];
    check_case("what has arrived is shown by the next call that makes progress");
    MPI_T_event_registration one = listen_to("ibex_msg_arrived", &comm, on_arrived, NULL),
                             other = listen_to("ibex_xfer_end", &comm, on_transfer_end, NULL);
    // Before that, a message could arrive that nobody listens to.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = lengths[round % LENGTHS];
        // Rank 0 begins every other round; the other's answer is its next message.
        if ((check.rank + round) % 2)
            MPI_OK(MPI_Send(buffer, bytes, MPI_BYTE, 1 - check.rank, round, comm));
        else {
            MPI_OK(MPI_Recv(buffer, bytes, MPI_BYTE, 1 - check.rank, round, comm, MPI_STATUS_IGNORE));
            make_progress(comm);
            check_message(bytes, round);
            arrivals = ends = 0;
        }
    }
    listen_no_more(one);
    listen_no_more(other);
    check_end_case();
}

// Before any registration is made.
static void codes(void) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    check_case("the_codes_that_the_header_adds_have_texts");
    MPI_OK(MPI_Error_string(MPI_T_ERR_NOT_SUPPORTED, text, &length));
    check_true(text, strncmp(text, "MPI_T_ERR_NOT_SUPPORTED: ", 25) == 0);
    check_end_case();
}

static void not_initialised(MPI_Comm comm) {
    struct heard heard;
    int provided;
    check_case("nothing_is_called_while_the_interface_is_not_initialised");
    register_for(&heard, &comm);
    call(&heard, MPI_T_CB_REQUIRE_THREAD_SAFE, on_event);
    check_int("initialised again", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    check_int("and finalised once", MPI_SUCCESS, MPI_T_finalize());
    exchange(comm, 1 - check.rank, MESSAGES);
    hears("still", &heard, 2 * MESSAGES);
    check_int("and finalised", MPI_SUCCESS, MPI_T_finalize());
    exchange(comm, 1 - check.rank, MESSAGES);
    hears("nothing more", &heard, 2 * MESSAGES);
    check_int("not now", MPI_T_ERR_NOT_INITIALIZED, MPI_T_event_handle_free(heard.registration, NULL, NULL));
    check_int("initialised anew", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    exchange(comm, 1 - check.rank, MESSAGES);
    hears("again", &heard, 4 * MESSAGES);
    stop(&heard);
    check_end_case();
}

int main(int argc, char **argv) {
    int provided;
    MPI_Comm comm;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
        return 1;
    check_start(&argc, &argv, 2);
    codes();
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    safety_levels(comm);
    in_callbacks(comm);
    bindings(comm);
    arrivals_are_shown_by_the_next_call(comm);
    not_initialised(comm);
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
