// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE 2.0, appendix B, 9.2: a profiler before MPI_Init, the calls that make and free communicators, and
// MPI_Finalize. It registers for each event of requests and messages on every communicator, and prints the times
// between events. The application is below it. 2 or more ranks, where ibex does the matching.
#include "peruse_handle.h"
#include <peruse.h>

enum { EVENTS = 12, COMMUNICATORS = 16, IDS = 4096, MESSAGES = 40 };

static const int events[EVENTS] = {
    PERUSE_COMM_REQ_ACTIVATE,           PERUSE_COMM_REQ_MATCH_UNEX,
    PERUSE_COMM_REQ_INSERT_IN_POSTED_Q, PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q,
    PERUSE_COMM_REQ_XFER_BEGIN,         PERUSE_COMM_REQ_XFER_END,
    PERUSE_COMM_REQ_COMPLETE,           PERUSE_COMM_REQ_NOTIFY,
    PERUSE_COMM_MSG_ARRIVED,            PERUSE_COMM_MSG_INSERT_IN_UNEX_Q,
    PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q, PERUSE_COMM_MSG_MATCH_POSTED_REQ,
};

// A metric: the time from one event of a request to another.
static struct metric {
    const char *name;
    int from, to; // places in `events`
    int number;
    double mean, most; // seconds
} metrics[] = {
    {"activate to match", 0, 1, 0, 0, 0},     {"activate to transfer begin", 0, 4, 0, 0, 0},
    {"transfer begin to end", 4, 5, 0, 0, 0}, {"complete to notify", 6, 7, 0, 0, 0},
    {"activate to notify", 0, 7, 0, 0, 0},    {"in the unexpected queue", 9, 10, 0, 0, 0},
};
enum { METRICS = sizeof metrics / sizeof *metrics };

static struct {
    MPI_Comm comm;
    peruse_event_h handles[EVENTS];
} watched[COMMUNICATORS];
static int communicators;

// Times of each event of a request when last seen, by the request's unique id.
static struct stamps {
    MPI_Aint id;
    double at[EVENTS];
} stamps[IDS];

static struct stamps *stamps_of(MPI_Aint id) {
    for (size_t tries = 0, at = (size_t)id; tries < IDS; tries++, at++) {
        struct stamps *found = &stamps[at % IDS];
        if (found->id == id)
            return found;
        if (found->id == 0) {
            found->id = id;
            return found;
        }
    }
    return NULL;
}

static int on_event(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *) {
    if (spec->peer == check.rank)
        return MPI_SUCCESS;
    int place = place_of(event_of(handle), events, EVENTS);
    struct stamps *request = stamps_of(id);
    if (place == EVENTS || !request)
        return MPI_ERR_INTERN;
    request->at[place] = PMPI_Wtime();
    for (int i = 0; i < METRICS; i++) {
        struct metric *metric = &metrics[i];
        if (metric->to != place || request->at[metric->from] == 0)
            continue;
        double took = request->at[place] - request->at[metric->from];
        metric->number++;
        metric->mean += (took - metric->mean) / metric->number;
        metric->most = took > metric->most ? took : metric->most;
    }
    // These end an id's use.
    if (place == 7 || place == 10 || place == 11)
        memset(request->at, 0, sizeof request->at);
    return MPI_SUCCESS;
}

static int watch(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || communicators == COMMUNICATORS)
        return MPI_SUCCESS;
    watched[communicators].comm = comm;
    opened_all(EVENTS, watched[communicators++].handles, events, comm, on_event, NULL);
    return MPI_SUCCESS;
}

static void forget(int place) {
    if (watched[place].comm != MPI_COMM_NULL)
        released_all(EVENTS, watched[place].handles);
    watched[place].comm = MPI_COMM_NULL;
}

int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv);
    if (code != MPI_SUCCESS || PERUSE_Init() != PERUSE_SUCCESS)
        return MPI_ERR_INTERN;
    // Open MPI's clock begins with its first call, and 0 stands for "not seen" here.
    PMPI_Wtime();
    return watch(MPI_COMM_WORLD);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *made) {
    int code = PMPI_Comm_create(comm, group, made);
    return code == MPI_SUCCESS ? watch(*made) : code;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made) {
    int code = PMPI_Comm_dup(comm, made);
    return code == MPI_SUCCESS ? watch(*made) : code;
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made) {
    int code = PMPI_Comm_split(comm, color, key, made);
    return code == MPI_SUCCESS ? watch(*made) : code;
}

int MPI_Comm_free(MPI_Comm *comm) {
    for (int i = 0; i < communicators; i++)
        if (watched[i].comm == *comm)
            forget(i);
    return PMPI_Comm_free(comm);
}

int MPI_Finalize(void) {
    for (int i = 0; i < communicators; i++)
        forget(i);
    for (int i = 0; check.rank == 0 && i < METRICS; i++)
        if (metrics[i].number > 0)
            printf("%s: %d, mean %.9f s, most %.9f s\n", metrics[i].name, metrics[i].number, metrics[i].mean, metrics[i].most);
    return PMPI_Finalize();
}

static void exchange(MPI_Comm comm) {
    int to, from, got = -1;
    check_neighbours(comm, &to, &from);
    for (int i = 0; i < MESSAGES; i++) {
        MPI_OK(MPI_Sendrecv(&i, 1, MPI_INT, to, i, &got, 1, MPI_INT, from, i, comm, MPI_STATUS_IGNORE));
        check_int("message", i, got);
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    check_case("a_profiler_follows_requests_on_every_communicator");
    MPI_Comm copy, half, all;
    MPI_Group group;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -check.rank, &half));
    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
    MPI_OK(MPI_Comm_create(MPI_COMM_WORLD, group, &all));
    MPI_OK(MPI_Group_free(&group));
    int before = metrics[2].number;
    exchange(MPI_COMM_WORLD);
    exchange(copy);
    exchange(half);
    exchange(all);
    // Each communicator had as many messages to and from this rank; those of collective calls may be among them.
    check_true("transfers were seen on all communicators", metrics[2].number - before >= 4 * MESSAGES);
    for (int i = 0; i < METRICS; i++) {
        // Whether a message waits for its receive is chance.
        bool waits = i == 0 || i == 5;
        check_true(metrics[i].name, waits || metrics[i].number > 0);
    }
    MPI_OK(MPI_Comm_free(&all));
    MPI_OK(MPI_Comm_free(&half));
    MPI_OK(MPI_Comm_free(&copy));
    return check_finish();
}
