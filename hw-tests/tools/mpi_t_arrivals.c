// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What has arrived is shown soon: at the latest by the next call of MPI that makes progress after the one that received it, by the
// adapter's stamp, and the arrival of a message has the elements of the message. 2 ranks.
#include "../mpi/elements.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { ROUNDS = 60, LONGEST = 1 << 20, NEVER = 9999 };
static const int lengths[] = {8, 4096, 40000, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static MPI_Comm comm;

union element {
    struct arrival arrived;
    struct transfer transfer;
    unsigned char bytes[128];
};
static union element arrived, ended;
static int arrivals, ends;

static void on_arrived(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety, (void)user;
    union element element;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &element));
    if (element.arrived.tag >= 0) {
        arrived = element;
        arrivals++;
    }
}

// Sends end, too, and may do so after the answer has come.
static void on_end(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety, (void)user;
    union element element;
    check_int("copy", MPI_SUCCESS, MPI_T_event_copy(instance, &element));
    if (element.transfer.tag >= 0 && element.transfer.direction == 1) {
        ended = element;
        ends++;
    }
}

// One call of MPI's that makes progress, and receives nothing.
static void make_progress(void) {
    int flag;
    MPI_OK(MPI_Iprobe(1 - check.rank, NEVER, comm, &flag, MPI_STATUS_IGNORE));
}

static void check_message(int bytes, int tag) {
    check_int("ends", 1, ends);
    check_int("arrivals", 1, arrivals);
    check_true("of one message", arrived.arrived.message == ended.transfer.message);
    check_int("bytes", bytes > 4096 ? 0 : bytes, (long long)arrived.arrived.bytes);
    check_int("bytes in all", bytes, (long long)arrived.arrived.total);
    check_int("tag", tag, arrived.arrived.tag);
    check_int("sender", 1 - check.rank, arrived.arrived.source);
    check_int("sender's rank in the job", 1 - check.rank, arrived.arrived.peer);
    check_true("communicator", arrived.arrived.context == ended.transfer.context);
}

static void arrivals_are_shown_by_the_next_call(void) {
    static unsigned char buffer[LONGEST];
    check_case("what has arrived is shown by the next call that makes progress");
    MPI_T_event_registration one = listen_to("ibex_msg_arrived", &comm, on_arrived, NULL),
                             other = listen_to("ibex_xfer_end", &comm, on_end, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = lengths[round % LENGTHS];
        // Rank 0 begins every other time; the other's answer is its next message.
        if ((check.rank + round) % 2)
            MPI_OK(MPI_Send(buffer, bytes, MPI_BYTE, 1 - check.rank, round, comm));
        else {
            MPI_OK(MPI_Recv(buffer, bytes, MPI_BYTE, 1 - check.rank, round, comm, MPI_STATUS_IGNORE));
            make_progress();
            check_message(bytes, round);
            arrivals = ends = 0;
        }
    }
    listen_no_more(one);
    listen_no_more(other);
    check_end_case();
}

int main(int argc, char **argv) {
    int provided;
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    check_int("MPI_T", MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    arrivals_are_shown_by_the_next_call();
    check_int("MPI_T", MPI_SUCCESS, MPI_T_finalize());
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
