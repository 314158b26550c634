// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE on communicators of every kind: callbacks get the right peer on those that were split, reversed or made from a
// group, and on intercommunicators; a handle sees no other communicator; handles propagate to copies made by each call,
// not to other communicators; communicators are freed while handles are active. 4 or more ranks.
#include "peruse_handle.h"
#include <peruse.h>

enum { EVENTS = 2, MESSAGES = 5, KNOWN = 16, LONG = 100000 };

static const int events[EVENTS] = {PERUSE_COMM_REQ_XFER_BEGIN, PERUSE_COMM_REQ_XFER_END};

struct seen {
    MPI_Comm comms[KNOWN];
    int peer[KNOWN]; // the last one's, of messages sent
    int source[KNOWN]; // of messages received
    int counts[KNOWN][EVENTS][2];
};

static int on_event(peruse_event_h handle, MPI_Aint, peruse_comm_spec_t *spec, void *parameter) {
    struct seen *seen = parameter;
    int place = 0;
    // Messages of collective calls have tags of their own.
    if (spec->tag < 0)
        return MPI_SUCCESS;
    while (place < KNOWN - 1 && seen->comms[place] != spec->comm && seen->comms[place] != NULL)
        place++;
    seen->comms[place] = spec->comm;
    *(spec->operation == PERUSE_SEND ? &seen->peer[place] : &seen->source[place]) = spec->peer;
    seen->counts[place][event_of(handle) == events[1]][spec->operation == PERUSE_RECV]++;
    return MPI_SUCCESS;
}

static void open_windows(MPI_Comm comm, int mode, struct seen *seen, peruse_event_h handles[EVENTS]) {
    memset(seen, 0, sizeof *seen);
    for (int i = 0; i < EVENTS; i++) {
        check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(events[i], comm, on_event, seen, &handles[i]));
        check_int("propagate", PERUSE_SUCCESS, PERUSE_Event_propagate(handles[i], mode));
        check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handles[i]));
    }
}

static void close_windows(peruse_event_h handles[EVENTS]) {
    for (int i = 0; i < EVENTS; i++)
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handles[i]));
}

static void exchange(MPI_Comm comm, int to, int from, int bytes) {
    static unsigned char out[LONG], in[LONG];
    for (int i = 0; i < MESSAGES; i++)
        MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, i, in, bytes, MPI_BYTE, from, i, comm, MPI_STATUS_IGNORE));
}

// All messages of one communicator were seen, with these peers; none if `times` is 0.
static void check_seen(const char *what, const struct seen *seen, MPI_Comm comm, int to, int from, int times) {
    int place = 0;
    while (place < KNOWN - 1 && seen->comms[place] != comm)
        place++;
    bool there = seen->comms[place] == comm;
    check_int(what, times > 0, there);
    for (int event = 0; there && event < EVENTS; event++)
        for (int direction = 0; direction < 2; direction++)
            check_int(what, times * MESSAGES, seen->counts[place][event][direction]);
    if (there) {
        check_int(what, to, seen->peer[place]);
        check_int(what, from, seen->source[place]);
    }
}

// Watches one communicator while there are messages on it and on another; not where a rank is not in it.
static void peers(const char *what, MPI_Comm comm, int to, int from) {
    struct seen seen;
    peruse_event_h handles[EVENTS];
    bool is_in = comm != MPI_COMM_NULL;
    if (is_in)
        open_windows(comm, PERUSE_FALSE, &seen, handles);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (is_in) {
        exchange(comm, to, from, 8);
        exchange(comm, to, from, LONG);
    }
    int world_to, world_from;
    check_neighbours(MPI_COMM_WORLD, &world_to, &world_from);
    if (comm != MPI_COMM_WORLD)
        exchange(MPI_COMM_WORLD, world_to, world_from, 8);
    if (!is_in)
        return;
    close_windows(handles);
    check_seen(what, &seen, comm, to, from, to == MPI_PROC_NULL ? 0 : 2);
    check_true("no other communicator is shown", seen.comms[1] == NULL);
}

// The process with this rank in the other group; the even and the odd ranks form the two groups.
static int across(int rank) {
    int others = check.rank % 2 ? (check.size + 1) / 2 : check.size / 2;
    return rank < others ? rank : MPI_PROC_NULL;
}

static void every_kind_of_communicator(void) {
    MPI_Comm turned, half, grouped, grid, sides, merged;
    MPI_Group world, group;
    int to, from, periodic = 1, rank = check.rank, size = check.size;
    check_case("peers are ranks of the communicator");
    check_neighbours(MPI_COMM_WORLD, &to, &from);
    peers("MPI_COMM_WORLD", MPI_COMM_WORLD, to, from);

    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned));
    check_neighbours(turned, &to, &from);
    peers("turned round", turned, to, from);

    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half));
    check_neighbours(half, &to, &from);
    peers("half", half, to, from);

    MPI_OK(MPI_Comm_group(turned, &world));
    MPI_OK(MPI_Group_incl(world, 2, (int[]){size - 1, 1}, &group));
    MPI_OK(MPI_Comm_create(turned, group, &grouped));
    if (grouped != MPI_COMM_NULL)
        check_neighbours(grouped, &to, &from);
    peers("of a group", grouped, to, from);
    MPI_OK(MPI_Group_free(&group));
    MPI_OK(MPI_Group_free(&world));

    MPI_OK(MPI_Cart_create(turned, 1, &size, &periodic, 1, &grid));
    check_neighbours(grid, &to, &from);
    peers("a grid", grid, to, from);

    // One side is the even ranks, the other the odd ones, both turned round.
    int mine;
    MPI_OK(MPI_Comm_rank(half, &mine));
    MPI_OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? (size - 1) / 2 * 2 : size / 2 * 2 - 1, 7, &sides));
    peers("two sides", sides, across(mine), across(mine));
    MPI_OK(MPI_Intercomm_merge(sides, rank % 2, &merged));
    check_neighbours(merged, &to, &from);
    peers("two sides merged", merged, to, from);

    MPI_Comm *made[] = {&turned, &half, &grouped, &grid, &sides, &merged};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (*made[i] != MPI_COMM_NULL)
            MPI_OK(MPI_Comm_free(made[i]));
}

static void propagation(void) {
    struct seen seen, still;
    peruse_event_h handles[EVENTS], others[EVENTS];
    enum { COPIES = 4, ALL = 8 };
    MPI_Comm comms[ALL], original, sides;
    MPI_Request request;
    int to, from, periodic = 1;
    check_case("handles follow copies if the tool asks for that, and no other communicator");
    check_neighbours(MPI_COMM_WORLD, &to, &from);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &original));
    MPI_OK(MPI_Comm_dup(original, &comms[7])); // before there is a handle
    open_windows(original, PERUSE_TRUE, &seen, handles);
    open_windows(original, PERUSE_FALSE, &still, others);
    MPI_OK(MPI_Comm_dup(original, &comms[0]));
    MPI_OK(MPI_Comm_dup_with_info(original, MPI_INFO_NULL, &comms[1]));
    MPI_OK(MPI_Comm_idup(original, &comms[2], &request));
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Comm_dup(comms[0], &comms[3]));
    MPI_OK(MPI_Comm_split(original, 0, check.rank, &comms[4]));
    MPI_Group group;
    MPI_OK(MPI_Comm_group(original, &group));
    MPI_OK(MPI_Comm_create(original, group, &comms[5]));
    MPI_OK(MPI_Group_free(&group));
    MPI_OK(MPI_Cart_create(original, 1, &check.size, &periodic, 0, &comms[6]));
    for (int i = 0; i < ALL; i++)
        exchange(comms[i], to, from, i % 2 ? LONG : 8);
    exchange(original, to, from, 8);
    // Closing a window, or freeing a communicator, shows an end that is on its way.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < ALL; i++) {
        MPI_Comm gone = comms[i];
        MPI_OK(MPI_Comm_free(&comms[i]));
        check_seen("a copy, or not", &seen, gone, to, from, i < COPIES);
    }
    check_seen("the original", &seen, original, to, from, 1);
    check_seen("the original alone", &still, original, to, from, 1);
    check_true("nothing else", still.comms[1] == NULL);
    close_windows(handles);
    close_windows(others);

    // The same with two sides.
    MPI_Comm half, copy;
    MPI_OK(MPI_Comm_split(original, check.rank % 2, check.rank, &half));
    MPI_OK(MPI_Intercomm_create(half, 0, original, 1 - check.rank % 2, 7, &sides));
    open_windows(sides, PERUSE_TRUE, &seen, handles);
    MPI_OK(MPI_Comm_dup(sides, &copy));
    int other = across(check.rank / 2);
    exchange(copy, other, other, 8);
    close_windows(handles);
    check_seen("a copy with two sides", &seen, copy, other, other, other != MPI_PROC_NULL);
    MPI_OK(MPI_Comm_free(&copy));
    MPI_OK(MPI_Comm_free(&sides));
    MPI_OK(MPI_Comm_free(&half));
    MPI_OK(MPI_Comm_free(&original));
}

// Communicators come and go while windows are open, and messages are under way when they are freed.
static void freed_while_active(void) {
    static unsigned char out[MESSAGES][LONG], in[MESSAGES][LONG];
    int to, from;
    check_case("a communicator is freed while windows are open");
    check_neighbours(MPI_COMM_WORLD, &to, &from);
    for (int round = 0; round < scaled(20, 3); round++) {
        MPI_Comm comm, copy;
        MPI_Request requests[2 * MESSAGES];
        struct seen seen;
        peruse_event_h handles[EVENTS];
        int event;
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        open_windows(comm, PERUSE_TRUE, &seen, handles);
        MPI_OK(MPI_Comm_dup(comm, &copy));
        MPI_Comm freed = copy;
        for (int i = 0; i < MESSAGES; i++) {
            MPI_OK(MPI_Irecv(in[i], i * LONG / MESSAGES, MPI_BYTE, from, i, copy, &requests[i]));
            MPI_OK(MPI_Isend(out[i], i * LONG / MESSAGES, MPI_BYTE, to, i, copy, &requests[MESSAGES + i]));
        }
        if (round % 2)
            MPI_OK(MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE));
        MPI_OK(MPI_Comm_free(&copy));
        if (round % 2)
            check_seen("completed requests are shown", &seen, freed, to, from, 1);
        else
            MPI_OK(MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE));
        MPI_OK(MPI_Comm_free(&comm));
        struct seen before = seen;
        exchange(MPI_COMM_WORLD, to, from, 8);
        for (int i = 0; i < EVENTS; i++) {
            check_int("get", PERUSE_ERR_MPI_OBJECT, PERUSE_Event_get(handles[i], &event));
            check_int("deactivate", PERUSE_ERR_MPI_OBJECT, PERUSE_Event_deactivate(handles[i]));
            check_int("release", PERUSE_ERR_MPI_OBJECT, PERUSE_Event_release(&handles[i]));
        }
        check_int("nothing is called any more", 0, memcmp(&before, &seen, sizeof seen));
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 4);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    every_kind_of_communicator();
    propagation();
    freed_while_active();
    return check_finish();
}
