// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE 2.0, appendix B, 9.1.4: how many receives are posted, and messages unexpected, for each peer, and how long the queues get.
// Of events that are not supported the query says so, and their figures are not shown. Beside them, what the library does
// support is counted for each peer in the same way. 2 or more ranks.
#include "../mpi/check.h"
#include <peruse.h>

enum { ROUNDS = 50, EVENTS = 6 };

static const char *const names[EVENTS] = {
    "PERUSE_COMM_REQ_INSERT_IN_POSTED_Q",  "PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q", "PERUSE_COMM_MSG_INSERT_IN_UNEX_Q",
    "PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q", "PERUSE_COMM_REQ_XFER_BEGIN",           "PERUSE_COMM_REQ_XFER_END",
};

// What came in and went out of one thing: the posted queue, the unexpected queue, transfers to here.
struct queue {
    int number, length, most;
    double mean;
};

static int events[EVENTS];
static struct queue (*peers)[EVENTS / 2];

static int on_queue(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    int event = PERUSE_EVENT_INVALID;
    (void)id, (void)parameter;
    PERUSE_Event_get(handle, &event);
    // Messages of collective calls have tags of their own.
    if (spec->operation != PERUSE_RECV || spec->tag < 0)
        return MPI_SUCCESS;
    for (int i = 0; i < EVENTS; i++) {
        if (event != events[i])
            continue;
        struct queue *queue = &peers[spec->peer][i / 2];
        if (i % 2 == 0) {
            queue->number++;
            queue->length++;
            queue->most = queue->length > queue->most ? queue->length : queue->most;
            queue->mean += (queue->length - queue->mean) / queue->number;
        } else {
            queue->length--;
        }
        return MPI_SUCCESS;
    }
    return MPI_ERR_INTERN;
}

// Every rank sends to the next, and receives from the one before.
static void exchange(void) {
    int next = (check.rank + 1) % check.size, before = (check.rank + check.size - 1) % check.size;
    for (int i = 0; i < ROUNDS; i++) {
        int sent = i, got = -1;
        MPI_OK(MPI_Sendrecv(&sent, 1, MPI_INT, next, i, &got, 1, MPI_INT, before, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        check_int("message", i, got);
    }
}

int main(int argc, char **argv) {
    peruse_event_h handles[EVENTS];
    bool supported[EVENTS];
    check_start(&argc, &argv, 2);
    check_case("receives_are_counted_for_each_peer");
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    peers = calloc((size_t)check.size, sizeof *peers);
    for (int i = 0; i < EVENTS; i++) {
        supported[i] = PERUSE_Query_event(names[i], &events[i]) == PERUSE_SUCCESS;
        int code = PERUSE_Event_comm_register(events[i], MPI_COMM_WORLD, on_queue, NULL, &handles[i]);
        check_int(names[i], supported[i] ? PERUSE_SUCCESS : PERUSE_ERR_EVENT, code);
        if (supported[i])
            check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handles[i]));
    }
    // A message of a rank that is ahead may not come before there is who counts it.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    exchange();
    for (int i = 0; i < EVENTS; i++) {
        if (!supported[i])
            continue;
        check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handles[i]));
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handles[i]));
    }
    static const char *const what[] = {"posted receives", "unexpected messages", "transfers"};
    int before = (check.rank + check.size - 1) % check.size;
    for (int kind = 0; kind < EVENTS / 2; kind++) {
        if (!supported[2 * kind]) {
            if (check.rank == 0)
                printf("%s: not supported\n", what[kind]);
            continue;
        }
        struct queue *queue = &peers[before][kind];
        printf("rank %d, peer %d: %d %s, at most %d at once, %.2f on average\n", check.rank, before, queue->number, what[kind],
               queue->most, queue->mean);
        check_int("still open", 0, queue->length);
    }
    check_int("transfers that were seen", ROUNDS, peers[before][2].number);
    // Each message waits for its receive, or its receive for it.
    check_int("receives and messages that waited", supported[0] && supported[2] ? ROUNDS : 0,
              peers[before][0].number + peers[before][1].number);
    free(peers);
    check_end_case();
    return check_finish();
}
