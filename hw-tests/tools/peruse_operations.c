// SPDX-License-Identifier: MIT OR Apache-2.0
//
// PERUSE on one-sided operations, whichever PML does the matching: each put, get and atomic starts and completes, with
// one id and the same fields. Which callback is called when windows open and close and callbacks are replaced. 2 ranks.
#include "peruse_handle.h"
#include <peruse.h>

enum { BYTES = 20000, OPERATIONS = 256, KINDS = 6, PUTS = 4 };
static const int kinds[KINDS] = {PERUSE_IBEX_PUT_STARTED,  PERUSE_IBEX_GET_STARTED,  PERUSE_IBEX_ACC_STARTED,
                                 PERUSE_IBEX_PUT_COMPLETE, PERUSE_IBEX_GET_COMPLETE, PERUSE_IBEX_ACC_COMPLETE};
static const int operation_of[KINDS / 2] = {PERUSE_PUT, PERUSE_GET, PERUSE_ACC};

static MPI_Comm comm;
static MPI_Win window;

static struct operation {
    MPI_Aint id;
    peruse_comm_spec_t spec;
    bool completed;
} operations[OPERATIONS];
static int started;

static int on_operation(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *) {
    int kind = place_of(event_of(handle), kinds, KINDS);
    check_int("tag", -1, spec->tag);
    check_true("the communicator is the handle's", spec->comm == comm);
    check_true("the count is in bytes", spec->datatype == MPI_BYTE);
    check_true("it has a place", spec->buf != NULL);
    check_true("its peer is in the communicator", spec->peer >= 0 && spec->peer < check.size);
    check_int("operation", operation_of[kind % (KINDS / 2)], spec->operation);
    if (kind < KINDS / 2) {
        operations[started % OPERATIONS] = (struct operation){id, *spec, false};
        started++;
        return MPI_SUCCESS;
    }
    for (int i = started - 1; i >= 0 && i >= started - OPERATIONS; i--) {
        struct operation *operation = &operations[i % OPERATIONS];
        if (operation->id != id || operation->completed)
            continue;
        operation->completed = true;
        check_int("bytes", operation->spec.count, spec->count);
        check_true("place", operation->spec.buf == spec->buf);
        check_int("peer", operation->spec.peer, spec->peer);
        check_int("operation", operation->spec.operation, spec->operation);
        return MPI_SUCCESS;
    }
    check_fail("operation %ld: expected a start, got none", (long)id);
    return MPI_SUCCESS;
}

static void each_is_started_and_completed(void) {
    static unsigned char put[BYTES], got[BYTES];
    static long long added = 1, found;
    peruse_event_h handles[KINDS];
    int of_program = 0, atomics = 0, target = 1 - check.rank;
    check_case("puts, gets and atomics are started and completed");
    opened_all(KINDS, handles, kinds, comm, on_operation, NULL);
    MPI_OK(MPI_Put(put, BYTES, MPI_BYTE, target, 8, BYTES, MPI_BYTE, window));
    MPI_OK(MPI_Get(got, BYTES, MPI_BYTE, target, 8 + BYTES, BYTES, MPI_BYTE, window));
    MPI_OK(MPI_Fetch_and_op(&added, &found, MPI_LONG_LONG, target, 0, MPI_SUM, window));
    MPI_OK(MPI_Win_flush(target, window));
    released_all(KINDS, handles);
    for (int i = 0; i < started && i < OPERATIONS; i++) {
        peruse_comm_spec_t *spec = &operations[i].spec;
        check_true("it is complete", operations[i].completed);
        of_program += spec->count == BYTES && spec->peer == target && (spec->buf == put || spec->buf == got);
        atomics += spec->operation == PERUSE_ACC && spec->count == 8 && spec->peer == target;
    }
    check_int("those of the program", 2, of_program);
    check_true("atomics", atomics > 0);
}

static int first, second, third;

static int on_first(peruse_event_h, MPI_Aint, peruse_comm_spec_t *, void *count) {
    ++*(int *)count;
    return MPI_SUCCESS;
}

static int on_second(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *) {
    return on_first(handle, id, spec, &second);
}

// Puts a little; each callback must have been called so often since the last time.
static void called(const char *what, int of_first, int of_second, int of_third) {
    static unsigned char bytes[PUTS];
    for (int i = 0; i < PUTS; i++)
        MPI_OK(MPI_Put(&bytes[i], 1, MPI_BYTE, 1 - check.rank, 8 + i, 1, MPI_BYTE, window));
    MPI_OK(MPI_Win_flush(1 - check.rank, window));
    check_int(what, of_first, first);
    check_int(what, of_second, second);
    check_int(what, of_third, third);
    first = second = third = 0;
}

static void windows_are_independent(void) {
    check_case("windows are independent, and callbacks the last that were set");
    peruse_event_h one = opened(PERUSE_IBEX_PUT_STARTED, comm, on_first, &first);
    called("one", PUTS, 0, 0);
    peruse_event_h other = opened(PERUSE_IBEX_PUT_STARTED, comm, on_first, &third);
    called("two of one callback", PUTS, 0, PUTS);
    check_int("refused", PERUSE_ERR_EVENT_HANDLE, PERUSE_Event_comm_callback_set(one, on_second, NULL));
    called("one that is active cannot be replaced", PUTS, 0, PUTS);
    check_int("deactivate", PERUSE_SUCCESS, PERUSE_Event_deactivate(one));
    called("the window of one is closed", 0, 0, PUTS);
    check_int("set", PERUSE_SUCCESS, PERUSE_Event_comm_callback_set(one, on_second, NULL));
    called("replaced, and closed", 0, 0, PUTS);
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(one));
    check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(one));
    called("replaced, opened twice", 0, PUTS, PUTS);
    check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&one));
    called("one is released while it is open", 0, 0, PUTS);
    released(other);
    called("none is left", 0, 0, 0);
}

int main(int argc, char **argv) {
    static unsigned char memory[8 + 2 * BYTES] __attribute__((aligned(8)));
    check_start(&argc, &argv, 2);
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_OK(MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI_OK(MPI_Win_lock_all(0, window));
    each_is_started_and_completed();
    windows_are_independent();
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
