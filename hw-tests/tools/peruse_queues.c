// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE 2.0, appendix B, 9.1.3: how long searches of the queues take. An event that the queries say is not supported is refused by
// the registration as well; what is left is watched while rank 0 receives what rank 1 sends. 2 or more ranks.
#include "../mpi/check.h"
#include <peruse.h>

enum { MESSAGES = 100, NUMBERS = 160, EVENTS = 4 };

static const int events[EVENTS] = {PERUSE_COMM_SEARCH_POSTED_Q_BEGIN, PERUSE_COMM_SEARCH_POSTED_Q_END,
                                   PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN, PERUSE_COMM_SEARCH_UNEX_Q_END};

static double since[2], total[2]; // seconds in the posted and the unexpected queue

static int on_search(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    int event = PERUSE_EVENT_INVALID;
    (void)id, (void)spec, (void)parameter;
    PERUSE_Event_get(handle, &event);
    for (int i = 0; i < EVENTS; i++) {
        if (event != events[i])
            continue;
        if (i % 2 == 0)
            since[i / 2] = MPI_Wtime();
        else
            total[i / 2] += MPI_Wtime() - since[i / 2];
        return MPI_SUCCESS;
    }
    return MPI_ERR_INTERN;
}

int main(int argc, char **argv) {
    static int numbers[MESSAGES][NUMBERS];
    MPI_Request requests[MESSAGES];
    peruse_event_h handles[EVENTS];
    int registered = 0;
    check_start(&argc, &argv, 2);
    check_case("searches_are_watched_where_the_library_has_queues");
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    for (int i = 0; i < EVENTS; i++) {
        char *name = NULL;
        int known = PERUSE_Query_event_name(events[i], &name);
        int code = PERUSE_Event_comm_register(events[i], MPI_COMM_WORLD, on_search, NULL, &handles[registered]);
        check_int("what the query says, and what the registration", known, code);
        check_true("refused because the event is not supported", code == PERUSE_SUCCESS || code == PERUSE_ERR_EVENT);
        registered += code == PERUSE_SUCCESS;
    }
    if (check.rank == 0 && registered < EVENTS)
        printf("%d of %d events of searches cannot be registered\n", EVENTS - registered, EVENTS);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (check.rank == 0) {
        for (int i = 0; i < registered; i++)
            check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handles[i]));
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Irecv(numbers[i], NUMBERS, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[i]));
        MPI_OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        for (int i = 0; i < registered; i++)
            check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handles[i]));
        printf("searching the posted queue %.9f s, the unexpected queue %.9f s\n", total[0], total[1]);
    } else if (check.rank == 1) {
        for (int i = 0; i < MESSAGES; i++) {
            MPI_OK(MPI_Send(numbers[i], NUMBERS, MPI_INT, 0, 0, MPI_COMM_WORLD));
            if (i == MESSAGES / 4)
                MPI_OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
    for (int i = 0; i < registered; i++)
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handles[i]));
    check_end_case();
    return check_finish();
}
