// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE under MPI_THREAD_MULTIPLE: each thread exchanges messages on its own communicator, and makes, opens, closes
// and releases its own handles while others' messages are under way; a handle's data of the tool is freed with it; a
// count of all callbacks under PERUSE's lock is exact. 2 or more ranks.
#include "peruse_handle.h"
#include <peruse.h>

enum { THREADS = 4, MESSAGES = 20, BYTES = 50000 };

static int rounds;
static MPI_Comm comms[THREADS];
static long total; // under PERUSE's lock
static atomic_long expected;

struct given {
    MPI_Comm comm;
    int valid;
    atomic_int begun, ended;
};
enum { VALID = 0x600d };

static int on_event(peruse_event_h handle, MPI_Aint, peruse_comm_spec_t *spec, void *parameter) {
    struct given *given = parameter;
    check_int("what was given is there", VALID, given->valid);
    check_true("the communicator is the thread's", spec->comm == given->comm);
    atomic_fetch_add(event_of(handle) == PERUSE_COMM_REQ_XFER_BEGIN ? &given->begun : &given->ended, 1);
    check_int("PERUSE_Lock", PERUSE_SUCCESS, PERUSE_Lock());
    check_int("nested", PERUSE_ERR_LOCK, PERUSE_Lock());
    total++;
    check_int("PERUSE_Unlock", PERUSE_SUCCESS, PERUSE_Unlock());
    return MPI_SUCCESS;
}

static void *with_handles_of_its_own(void *argument) {
    MPI_Comm comm = comms[(intptr_t)argument];
    unsigned char *out = check_alloc(BYTES), *in = check_alloc(BYTES);
    memset(out, 1, BYTES);
    for (int round = 0; round < rounds; round++) {
        struct given *given = check_alloc(sizeof *given);
        *given = (struct given){.comm = comm, .valid = VALID};
        peruse_event_h begin = opened(PERUSE_COMM_REQ_XFER_BEGIN, comm, on_event, given);
        peruse_event_h end = opened(PERUSE_COMM_REQ_XFER_END, comm, on_event, given);
        // No rank sends before the windows of all are open.
        MPI_OK(MPI_Barrier(comm));
        for (int i = 0; i < MESSAGES; i++)
            MPI_OK(MPI_Sendrecv(out, i % 2 ? BYTES : 8, MPI_BYTE, right, i, in, i % 2 ? BYTES : 8, MPI_BYTE, left, i, comm,
                                MPI_STATUS_IGNORE));
        if (round % 2)
            check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(begin));
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&begin));
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&end));
        int begun = atomic_load(&given->begun), ended = atomic_load(&given->ended);
        if (begun < 2 * MESSAGES || ended < 2 * MESSAGES)
            check_fail("round %d: expected %d begun and ended, got %d and %d", round, 2 * MESSAGES, begun, ended);
        atomic_fetch_add(&expected, begun + ended);
        given->valid = 0;
        free(given);
    }
    free(in);
    free(out);
    return NULL;
}

// Toggles the window of a handle to which others' messages are shown, while they run.
static atomic_bool done;
static void *opens_and_closes(void *) {
    struct given given = {.comm = comms[0], .valid = VALID};
    peruse_event_h handle;
    while (!atomic_load(&done)) {
        check_int("register", PERUSE_SUCCESS,
                  PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_BEGIN, comms[0], on_event, &given, &handle));
        for (int i = 0; i < 10; i++) {
            check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
            sched_yield();
            check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handle));
            int seen = atomic_load(&given.begun);
            sched_yield();
            check_int("none is called while the window is closed", seen, atomic_load(&given.begun));
        }
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
    }
    atomic_fetch_add(&expected, atomic_load(&given.begun));
    given.valid = 0;
    return NULL;
}

static void threads_with_handles(void) {
    pthread_t other;
    check_case("each thread has handles of its own");
    pthread_create(&other, NULL, opens_and_closes, NULL);
    check_in_threads(THREADS, with_handles_of_its_own);
    atomic_store(&done, true);
    pthread_join(other, NULL);
    check_int("counted under the lock", atomic_load(&expected), total);
}

int main(int argc, char **argv) {
    check_start_with(MPI_THREAD_MULTIPLE, &argc, &argv, 2);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    rounds = scaled(10, 2);
    for (int t = 0; t < THREADS; t++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]));
    threads_with_handles();
    for (int t = 0; t < THREADS; t++)
        MPI_OK(MPI_Comm_free(&comms[t]));
    return check_finish();
}
