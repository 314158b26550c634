// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE 2.0, appendix B, 9.1.1: what the library says of itself: its environment, the events it supports, the scope of its
// queues, and of each event by name whether it is supported. Both ways of asking must agree. With the argument `all` every event of the
// specification must be: where ibex does the matching. 1 or more ranks.
#include "../mpi/check.h"
#include <peruse.h>

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

int main(int argc, char **argv) {
    int variables = -1, supported = -1, scope = -1, *events = NULL;
    char **environment = NULL, **supported_names = NULL;
    check_start(&argc, &argv, 1);
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    check_case("peruse_says_what_it_supports");
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());

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
        bool of_transport = strncmp(names[i], "PERUSE_COMM_REQ_XFER_", 21) == 0 || strcmp(names[i], "PERUSE_COMM_MSG_ARRIVED") == 0;
        check_int("transfers and arrivals are supported, the rest where ibex does the matching", all || of_transport, listed);
    }
    check_end_case();
    return check_finish();
}
