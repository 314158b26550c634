// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE 2.0, appendix B, 9.1.2: one callback for two events, one that begins and one that ends; what lies between is measured by
// the unique id. Where the events of the unexpected queue are not supported, which the queries tell, those of the transfer
// are taken. Rank 0 receives what rank 1 sends, the last half of it after rank 0 has said so. 2 or more ranks.
#include "../mpi/check.h"
#include <peruse.h>

enum { MESSAGES = 100, NUMBERS = 160 };

// A measure of what lies between two events.
struct measure {
    int begin, end;      // the events
    int begun, finished; // how often each was seen
    double total, most;  // seconds
    struct {
        MPI_Aint id;
        bool used;
        double since;
    } open[MESSAGES];
};

static int on_event(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    struct measure *measure = parameter;
    int event = PERUSE_EVENT_INVALID, slot = 0;
    char *name = NULL;
    PERUSE_Event_get(handle, &event);
    PERUSE_Query_event_name(event, &name);
    // Messages of collective calls have tags of their own.
    if (spec->operation != PERUSE_RECV || spec->tag != 0)
        return MPI_SUCCESS;
    if (event == measure->begin) {
        while (slot < MESSAGES - 1 && measure->open[slot].used)
            slot++;
        measure->open[slot].id = id;
        measure->open[slot].used = true;
        measure->open[slot].since = MPI_Wtime();
        measure->begun++;
    } else if (event == measure->end) {
        while (slot < MESSAGES && (measure->open[slot].id != id || !measure->open[slot].used))
            slot++;
        if (slot == MESSAGES) {
            check_fail("%s of %ld: expected a beginning, got none", name, (long)id);
            return MPI_SUCCESS;
        }
        double took = MPI_Wtime() - measure->open[slot].since;
        measure->open[slot].used = false;
        measure->total += took;
        measure->most = took > measure->most ? took : measure->most;
        measure->finished++;
    } else {
        return MPI_ERR_INTERN;
    }
    return MPI_SUCCESS;
}

// The two events by their names; false where one is not supported.
static bool choose(struct measure *measure, const char *begin, const char *end) {
    return PERUSE_Query_event(begin, &measure->begin) == PERUSE_SUCCESS && PERUSE_Query_event(end, &measure->end) == PERUSE_SUCCESS;
}

int main(int argc, char **argv) {
    static int numbers[MESSAGES][NUMBERS];
    static struct measure measure;
    MPI_Request requests[MESSAGES];
    MPI_Comm apart;
    peruse_event_h begin, end;
    check_start(&argc, &argv, 2);
    check_case("what_lies_between_two_events_is_measured");
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &apart));
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    bool unexpected = choose(&measure, "PERUSE_COMM_MSG_INSERT_IN_UNEX_Q", "PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q");
    if (!unexpected)
        check_true("transfers are supported", choose(&measure, "PERUSE_COMM_REQ_XFER_BEGIN", "PERUSE_COMM_REQ_XFER_END"));

    if (check.rank == 0) {
        check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(measure.begin, MPI_COMM_WORLD, on_event, &measure, &begin));
        check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(measure.end, MPI_COMM_WORLD, on_event, &measure, &end));
        check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(begin));
        check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(end));
        MPI_OK(MPI_Barrier(apart));
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Irecv(numbers[i], NUMBERS, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[i]));
        MPI_OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(begin));
        check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(end));
        printf("%s: %d measured, mean %.9f s, most %.9f s\n", unexpected ? "in the unexpected queue" : "in transfer",
               measure.finished, measure.total / (measure.finished ? measure.finished : 1), measure.most);
        if (!unexpected) {
            check_int("messages that began", MESSAGES, measure.begun);
            check_int("messages that ended", MESSAGES, measure.finished);
        }
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&begin));
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&end));
        check_true("a released handle is null", begin == PERUSE_EVENT_HANDLE_NULL);
    } else if (check.rank == 1) {
        // Nothing comes before there is who measures it.
        MPI_OK(MPI_Barrier(apart));
        for (int i = 0; i < MESSAGES; i++) {
            MPI_OK(MPI_Send(numbers[i], NUMBERS, MPI_INT, 0, 0, MPI_COMM_WORLD));
            if (i == MESSAGES / 2)
                MPI_OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    } else {
        MPI_OK(MPI_Barrier(apart));
    }
    MPI_OK(MPI_Comm_free(&apart));
    check_end_case();
    return check_finish();
}
