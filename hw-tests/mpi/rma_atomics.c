// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One-sided operations that read and write atomically, by every rank on the same memory, and exclusive locks. Results
// are checked as a whole (the counter's end value) and one by one (no two ranks fetch the same ticket). All this is
// done twice: in a window over the program's own memory, and in one that MPI allocates. Between ranks of one node Open
// MPI's osc/rdma reaches the latter through shared memory. Runs with 1 or more ranks.
//
// usage: rma_atomics [--same-op]
//   --same-op  the windows promise that ranks use one operation at a time on an item (the info key accumulate_ops), and
//              ask for no shared memory (disable_shm_accumulate): then MPICH and Intel MPI use the transport's atomics
#include "check.h"

#include <inttypes.h>

enum { WINDOW_BYTES = 1 << 20 };

static int rank, size;
static const char *kind_name; // name of the kind of window
static MPI_Win window;
static unsigned char *memory;
static bool same_op; // whether windows promise it

// Clears this rank's window; no rank goes on before all have done so. Inside the lock_all epoch of main().
static void clear_windows(void) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    memset(memory, 0, WINDOW_BYTES);
    MPI_OK(MPI_Win_sync(window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

// The info of a window, to be freed.
static MPI_Info promises(void) {
    MPI_Info info;
    MPI_OK(MPI_Info_create(&info));
    if (same_op) {
        MPI_OK(MPI_Info_set(info, "accumulate_ops", "same_op"));
        MPI_OK(MPI_Info_set(info, "disable_shm_accumulate", "true"));
    }
    return info;
}

// On return all operations of all ranks are complete in the windows, and this rank may read its own window.
static void all_done(void) {
    MPI_OK(MPI_Win_flush_all(window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_sync(window));
}

// For one type: every rank accumulates `count` items into every window, by sum, by maximum, by bit operations
// (integers) and by replacement. Item i of rank r is r + i % 5 + 1 (small enough for one byte).
#define ACCUMULATE_OF(NAME, TYPE, MPI_TYPE, IS_INTEGER)                                                                \
    static void accumulate_##NAME(int count) {                                                                         \
        TYPE *mine = check_alloc((size_t)count * sizeof *mine), *here = (TYPE *)(void *)memory;                        \
        check_case("%s_window_accumulate_%d_items_of_%s_from_all_ranks", kind_name, count, #NAME);                     \
        for (int i = 0; i < count; i++)                                                                                \
            mine[i] = (TYPE)(rank + i % 5 + 1);                                                                        \
        for (int kind = 0; kind < 4; kind++) {                                                                         \
            static const char *const kinds[] = {"sum", "maximum", "bits", "replacement"};                              \
            MPI_Op op = kind == 0 ? MPI_SUM : kind == 1 ? MPI_MAX : kind == 2 ? MPI_BOR : MPI_REPLACE;                 \
            if (kind == 2 && !(IS_INTEGER))                                                                            \
                continue;                                                                                              \
            clear_windows();                                                                                           \
            for (int target = 0; target < size; target++)                                                              \
                MPI_OK(MPI_Accumulate(mine, count, MPI_TYPE, (rank + target) % size, 0, count, MPI_TYPE, op, window)); \
            all_done();                                                                                                \
            for (int i = 0; i < count; i++) {                                                                          \
                long long sum = 0, bits = 0, got = (long long)here[i];                                                 \
                for (int r = 0; r < size; r++)                                                                         \
                    sum += r + i % 5 + 1, bits |= r + i % 5 + 1;                                                       \
                long long most = size + i % 5, expected = kind == 0 ? sum : kind == 1 ? most : bits;                   \
                if (kind == 3 && got > i % 5 && got <= most)                                                           \
                    continue; /* the value of any rank */                                                              \
                if (got != expected)                                                                                   \
                    check_fail("%s, item %d: expected %lld, got %lld", kinds[kind], i, expected, got);                 \
            }                                                                                                          \
        }                                                                                                              \
        free(mine);                                                                                                    \
    }

ACCUMULATE_OF(bytes, uint8_t, MPI_UINT8_T, 1)
ACCUMULATE_OF(int16, int16_t, MPI_INT16_T, 1)
ACCUMULATE_OF(int32, int32_t, MPI_INT32_T, 1)
ACCUMULATE_OF(int64, int64_t, MPI_INT64_T, 1)
ACCUMULATE_OF(floats, float, MPI_FLOAT, 0)
ACCUMULATE_OF(doubles, double, MPI_DOUBLE, 0)

// Many accumulates of one rank to the same items, in order: the last replacement stays, sums add up.
static void accumulates_in_order(int count) {
    int64_t *here = (int64_t *)(void *)memory, one = 1;
    check_case("%s_window_accumulates_of_one_rank_keep_their_order", kind_name);
    clear_windows();
    for (int i = 0; i < count; i++) {
        static int64_t values[64];
        MPI_Aint at = rank * 16;
        values[i % 64] = i;
        MPI_OK(MPI_Accumulate(&values[i % 64], 1, MPI_INT64_T, right, at, 1, MPI_INT64_T, MPI_REPLACE, window));
        MPI_OK(MPI_Accumulate(&one, 1, MPI_INT64_T, right, at, 1, MPI_INT64_T, MPI_SUM, window));
        MPI_OK(MPI_Accumulate(&one, 1, MPI_INT64_T, right, at + 8, 1, MPI_INT64_T, MPI_SUM, window));
        if (i % 64 == 63)
            MPI_OK(MPI_Win_flush_local(right, window));
    }
    all_done();
    check_int("last replacement and its sum", count, here[left * 2]);
    check_int("sum", count, here[left * 2 + 1]);
}

// Every second item of a longer array, by a type with gaps at the target.
static void accumulate_with_gaps(int count) {
    int32_t *here = (int32_t *)(void *)memory, *mine = check_alloc((size_t)count * sizeof *mine);
    MPI_Datatype spread = check_vector(count, 1, 2, MPI_INT32_T);
    check_case("%s_window_accumulate_to_every_second_item", kind_name);
    clear_windows();
    for (int i = 0; i < count; i++)
        mine[i] = rank * 10 + i;
    for (int target = 0; target < size; target++)
        MPI_OK(MPI_Accumulate(mine, count, MPI_INT32_T, target, 0, 1, spread, MPI_SUM, window));
    all_done();
    for (int i = 0; i < 2 * count; i++) {
        int expected = i % 2 ? 0 : size * (size - 1) / 2 * 10 + size * (i / 2);
        if (here[i] != expected)
            check_fail("item %d: expected %d, got %d", i, expected, here[i]);
    }
    MPI_OK(MPI_Type_free(&spread));
    free(mine);
}

// Adds up, over all ranks, which of `total` tickets were fetched: each exactly once.
static void check_tickets(const int *taken, int total) {
    int *times = check_alloc((size_t)total * sizeof *times);
    MPI_OK(MPI_Allreduce(taken, times, total, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; rank == 0 && i < total; i++)
        if (times[i] != 1)
            check_fail("times ticket %d of %d was fetched: expected 1, got %d", i, total, times[i]);
    free(times);
}

static void note_ticket(int *taken, int total, long long ticket) {
    if (ticket < 0 || ticket >= total)
        check_fail("ticket: expected 0 to %d, got %lld", total - 1, ticket);
    else
        taken[ticket]++;
}

#define TICKETS_OF(NAME, TYPE, MPI_TYPE)                                                                               \
    static void tickets_##NAME(int each) {                                                                             \
        int total = each * size, *taken = calloc((size_t)total, sizeof *taken);                                        \
        TYPE one = 1, zero = 0, before, end = 0;                                                                       \
        check_case("%s_window_fetch_and_op_of_%s_gives_every_ticket_once", kind_name, #NAME);                          \
        clear_windows();                                                                                               \
        for (int i = 0; i < each; i++) {                                                                               \
            MPI_OK(MPI_Fetch_and_op(&one, &before, MPI_TYPE, size - 1, 64, MPI_SUM, window));                          \
            MPI_OK(MPI_Win_flush(size - 1, window));                                                                   \
            note_ticket(taken, total, (long long)before);                                                              \
        }                                                                                                              \
        all_done();                                                                                                    \
        MPI_OK(MPI_Fetch_and_op(&zero, &end, MPI_TYPE, size - 1, 64, MPI_NO_OP, window));                              \
        MPI_OK(MPI_Win_flush(size - 1, window));                                                                       \
        check_int("counter in the end", total, (long long)end);                                                        \
        check_tickets(taken, total);                                                                                   \
        free(taken);                                                                                                   \
    }

TICKETS_OF(int32, int32_t, MPI_INT32_T)
TICKETS_OF(int64, int64_t, MPI_INT64_T)
TICKETS_OF(doubles, double, MPI_DOUBLE)

static void tickets_in_flight(int each) {
    int64_t one = 1, *before = check_alloc((size_t)(each * size) * sizeof *before);
    int total = each * size, *taken = calloc((size_t)total, sizeof *taken);
    check_case("%s_window_fetches_in_flight_from_counters_of_every_rank", kind_name);
    clear_windows();
    for (int i = 0; i < each; i++)
        for (int target = 0; target < size; target++)
            MPI_OK(MPI_Fetch_and_op(&one, &before[target * each + i], MPI_INT64_T, target, 8, MPI_SUM, window));
    MPI_OK(MPI_Win_flush_all(window));
    for (int target = 0; target < size; target++) {
        memset(taken, 0, (size_t)total * sizeof *taken);
        for (int i = 0; i < each; i++)
            note_ticket(taken, total, before[target * each + i]);
        check_tickets(taken, total);
    }
    free(before);
    free(taken);
}

// Blocks of items: the fetched values and the final ones must be consistent.
static void get_accumulate(int count, int each) {
    int64_t *ones = check_alloc((size_t)count * sizeof *ones), *before = check_alloc((size_t)count * sizeof *before);
    int64_t *here = (int64_t *)(void *)memory, last = -1;
    check_case("%s_window_get_accumulate_of_%d_items_fetches_and_adds", kind_name, count);
    clear_windows();
    for (int i = 0; i < count; i++)
        ones[i] = 1;
    for (int k = 0; k < each; k++) {
        memset(before, 0xff, (size_t)count * sizeof *before);
        MPI_OK(MPI_Get_accumulate(ones, count, MPI_INT64_T, before, count, MPI_INT64_T, 0, 0, count, MPI_INT64_T,
                                  MPI_SUM, window));
        MPI_OK(MPI_Win_flush(0, window));
        for (int i = 0; i < count; i++)
            if (before[i] < 0 || before[i] >= each * size || (i == 0 && before[i] <= last))
                check_fail("item %d fetched: expected %" PRId64 " to %d, got %" PRId64, i, last + 1, each * size - 1,
                           before[i]);
        last = before[0];
    }
    all_done();
    for (int i = 0; rank == 0 && i < count; i++)
        if (here[i] != each * size)
            check_fail("item %d in the end: expected %d, got %" PRId64, i, each * size, here[i]);
    MPI_OK(MPI_Get_accumulate(NULL, 0, MPI_BYTE, before, count, MPI_INT64_T, 0, 0, count, MPI_INT64_T, MPI_NO_OP,
                              window));
    MPI_OK(MPI_Win_flush(0, window));
    check_int("item read without an operation", (long long)each * size, before[count - 1]);
    free(ones);
    free(before);
}

#define SWAPS_OF(NAME, TYPE, MPI_TYPE)                                                                                 \
    static void swaps_##NAME(int each) {                                                                               \
        TYPE *here = (TYPE *)(void *)memory, seen = 0, got, next;                                                      \
        int left_over = each;                                                                                          \
        check_case("%s_window_compare_and_swap_of_%s_counts_every_success", kind_name, #NAME);                         \
        clear_windows();                                                                                               \
        while (left_over > 0) {                                                                                        \
            next = (TYPE)(seen + 1);                                                                                   \
            MPI_OK(MPI_Compare_and_swap(&next, &seen, &got, MPI_TYPE, 0, 0, window));                                  \
            MPI_OK(MPI_Win_flush(0, window));                                                                          \
            if (got == seen)                                                                                           \
                left_over--;                                                                                           \
            seen = got == seen ? next : got;                                                                           \
        }                                                                                                              \
        all_done();                                                                                                    \
        if (rank == 0)                                                                                                 \
            check_int("counter in the end", each * size, here[0]);                                                     \
    }

SWAPS_OF(int32, int32_t, MPI_INT32_T)
SWAPS_OF(int64, int64_t, MPI_INT64_T)

// Read, add one, write back: right only while exclusive locks exclude each other. Outside lock_all.
static void exclusive_locks(int each) {
    check_case("%s_window_exclusive_locks_guard_a_counter_read_and_written_back", kind_name);
    for (int target = 0; target < size; target += size > 1 ? size - 1 : 1) {
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
        memset(memory, 0, 64);
        MPI_OK(MPI_Win_unlock(rank, window));
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < each; i++) {
            int64_t count = -1;
            MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
            MPI_OK(MPI_Get(&count, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
            MPI_OK(MPI_Win_flush(target, window));
            count++;
            MPI_OK(MPI_Put(&count, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
            MPI_OK(MPI_Win_unlock(target, window));
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        int64_t end = -1;
        MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
        MPI_OK(MPI_Get(&end, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
        MPI_OK(MPI_Win_unlock(target, window));
        check_int("counter in the end", (long long)each * size, end);
    }
}

// Under fences instead of locks: all ranks add to all windows, several epochs in a row.
static void accumulate_in_fences(int epochs) {
    enum { COUNT = 1000 };
    int32_t mine[COUNT], *here;
    MPI_Win fenced;
    check_case("accumulate_in_fence_epochs");
    MPI_Info info = promises();
    MPI_OK(MPI_Win_allocate(COUNT * 4, 4, info, MPI_COMM_WORLD, &here, &fenced));
    MPI_OK(MPI_Info_free(&info));
    memset(here, 0, COUNT * 4);
    for (int i = 0; i < COUNT; i++)
        mine[i] = rank + i;
    MPI_OK(MPI_Win_fence(0, fenced));
    for (int epoch = 1; epoch <= epochs; epoch++) {
        for (int target = 0; target < size; target++)
            MPI_OK(MPI_Accumulate(mine, COUNT, MPI_INT32_T, target, 0, COUNT, MPI_INT32_T, MPI_SUM, fenced));
        MPI_OK(MPI_Win_fence(0, fenced));
        for (int i = 0; i < COUNT; i += 37)
            check_int("item after the epoch", (size * (size - 1) / 2 + size * i) * epoch, here[i]);
        MPI_OK(MPI_Win_fence(0, fenced)); // nobody adds before everyone has read
    }
    MPI_OK(MPI_Win_free(&fenced));
}

static void everything_in_one_window(bool allocated) {
    int each = scaled(500 / size, 5);
    kind_name = allocated ? "allocated" : "created";
    MPI_Info info = promises();
    if (allocated) {
        MPI_OK(MPI_Win_allocate(WINDOW_BYTES, 1, info, MPI_COMM_WORLD, &memory, &window));
    } else {
        memory = check_alloc(WINDOW_BYTES);
        MPI_OK(MPI_Win_create(memory, WINDOW_BYTES, 1, info, MPI_COMM_WORLD, &window));
    }
    MPI_OK(MPI_Info_free(&info));
    MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Win_lock_all(0, window));
    for (int count = 1; count <= 5000; count = count == 1 ? 10 : count * 500) {
        accumulate_bytes(count);
        accumulate_int16(count);
        accumulate_int32(count);
        accumulate_int64(count);
        accumulate_floats(count);
        accumulate_doubles(count);
    }
    if (!same_op) // it sums up what it replaces
        accumulates_in_order(scaled(200, 10));
    accumulate_with_gaps(500);
    tickets_int32(each);
    tickets_int64(each);
    tickets_doubles(each);
    tickets_in_flight(each);
    get_accumulate(1, each);
    get_accumulate(300, each / 4 + 1);
    swaps_int32(each);
    swaps_int64(each);
    MPI_OK(MPI_Win_unlock_all(window));
    exclusive_locks(each / 2 + 1);
    MPI_OK(MPI_Win_free(&window));
    if (!allocated)
        free(memory);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    rank = check.rank, size = check.size;
    same_op = check_flag(argc, argv, "--same-op");
    check_no_more(argc);
    everything_in_one_window(false);
    everything_in_one_window(true);
    accumulate_in_fences(5);
    return check_finish();
}
