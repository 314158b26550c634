// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Callbacks of MPI_T events: each level of safety gets its events; a registration for one communicator gets only those
// of this communicator, and none once that is freed; all come at the latest with the next MPI call that makes progress.
// 2 ranks.
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { TAG = 77, MESSAGES = 20, LEVELS = 4, ELEMENT_TAG = 7, ELEMENT_DIRECTION = 8, ROUNDS = 60, LONGEST = 1 << 20 };
static const int lengths[] = {8, 4096, 40000, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

struct heard {
    atomic_int events, levels[LEVELS];
    MPI_T_event_registration registration;
};

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

static void register_for(struct heard *heard, MPI_Comm *comm) {
    memset(heard, 0, sizeof *heard);
    heard->registration = registered("ibex_xfer_begin", comm, MPI_INFO_NULL);
}

// With a callback of this level.
static void listen(struct heard *heard, MPI_Comm *comm, int level) {
    register_for(heard, comm);
    call_back(heard->registration, level, on_event, heard);
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
    while (heard->events < wanted && MPI_Wtime() < end)
        check_progress();
    for (int i = 0; i < 1000; i++)
        check_progress();
    check_int(who, wanted, heard->events);
}

// Every message has one begin on each side. As one thread runs MPI, events go to the callback of the least level that
// may be called within MPI; a callback that may only be called outside of it gets them when it is freed.
static void safety_levels(MPI_Comm comm) {
    struct heard alone[LEVELS], all, chosen[LEVELS];
    check_case("the_callback_of_the_least_level_that_is_fit_is_called");
    register_for(&all, &comm);
    for (int level = LEVELS - 1; level >= 0; level--) {
        listen(&alone[level], &comm, level);
        chosen[level] = all;
        call_back(all.registration, level, on_event, &chosen[level]);
    }
    exchange(comm, 1 - check.rank, MESSAGES);
    for (int level = 1; level < LEVELS; level++)
        hears("one of this level alone", &alone[level], 2 * MESSAGES);
    hears("one that may do anything", &alone[MPI_T_CB_REQUIRE_NONE], 0);
    hears("the least that is fit", &chosen[MPI_T_CB_REQUIRE_MPI_RESTRICTED], 2 * MESSAGES);
    // Outside of MPI's calls.
    listen_no_more(alone[MPI_T_CB_REQUIRE_NONE].registration);
    hears("one that may do anything, at its end", &alone[MPI_T_CB_REQUIRE_NONE], 2 * MESSAGES);
    check_int("and at its level", 2 * MESSAGES, alone[MPI_T_CB_REQUIRE_NONE].levels[MPI_T_CB_REQUIRE_NONE]);
    for (int level = 1; level < LEVELS; level++) {
        listen_no_more(alone[level].registration);
        check_int("asked for no more than the place does", 2 * MESSAGES, alone[level].levels[MPI_T_CB_REQUIRE_MPI_RESTRICTED]);
    }
    // Without the callback that got them, the next level gets what follows.
    call_back(all.registration, MPI_T_CB_REQUIRE_MPI_RESTRICTED, NULL, NULL);
    exchange(comm, 1 - check.rank, MESSAGES);
    hears("the next", &chosen[MPI_T_CB_REQUIRE_THREAD_SAFE], 2 * MESSAGES);
    hears("no other", &chosen[MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE], 0);
    listen_no_more(all.registration);
}

// Each of two registrations hears the messages of its communicator alone.
static void bound(const char *name, MPI_Comm comm, int peer, MPI_Comm other, int other_peer) {
    struct heard here, there;
    check_case(name);
    listen(&here, &comm, MPI_T_CB_REQUIRE_THREAD_SAFE);
    listen(&there, &other, MPI_T_CB_REQUIRE_THREAD_SAFE);
    exchange(comm, peer, MESSAGES);
    exchange(other, other_peer, 3);
    hears("on the one", &here, 2 * MESSAGES);
    hears("on the other", &there, 2 * 3);
    listen_no_more(here.registration);
    listen_no_more(there.registration);
}

static void bindings(MPI_Comm comm) {
    MPI_Comm other = check_dup(MPI_COMM_WORLD), between, self = MPI_COMM_SELF;
    bound("a_registration_hears_its_communicator_alone", comm, 1 - check.rank, other, 1 - check.rank);
    MPI_OK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - check.rank, TAG + 2, &between));
    bound("and_one_between_two_groups", between, 0, other, 1 - check.rank);
    MPI_OK(MPI_Comm_free(&between));

    check_case("a_registration_for_a_freed_communicator_gets_no_event_of_its_successor");
    struct heard of_freed, of_self;
    listen(&of_self, &self, MPI_T_CB_REQUIRE_THREAD_SAFE);
    listen(&of_freed, &other, MPI_T_CB_REQUIRE_THREAD_SAFE);
    exchange(other, 1 - check.rank, MESSAGES);
    MPI_OK(MPI_Comm_free(&other));
    // Open MPI gives the lowest number that is free.
    for (int i = 0; i < 4; i++) {
        MPI_Comm next = check_dup(MPI_COMM_WORLD);
        exchange(next, 1 - check.rank, MESSAGES);
        MPI_OK(MPI_Comm_free(&next));
    }
    exchange(MPI_COMM_SELF, 0, 1);
    hears("of the freed one", &of_freed, 2 * MESSAGES);
    hears("of this process to itself, sent and received", &of_self, 2);
    listen_no_more(of_freed.registration);
    listen_no_more(of_self.registration);
}

static int arrivals, ends;

// Ends of sends count too; they may come after the answer.
static void on_transfer_end(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    unsigned direction = 0;
    check_int("MPI_T_event_read", MPI_SUCCESS, MPI_T_event_read(instance, ELEMENT_DIRECTION, &direction));
    ends += direction == 1;
}

static void arrivals_are_shown_by_the_next_call(MPI_Comm comm) {
    static unsigned char buffer[LONGEST];
    check_case("the next call that makes progress shows arrivals");
    MPI_T_event_registration one = listen_to("ibex_msg_arrived", &comm, count_event, &arrivals),
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
            check_progress();
            check_int("arrivals", 1, arrivals);
            check_int("ends", 1, ends);
            arrivals = ends = 0;
        }
    }
    listen_no_more(one);
    listen_no_more(other);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    listen_must(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}), "MPI_T");
    MPI_Comm comm = check_dup(MPI_COMM_WORLD);
    safety_levels(comm);
    bindings(comm);
    arrivals_are_shown_by_the_next_call(comm);
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
