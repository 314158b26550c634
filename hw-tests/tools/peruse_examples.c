// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The examples of PERUSE 2.0, appendix B, and a callback that fails. 2 or more ranks, where ibex does the matching; the
// queries also where it does not, and supports fewer events.
//
// usage: peruse_examples queries [all]   9.1.1: the environment, the events, the scope of the queues, asked both ways;
//                                        `all`: every event of the specification is supported
//        peruse_examples between         9.1.2: how long messages are unexpected, by their unique ids
//        peruse_examples searches        9.1.3: how long searches of the queues take
//        peruse_examples receives        9.1.4: for each peer, how many receives are posted and messages unexpected
//        peruse_examples ending ANSWER   a callback returns ANSWER at the tenth message from its peer: unless that is
//                                        MPI_SUCCESS the job ends there, and "went on" is not printed
#include "peruse_handle.h"
#include <peruse.h>

enum { MESSAGES = 100, NUMBERS = 160, ROUNDS = 50 };

// Rank 0 receives what rank 1 sends; only the first `early` messages may come before their receives are posted.
static void receive_many(int early) {
    static int numbers[MESSAGES][NUMBERS];
    MPI_Request requests[MESSAGES];
    if (check.rank == 0) {
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Irecv(numbers[i], NUMBERS, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[i]));
        MPI_OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    } else if (check.rank == 1) {
        for (int i = 0; i < MESSAGES; i++) {
            MPI_OK(MPI_Send(numbers[i], NUMBERS, MPI_INT, 0, 0, MPI_COMM_WORLD));
            if (i + 1 == early)
                MPI_OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
}

// ---- 9.1.1 ----------------------------------------------------------------------------------------------------------

static const char *const names[] = {
    "PERUSE_COMM_REQ_ACTIVATE",          "PERUSE_COMM_REQ_MATCH_UNEX",
    "PERUSE_COMM_REQ_INSERT_IN_POSTED_Q", "PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q",
    "PERUSE_COMM_REQ_XFER_BEGIN",        "PERUSE_COMM_REQ_XFER_END",
    "PERUSE_COMM_REQ_COMPLETE",          "PERUSE_COMM_REQ_NOTIFY",
    "PERUSE_COMM_MSG_ARRIVED",           "PERUSE_COMM_MSG_INSERT_IN_UNEX_Q",
    "PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q", "PERUSE_COMM_MSG_MATCH_POSTED_REQ",
    "PERUSE_COMM_SEARCH_POSTED_Q_BEGIN", "PERUSE_COMM_SEARCH_POSTED_Q_END",
    "PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN", "PERUSE_COMM_SEARCH_UNEX_Q_END",
};

static void queries(bool all) {
    int variables = -1, supported = -1, scope = -1, *events = NULL;
    char **environment = NULL, **supported_names = NULL;
    check_int("environment", PERUSE_SUCCESS, PERUSE_Query_environment(&variables, &environment));
    for (int i = 0; i < variables; i++)
        check_true("a variable has a value", strchr(environment[i], '=') != NULL);

    check_int("events", PERUSE_SUCCESS, PERUSE_Query_supported_events(&supported, &supported_names, &events));
    for (int i = 0; check.rank == 0 && i < supported; i++)
        printf("%s=%d\n", supported_names[i], events[i]);

    check_int("scope", PERUSE_SUCCESS, PERUSE_Query_queue_event_scope(&scope));
    if (check.rank == 0)
        printf("scope %s, %d variables\n", scope == PERUSE_PER_COMM ? "per communicator" : "global", variables);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int event = -7, listed = 0;
        int code = PERUSE_Query_event(names[i], &event);
        for (int s = 0; s < supported; s++)
            listed += strcmp(names[i], supported_names[s]) == 0 && events[s] == event;
        if (check.rank == 0)
            printf("%s is %s\n", names[i], code == PERUSE_SUCCESS ? "supported" : "not supported");
        check_int(names[i], listed ? PERUSE_SUCCESS : PERUSE_ERR_EVENT, code);
        check_true("an event that is not supported has no number", listed || event == PERUSE_EVENT_INVALID);
        check_int("listed where ibex does the matching", all, listed);
    }
}

// ---- 9.1.2 ----------------------------------------------------------------------------------------------------------

static struct {
    int begun, finished; // how often each event was seen
    double total, most;  // seconds
    struct {
        MPI_Aint id;
        bool used;
        double since;
    } open[MESSAGES];
} measure;

static int on_either(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *) {
    int event = event_of(handle), slot = 0;
    // Messages of collective calls have tags of their own.
    if (spec->operation != PERUSE_RECV || spec->tag != 0)
        return MPI_SUCCESS;
    if (event == PERUSE_COMM_MSG_INSERT_IN_UNEX_Q) {
        while (slot < MESSAGES - 1 && measure.open[slot].used)
            slot++;
        measure.open[slot].id = id;
        measure.open[slot].used = true;
        measure.open[slot].since = MPI_Wtime();
        measure.begun++;
        return MPI_SUCCESS;
    }
    while (slot < MESSAGES && (measure.open[slot].id != id || !measure.open[slot].used))
        slot++;
    if (event != PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q || slot == MESSAGES)
        return MPI_ERR_INTERN;
    double took = MPI_Wtime() - measure.open[slot].since;
    measure.open[slot].used = false;
    measure.total += took;
    measure.most = took > measure.most ? took : measure.most;
    measure.finished++;
    return MPI_SUCCESS;
}

static void between(MPI_Comm apart) {
    peruse_event_h first = PERUSE_EVENT_HANDLE_NULL, last = PERUSE_EVENT_HANDLE_NULL;
    if (check.rank == 0) {
        first = opened(PERUSE_COMM_MSG_INSERT_IN_UNEX_Q, MPI_COMM_WORLD, on_either, NULL);
        last = opened(PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q, MPI_COMM_WORLD, on_either, NULL);
    }
    // No message may come before the handles are there.
    MPI_OK(MPI_Barrier(apart));
    receive_many(MESSAGES / 2 + 1);
    if (check.rank != 0)
        return;
    released(first);
    released(last);
    check_int("messages that are taken out", measure.begun, measure.finished);
    printf("in the unexpected queue: %d measured, mean %.9f s, most %.9f s\n", measure.finished,
           measure.total / (measure.finished ? measure.finished : 1), measure.most);
}

// ---- 9.1.3 ----------------------------------------------------------------------------------------------------------

enum { SEARCHES = 4 };

static const int searched[SEARCHES] = {PERUSE_COMM_SEARCH_POSTED_Q_BEGIN, PERUSE_COMM_SEARCH_POSTED_Q_END,
                                       PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN, PERUSE_COMM_SEARCH_UNEX_Q_END};

static double since[2], total[2]; // seconds in the posted and the unexpected queue

static int on_search(peruse_event_h handle, MPI_Aint, peruse_comm_spec_t *, void *) {
    int place = place_of(event_of(handle), searched, SEARCHES);
    if (place == SEARCHES)
        return MPI_ERR_INTERN;
    if (place % 2 == 0)
        since[place / 2] = MPI_Wtime();
    else
        total[place / 2] += MPI_Wtime() - since[place / 2];
    return MPI_SUCCESS;
}

static void searches(MPI_Comm apart) {
    peruse_event_h handles[SEARCHES];
    opened_all(SEARCHES, handles, searched, MPI_COMM_WORLD, on_search, NULL);
    MPI_OK(MPI_Barrier(apart));
    receive_many(MESSAGES / 4 + 1);
    released_all(SEARCHES, handles);
    if (check.rank == 0)
        printf("searching the posted queue %.9f s, the unexpected queue %.9f s\n", total[0], total[1]);
}

// ---- 9.1.4 ----------------------------------------------------------------------------------------------------------

// The begin and end of a stay in the posted queue, of one in the unexpected queue, and of a transfer to this rank.
enum { QUEUED = 6 };
static const int queued[QUEUED] = {PERUSE_COMM_REQ_INSERT_IN_POSTED_Q, PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q,
                                   PERUSE_COMM_MSG_INSERT_IN_UNEX_Q,   PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q,
                                   PERUSE_COMM_REQ_XFER_BEGIN,         PERUSE_COMM_REQ_XFER_END};

struct queue {
    int number, length, most;
    double mean;
};

static struct queue (*peers)[QUEUED / 2];

static int on_queue(peruse_event_h handle, MPI_Aint, peruse_comm_spec_t *spec, void *) {
    // Messages of collective calls have tags of their own.
    if (spec->operation != PERUSE_RECV || spec->tag < 0)
        return MPI_SUCCESS;
    int place = place_of(event_of(handle), queued, QUEUED);
    if (place == QUEUED)
        return MPI_ERR_INTERN;
    struct queue *queue = &peers[spec->peer][place / 2];
    if (place % 2 == 0) {
        queue->number++;
        queue->length++;
        queue->most = queue->length > queue->most ? queue->length : queue->most;
        queue->mean += (queue->length - queue->mean) / queue->number;
    } else {
        queue->length--;
    }
    return MPI_SUCCESS;
}

static void receives(void) {
    static const char *const what[] = {"posted receives", "unexpected messages", "transfers"};
    peruse_event_h handles[QUEUED];
    peers = calloc((size_t)check.size, sizeof *peers);
    opened_all(QUEUED, handles, queued, MPI_COMM_WORLD, on_queue, NULL);
    // No message of a rank that is ahead may come before the handles are there.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < ROUNDS; i++) {
        int sent = i, got = -1;
        MPI_OK(MPI_Sendrecv(&sent, 1, MPI_INT, right, i, &got, 1, MPI_INT, left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        check_int("message", i, got);
    }
    released_all(QUEUED, handles);
    for (int kind = 0; kind < QUEUED / 2; kind++) {
        struct queue *queue = &peers[left][kind];
        printf("rank %d, peer %d: %d %s, at most %d at once, %.2f on average\n", check.rank, left, queue->number, what[kind],
               queue->most, queue->mean);
        check_int("still open", 0, queue->length);
    }
    check_int("transfers that were seen", ROUNDS, peers[left][2].number);
    // Each message waits for its receive, or its receive for it.
    check_int("receives and messages that waited", ROUNDS, peers[left][0].number + peers[left][1].number);
    free(peers);
}

static int received;

static int on_message(peruse_event_h, MPI_Aint, peruse_comm_spec_t *spec, void *answer) {
    received += spec->operation == PERUSE_RECV && spec->tag >= 0;
    return received == 10 ? *(int *)answer : MPI_SUCCESS;
}

static void ending(int answer) {
    peruse_event_h handle;
    if (check.rank == 1)
        handle = opened(PERUSE_COMM_REQ_XFER_END, MPI_COMM_WORLD, on_message, &answer);
    for (int i = 0; i < 100; i++) {
        int number = i;
        MPI_OK(MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD));
        if (check.rank < 2)
            MPI_OK(MPI_Sendrecv_replace(&number, 1, MPI_INT, 1 - check.rank, 0, 1 - check.rank, 0, MPI_COMM_WORLD,
                                        MPI_STATUS_IGNORE));
    }
    // An active handle is released, too.
    if (check.rank == 1)
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
    printf("went on\n");
}

int main(int argc, char **argv) {
    MPI_Comm apart;
    check_start(&argc, &argv, 2);
    const char *which = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "";
    check_case("an_example_of_peruse_%s%s%s", which, *more ? "_" : "", more);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &apart));
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    if (strcmp(which, "queries") == 0) {
        queries(strcmp(more, "all") == 0);
    } else if (strcmp(which, "between") == 0) {
        between(apart);
    } else if (strcmp(which, "searches") == 0) {
        searches(apart);
    } else if (strcmp(which, "receives") == 0) {
        receives();
    } else if (strcmp(which, "ending") == 0) {
        ending(atoi(more));
    } else {
        check_refuse("peruse_examples: no example is named %s\n", which);
    }
    MPI_OK(MPI_Comm_free(&apart));
    return check_finish();
}
