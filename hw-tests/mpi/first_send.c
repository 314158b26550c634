// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A blocking send to a peer never spoken to before has left its process when it returns: the sender then makes no progress
// until the message has been received. Each pair of ranks does so once, from the lower rank, one pair after the other; so the
// program is made to be run many times. The receiver tells by MPI_Publish_name that it has the message, which the sender looks
// up: those calls go to the runtime and move no message on. Runs with 2 or more ranks.
//
// usage: first_send [--bytes N]...     (default 0, 8, 200, 2000 and 10000, in turn; each within the eager limit)
#include "check.h"

#include <time.h>
#include <unistd.h>

enum { MOST_SIZES = 16, PATIENCE_SECONDS = 120 };

static uint64_t seed_of(int sender, int receiver) { return ((uint64_t)sender << 32) ^ (uint64_t)receiver; }

// Names are the runtime's, and other jobs of the same runtime may run this program.
static void name_of(char *name, size_t room, const char *job, int sender, int receiver) {
    snprintf(name, room, "first_send %s %d %d", job, sender, receiver);
}

// Looks, without any progress of messages, until the receiver has said that it has the message.
static bool is_received(const char *name) {
    char value[MPI_MAX_PORT_NAME];
    for (int tries = 0; tries < PATIENCE_SECONDS * 100; tries++) {
        if (MPI_Lookup_name(name, MPI_INFO_NULL, value) == MPI_SUCCESS)
            return true;
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    }
    return false;
}

static void send_first(const char *job, int receiver, int bytes) {
    char name[128];
    unsigned char *out = check_alloc((size_t)bytes);
    pattern_fill(out, (size_t)bytes, seed_of(check.rank, receiver));
    MPI_OK(MPI_Send(out, bytes, MPI_BYTE, receiver, 1, MPI_COMM_WORLD));
    name_of(name, sizeof name, job, check.rank, receiver);
    if (!is_received(name))
        check_fail("%d bytes to rank %d: not received while their sender made no progress", bytes, receiver);
    free(out);
}

static void receive_first(const char *job, int sender, int bytes) {
    char name[128];
    unsigned char *in = check_alloc((size_t)bytes);
    MPI_OK(MPI_Recv(in, bytes, MPI_BYTE, sender, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    pattern_check("first message", in, (size_t)bytes, seed_of(sender, check.rank));
    name_of(name, sizeof name, job, sender, check.rank);
    MPI_OK(MPI_Publish_name(name, MPI_INFO_NULL, "received"));
    free(in);
}

int main(int argc, char **argv) {
    int sizes[MOST_SIZES] = {0, 8, 200, 2000, 10000}, count = 5, given = 0, at = 0;
    MPI_Init(&argc, &argv);
    check_attach(2);
    for (int i = 1; i + 1 < argc && strcmp(argv[i], "--bytes") == 0 && given < MOST_SIZES; i += 2)
        sizes[given++] = atoi(argv[i + 1]);
    if (argc != 1 + 2 * given) {
        if (check.rank == 0)
            fprintf(stderr, "usage: first_send [--bytes N]...\n");
        MPI_Finalize();
        return CHECK_USAGE_EXIT;
    }
    count = given ? given : count;
    const char *job = getenv("PMIX_NAMESPACE") ? getenv("PMIX_NAMESPACE") : "";
    // A name that is not there yet is an error that is looked for.
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    check_case("each_first_send_has_left_when_it_returns");
    // A rank begins to send when all lower ranks have sent to it: until then nobody has spoken to those above.
    for (int sender = 0; sender < check.size; sender++)
        for (int receiver = sender + 1; receiver < check.size; receiver++, at++) {
            if (check.rank == sender)
                send_first(job, receiver, sizes[at % count]);
            if (check.rank == receiver)
                receive_first(job, sender, sizes[at % count]);
        }
    check_end_case();
    return check_finish();
}
