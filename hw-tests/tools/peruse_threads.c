// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE under MPI_THREAD_MULTIPLE: each thread exchanges messages on its own communicator, and makes, opens, closes
// and releases its own handles while others' messages are under way; what a tool gave for a handle is freed with it; a
// count of all callbacks under PERUSE's lock is exact, and a callback of the thread that has the lock is refused it.
// Communicators are freed while another thread toggles their handles. Skipped without threads. 2 or more ranks.
#include "peruse_handle.h"
#include <peruse.h>
#include <pthread.h>

enum { THREADS = 4, MESSAGES = 20, BYTES = 50000 };

static int rounds, to, from;
static MPI_Comm comms[THREADS];
static long total; // under PERUSE's lock
static atomic_long expected;

struct given {
    MPI_Comm comm;
    int valid;
    atomic_int begun, ended;
};
enum { VALID = 0x600d };

static int on_event(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    struct given *given = parameter;
    int event = PERUSE_EVENT_INVALID;
    (void)id;
    check_int("what was given is there", VALID, given->valid);
    check_int("PERUSE_Event_get", PERUSE_SUCCESS, PERUSE_Event_get(handle, &event));
    check_true("the communicator is the thread's", spec->comm == given->comm);
    atomic_fetch_add(event == PERUSE_COMM_REQ_XFER_BEGIN ? &given->begun : &given->ended, 1);
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
            MPI_OK(MPI_Sendrecv(out, i % 2 ? BYTES : 8, MPI_BYTE, to, i, in, i % 2 ? BYTES : 8, MPI_BYTE, from, i, comm,
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
static void *opens_and_closes(void *argument) {
    struct given given = {.comm = comms[0], .valid = VALID};
    peruse_event_h handle;
    (void)argument;
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
    pthread_t threads[THREADS], other;
    check_case("each thread has handles of its own");
    pthread_create(&other, NULL, opens_and_closes, NULL);
    for (intptr_t t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, with_handles_of_its_own, (void *)t);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    atomic_store(&done, true);
    pthread_join(other, NULL);
    check_int("counted under the lock", atomic_load(&expected), total);
    check_end_case();
}

// A handle of a communicator that is about to be freed; number of times that its window was toggled.
static _Atomic peruse_event_h going;
static atomic_int toggled;

static int on_going(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    struct given *given = parameter;
    (void)handle, (void)id;
    check_int("what was given is there", VALID, given->valid);
    check_true("the communicator, or its copy", spec->comm == given->comm || given->comm == MPI_COMM_NULL);
    return MPI_SUCCESS;
}

static bool is_one_of(int code, int one, int other, int third) {
    return code == one || code == other || code == third;
}

static void *toggles(void *unused) {
    while (!atomic_load(&done)) {
        peruse_event_h handle = atomic_load(&going);
        if (handle == PERUSE_EVENT_HANDLE_NULL) {
            sched_yield();
            continue;
        }
        // Its communicator may be freed, and the handle released, at any time.
        int opened = PERUSE_Event_activate(handle), closed = PERUSE_Event_deactivate(handle);
        check_true("activate", is_one_of(opened, PERUSE_SUCCESS, PERUSE_ERR_MPI_OBJECT, PERUSE_ERR_EVENT_HANDLE));
        check_true("deactivate", is_one_of(closed, PERUSE_SUCCESS, PERUSE_ERR_MPI_OBJECT, PERUSE_ERR_EVENT_HANDLE));
        if (opened == PERUSE_SUCCESS)
            atomic_fetch_add(&toggled, 1);
        sched_yield();
    }
    return unused;
}

static void communicators_that_are_freed(void) {
    pthread_t other;
    check_case("communicators are freed while another thread opens and closes windows of their handles");
    atomic_store(&done, false);
    pthread_create(&other, NULL, toggles, NULL);
    for (int round = 0; round < 4 * rounds; round++) {
        unsigned char out = 1, in = 0;
        struct given *given = check_alloc(sizeof *given);
        peruse_event_h handle;
        MPI_Comm comm, copy;
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        *given = (struct given){.comm = round % 2 ? MPI_COMM_NULL : comm, .valid = VALID};
        check_int("register", PERUSE_SUCCESS, PERUSE_Event_comm_register(PERUSE_COMM_REQ_ACTIVATE, comm, on_going, given, &handle));
        if (round % 2)
            check_int("propagate", PERUSE_SUCCESS, PERUSE_Event_propagate(handle, PERUSE_TRUE));
        int before = atomic_load(&toggled);
        atomic_store(&going, handle);
        while (atomic_load(&toggled) == before)
            sched_yield();
        MPI_OK(MPI_Comm_dup(comm, &copy));
        MPI_OK(MPI_Sendrecv(&out, 1, MPI_BYTE, to, 0, &in, 1, MPI_BYTE, from, 0, copy, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Sendrecv(&out, 1, MPI_BYTE, to, 0, &in, 1, MPI_BYTE, from, 0, comm, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Comm_free(&copy));
        MPI_OK(MPI_Comm_free(&comm));
        check_int("of a communicator that is gone", PERUSE_ERR_MPI_OBJECT, PERUSE_Event_activate(handle));
        atomic_store(&going, PERUSE_EVENT_HANDLE_NULL);
        check_int("release", PERUSE_ERR_MPI_OBJECT, PERUSE_Event_release(&handle));
        // No callback comes any more, not even of a communicator in the place of the freed one.
        given->valid = 0;
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        MPI_OK(MPI_Sendrecv(&out, 1, MPI_BYTE, to, 0, &in, 1, MPI_BYTE, from, 0, comm, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Comm_free(&comm));
        free(given);
    }
    atomic_store(&done, true);
    pthread_join(other, NULL);
    check_end_case();
}

static int granted, refused;

static int on_message(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    (void)handle, (void)id, (void)spec, (void)parameter;
    int code = PERUSE_Lock();
    if (code == PERUSE_SUCCESS) {
        granted++;
        check_int("unlock", PERUSE_SUCCESS, PERUSE_Unlock());
    } else {
        refused++;
        check_int("lock", PERUSE_LOCK_NOT_GRANTABLE, code);
        check_int("lock, once more", PERUSE_LOCK_NOT_GRANTABLE, PERUSE_Lock());
    }
    return MPI_SUCCESS;
}

// A tool must not call MPI with the lock: PERUSE_Lock then refuses its callbacks, and nothing hangs.
static void a_thread_that_has_the_lock(void) {
    unsigned char out = 1, in = 0;
    check_case("the lock is not grantable to a callback of the thread that has it");
    peruse_event_h handle = opened(PERUSE_COMM_REQ_XFER_BEGIN, comms[0], on_message, NULL);
    MPI_OK(MPI_Barrier(comms[0]));
    // Shows what has happened so far.
    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(handle));
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    int before = granted;
    check_int("refused", 0, refused);
    check_int("lock", PERUSE_SUCCESS, PERUSE_Lock());
    MPI_OK(MPI_Sendrecv(&out, 1, MPI_BYTE, to, 0, &in, 1, MPI_BYTE, from, 0, comms[0], MPI_STATUS_IGNORE));
    // Releasing the handle may show the messages that have arrived.
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
    check_int("unlock", PERUSE_SUCCESS, PERUSE_Unlock());
    check_int("granted", before, granted);
    // The other rank's message may have come before.
    check_true("refused", refused >= 1);
    check_end_case();
}

int main(int argc, char **argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_attach(2);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    rounds = scaled(10, 2);
    to = (check.rank + 1) % check.size;
    from = (check.rank + check.size - 1) % check.size;
    for (int t = 0; t < THREADS; t++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]));
    if (provided == MPI_THREAD_MULTIPLE) {
        threads_with_handles();
        communicators_that_are_freed();
    } else {
        check_skip("each thread has handles of its own", "this MPI gives no MPI_THREAD_MULTIPLE");
        check_skip("communicators are freed", "this MPI gives no MPI_THREAD_MULTIPLE");
    }
    a_thread_that_has_the_lock();
    for (int t = 0; t < THREADS; t++)
        MPI_OK(MPI_Comm_free(&comms[t]));
    return check_finish();
}
