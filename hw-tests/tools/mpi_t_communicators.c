// SPDX-License-Identifier: MIT OR Apache-2.0
//
// ibex_communicator_created and ibex_communicator_freed, where ibex does the matching: communicators that come and
// go, and their members. MPI_COMM_WORLD and MPI_COMM_SELF for tools that registered before MPI_Init, copies, parts in any
// order, intercommunicators, processes of two jobs, and context numbers that are used again. 4 ranks or more.
//
// usage: mpi_t_communicators [spawn]
//   spawn  2 more processes, which start as `mpi_t_communicators child`; prints the number of all (connect_cycles.c)
#include "../mpi/elements.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { MOST = 1 << 14, MOST_MEMBERS = 64, CONTEXTS = 1 << 12 };

// The elements, as docs/events.md lays them out.
struct created {
    uint32_t context, kind;
    int32_t rank;
    uint32_t size, side, first, count, process;
    int32_t stride;
    uint32_t job;
};

struct process {
    uint32_t job, rank;
};

// A communicator, as events have described it.
static struct known {
    bool is_there;
    int created, freed, events; // how often it was made and freed; events about its present members
    struct created last;
    int sizes[2], told[2];
    struct process members[2][MOST_MEMBERS];
} known[CONTEXTS];

static int early_messages; // of communicators that were not there

static void on_created(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    struct created event;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &event));
    if (event.context >= CONTEXTS || event.side > 1 || event.size > MOST_MEMBERS) {
        check_fail("a communicator of %u processes with context %u: expected less", event.size, event.context);
        return;
    }
    struct known *comm = &known[event.context];
    if (!comm->is_there) {
        int created = comm->created, freed = comm->freed;
        *comm = (struct known){.is_there = true, .created = created + 1, .freed = freed};
    } else {
        check_true("the same in all its events", comm->last.kind == event.kind && comm->last.rank == event.rank);
    }
    comm->last = event;
    comm->events++;
    comm->sizes[event.side] = (int)event.size;
    check_int("in order", comm->told[event.side], event.first);
    for (uint32_t i = 0; i < event.count && event.first + i < MOST_MEMBERS; i++)
        comm->members[event.side][event.first + i] = (struct process){event.job, event.process + (uint32_t)event.stride * i};
    comm->told[event.side] += (int)event.count;
}

static void on_freed(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    uint32_t context = CONTEXTS;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &context));
    if (context >= CONTEXTS || !known[context].is_there) {
        check_fail("a communicator is freed: expected one that is there, got context %u", context);
        return;
    }
    known[context].is_there = false;
    known[context].freed++;
}

static uint32_t last_context = CONTEXTS;

static void on_activate(MPI_T_event_instance instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {
    struct matching event;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &event));
    early_messages += event.context >= CONTEXTS || !known[event.context].is_there;
    last_context = event.context;
}

static struct process me;

// Returns the entry of a communicator. A receive, which is then cancelled, gives its context number.
static struct known *of(MPI_Comm comm) {
    int rank, sizes[2] = {0, 0}, is_inter;
    MPI_Request requests[2];
    static char byte;
    MPI_OK(MPI_Comm_rank(comm, &rank));
    MPI_OK(MPI_Comm_size(comm, &sizes[0]));
    MPI_OK(MPI_Comm_test_inter(comm, &is_inter));
    if (is_inter)
        MPI_OK(MPI_Comm_remote_size(comm, &sizes[1]));
    // The event of a receive without a message names the communicator.
    MPI_OK(MPI_Irecv(&byte, 1, MPI_BYTE, 0, 12345, comm, &requests[0]));
    uint32_t context = last_context;
    MPI_OK(MPI_Cancel(&requests[0]));
    MPI_OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    if (context >= CONTEXTS || !known[context].is_there) {
        check_fail("a communicator: expected one that is there, got context %u", context);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    struct known *comm_known = &known[context];
    check_int("kind", is_inter, comm_known->last.kind);
    check_int("rank", rank, comm_known->last.rank);
    for (int side = 0; side < 2; side++) {
        check_int(side ? "size of the remote group" : "size", sizes[side], comm_known->sizes[side]);
        check_int("events of all members", sizes[side], comm_known->told[side]);
    }
    return comm_known;
}

// Each member sends its name and number; compares these with the events of a side.
static struct known *members(MPI_Comm comm) {
    struct known *of_comm = of(comm);
    struct process said[MOST_MEMBERS];
    int is_inter = (int)of_comm->last.kind;
    // On an intercommunicator this gathers the other group.
    MPI_OK(MPI_Allgather(&me, sizeof me, MPI_BYTE, said, sizeof me, MPI_BYTE, comm));
    for (int i = 0; i < of_comm->sizes[is_inter]; i++) {
        struct process told = of_comm->members[is_inter][i];
        if (told.job != said[i].job || told.rank != said[i].rank)
            check_fail("member %d: expected rank %u of job %u, got rank %u of job %u", i, said[i].rank, said[i].job, told.rank, told.job);
    }
    return of_comm;
}

static void the_first_two(void) {
    check_case("a tool that registered before MPI_Init gets MPI_COMM_WORLD and MPI_COMM_SELF");
    struct known *world = of(MPI_COMM_WORLD), *self = of(MPI_COMM_SELF);
    check_int("one event", 1, world->events);
    check_true("all ranks in order", world->last.first == 0 && (int)world->last.count == check.size && world->last.process == 0 &&
                                         world->last.stride == (check.size > 1 ? 1 : 0));
    me = (struct process){world->last.job, (uint32_t)check.rank};
    check_int("one event", 1, self->events);
    check_true("oneself", self->last.process == me.rank && self->last.job == me.job && self->last.count == 1);
    check_true("two of them", world != self);
    members(MPI_COMM_WORLD);
}

static void copies_and_parts(void) {
    MPI_Comm part, some = MPI_COMM_NULL, copy = check_dup(MPI_COMM_WORLD);
    check_case("copies, and parts with reversed ranks, are one event each");
    check_int("one event of a copy", 1, members(copy)->events);
    int is_odd = check.rank % 2;
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, is_odd, is_odd ? -check.rank : check.rank, &part));
    struct known *of_part = members(part);
    check_int("one event of a part", 1, of_part->events);
    check_int("every second one", is_odd ? -2 : 2, of_part->last.stride);
    check_case("members whose ranks are no progression are several events");
    MPI_Group all, chosen;
    const int ranks[] = {0, 1, 3};
    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    MPI_OK(MPI_Group_incl(all, 3, ranks, &chosen));
    MPI_OK(MPI_Comm_create(MPI_COMM_WORLD, chosen, &some));
    if (some != MPI_COMM_NULL) {
        check_int("two events", 2, members(some)->events);
        MPI_OK(MPI_Comm_free(&some));
    }
    MPI_OK(MPI_Group_free(&all));
    MPI_OK(MPI_Group_free(&chosen));
    MPI_OK(MPI_Comm_free(&part));
    MPI_OK(MPI_Comm_free(&copy));
}

static void between_two_groups(void) {
    MPI_Comm part, inter, merged;
    check_case("the events of an intercommunicator have both groups");
    int is_odd = check.rank % 2;
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, is_odd, -check.rank, &part));
    // The leaders are the greatest ranks of each.
    MPI_OK(MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, check.size - 1 - (is_odd == (check.size - 1) % 2), 9, &inter));
    struct known *of_inter = members(inter);
    check_int("an event of each group", 2, of_inter->events);
    check_int("this process is in the local group", check.rank, of_inter->members[0][of_inter->last.rank].rank);
    MPI_OK(MPI_Intercomm_merge(inter, is_odd, &merged));
    members(merged);
    MPI_OK(MPI_Comm_free(&merged));
    MPI_OK(MPI_Comm_free(&inter));
    MPI_OK(MPI_Comm_free(&part));
}

static void used_again(void) {
    check_case("the end of a communicator is reported, and another gets its number");
    struct known *before = NULL;
    int again = 0;
    for (int i = 0; i < 10; i++) {
        MPI_Comm copy = check_dup(MPI_COMM_WORLD);
        struct known *now = of(copy);
        int freed = now->freed;
        again += now == before;
        before = now;
        MPI_OK(MPI_Comm_free(&copy));
        check_true("freed", !now->is_there && now->freed == freed + 1 && now->created == now->freed);
    }
    check_true("used again", again > 0);
    check_case("one with a request under way is freed when that has ended");
    MPI_Comm copy = check_dup(MPI_COMM_WORLD);
    MPI_Request request;
    static char sent, received;
    struct known *late = of(copy);
    MPI_OK(MPI_Irecv(&received, 1, MPI_BYTE, check.rank, 0, copy, &request));
    MPI_OK(MPI_Send(&sent, 1, MPI_BYTE, check.rank, 0, copy));
    MPI_OK(MPI_Comm_free(&copy));
    check_true("not yet", late->is_there);
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_true("now", !late->is_there);
}

// Checks parents and children; `between` is the intercommunicator that connects them.
static void of_two_jobs(MPI_Comm between) {
    MPI_Comm merged;
    struct known *of_between = members(between);
    check_true("another job", of_between->members[1][0].job != me.job && of_between->members[0][0].job == me.job);
    MPI_OK(MPI_Intercomm_merge(between, false, &merged));
    struct known *of_merged = members(merged);
    check_int("an event of each job", 2, of_merged->events);
    MPI_OK(MPI_Comm_free(&merged));
}

static void spawned(const char *program) {
    MPI_Comm between;
    char *arguments[] = {"child", NULL};
    check_case("events name the job of processes of another job");
    if (check.rank == 0)
        printf("processes %d\n", check.size + 2);
    MPI_OK(MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE));
    of_two_jobs(between);
    MPI_OK(MPI_Comm_disconnect(&between));
}

int main(int argc, char **argv) {
    MPI_Comm parent;
    bool is_child = argc > 1 && strcmp(argv[1], "child") == 0, spawns = argc > 1 && strcmp(argv[1], "spawn") == 0;
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    listen_to("ibex_communicator_created", NULL, on_created, NULL);
    listen_to("ibex_communicator_freed", NULL, on_freed, NULL);
    listen_to("ibex_comm_req_activate", NULL, on_activate, NULL);
    check_start(&argc, &argv, is_child ? 2 : 4);
    the_first_two();
    MPI_OK(MPI_Comm_get_parent(&parent));
    if (is_child && parent != MPI_COMM_NULL) {
        check_case("a child knows both jobs");
        of_two_jobs(parent);
        MPI_OK(MPI_Comm_disconnect(&parent));
    } else {
        copies_and_parts();
        between_two_groups();
        used_again();
        if (spawns)
            spawned(argv[0]);
    }
    check_case("no request belonged to an unknown communicator");
    check_int("none", 0, early_messages);
    return check_finish();
}
