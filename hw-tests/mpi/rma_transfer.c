// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One-sided put and get: allocated, created and dynamic windows; fence, lock, lock-all with flushes, and
// post-start-complete-wait; every size around a change of protocol, odd addresses, types with gaps, many operations in
// one epoch, request-based operations. The target checks its memory, guards included. Ranks form a ring. Runs with 2 or
// more ranks. Between ranks of one node Open MPI's osc/rdma reaches an allocated window through shared memory.
#include "check.h"

enum { MAX_BYTES = 1 << 20, GUARD = 64, AREA = MAX_BYTES + 2 * GUARD + 64 };

// In each window: AREA bytes that the left neighbour puts into, then MAX_BYTES of the owner's pattern to be read.
enum { READABLE = AREA, WINDOW_BYTES = AREA + MAX_BYTES + 64 };

enum kind { ALLOCATED, CREATED, DYNAMIC };
enum epoch { FENCE, LOCK, LOCK_ALL, PSCW };
static const char *const kind_names[] = {"allocated", "created", "dynamic"};
static const char *const epoch_names[] = {"fence", "lock", "lock_all_and_flush", "post_start_complete_wait"};

static MPI_Win window;
static unsigned char *memory;   // of this rank's window
static MPI_Aint *bases;         // displacement of each rank's memory in its window
static MPI_Group left_group, right_group;
static unsigned char *origin, *fetched;

static void open_window(enum kind kind) {
    MPI_Aint base = 0;
    if (kind == ALLOCATED) {
        MPI_OK(MPI_Win_allocate(WINDOW_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window));
    } else {
        memory = check_alloc(WINDOW_BYTES);
        if (kind == CREATED) {
            MPI_OK(MPI_Win_create(memory, WINDOW_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
        } else {
            MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
            MPI_OK(MPI_Win_attach(window, memory, WINDOW_BYTES));
            MPI_OK(MPI_Get_address(memory, &base));
        }
    }
    MPI_OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Allgather(&base, 1, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD));
}

static void close_window(enum kind kind) {
    if (kind == DYNAMIC) {
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); // the left neighbour may still read the memory
        MPI_OK(MPI_Win_detach(window, memory));
    }
    MPI_OK(MPI_Win_free(&window));
    if (kind != ALLOCATED)
        free(memory);
}

// Until prepare_memory() returns, this rank may access its own memory, and no other rank does.
static void prepare_memory(enum epoch epoch) {
    if (epoch == LOCK)
        MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check.rank, 0, window));
    if (epoch == LOCK || epoch == LOCK_ALL)
        MPI_OK(MPI_Win_sync(window));
}

static void memory_prepared(enum epoch epoch) {
    if (epoch == LOCK || epoch == LOCK_ALL)
        MPI_OK(MPI_Win_sync(window));
    if (epoch == LOCK)
        MPI_OK(MPI_Win_unlock(check.rank, window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

// Opens the right neighbour's window to this rank, and this rank's to the left one.
static void open_epoch(enum epoch epoch, int round) {
    switch (epoch) {
    case FENCE: MPI_OK(MPI_Win_fence(round % 2 ? MPI_MODE_NOPRECEDE : 0, window)); break;
    case LOCK: MPI_OK(MPI_Win_lock(round % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, right, 0, window)); break;
    case LOCK_ALL: break;
    case PSCW:
        MPI_OK(MPI_Win_post(left_group, 0, window));
        MPI_OK(MPI_Win_start(right_group, 0, window));
    }
}

static void close_epoch(enum epoch epoch, int round) {
    switch (epoch) {
    case FENCE: MPI_OK(MPI_Win_fence(round % 2 ? MPI_MODE_NOSUCCEED : 0, window)); break;
    case LOCK: MPI_OK(MPI_Win_unlock(right, window)); break;
    case LOCK_ALL: MPI_OK(round % 2 ? MPI_Win_flush_all(window) : MPI_Win_flush(right, window)); break;
    case PSCW:
        MPI_OK(MPI_Win_complete(window));
        MPI_OK(MPI_Win_wait(window));
    }
}

static void one_size(enum epoch epoch, int bytes, int round) {
    int offset = GUARD + round % 61; // offset of the put in the area
    prepare_memory(epoch);
    memset(memory + offset - GUARD, 0xa5, (size_t)bytes + 2 * GUARD);
    pattern_fill(memory + READABLE, (size_t)bytes + 8, seed_of(check.rank, 0, round));
    memory_prepared(epoch);

    pattern_fill(origin + round % 7, (size_t)bytes, seed_of(check.rank, 0, 5000 + round));
    unsigned char *to = guarded_ready(fetched, (size_t)bytes, (size_t)(round * 3));
    open_epoch(epoch, round);
    MPI_OK(MPI_Put(origin + round % 7, bytes, MPI_BYTE, right, bases[right] + offset, bytes, MPI_BYTE, window));
    MPI_OK(MPI_Get(to, bytes, MPI_BYTE, right, bases[right] + READABLE, bytes, MPI_BYTE, window));
    close_epoch(epoch, round);
    pattern_check("bytes got", to, (size_t)bytes, seed_of(right, 0, round));
    guarded_check("get", to, (size_t)bytes);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); // the left neighbour's epoch is closed too

    prepare_memory(epoch);
    pattern_check("bytes put here", memory + offset, (size_t)bytes, seed_of(left, 0, 5000 + round));
    guarded_check("put", memory + offset, (size_t)bytes);
    memory_prepared(epoch);
}

static void every_size(enum kind kind, enum epoch epoch) {
    static const int sizes[] = {0,    1,    3,     8,     24,    63,    64,    65,    128,   200,    255,
                                256,  257,  1000,  4095,  4096,  4097,  12232, 12288, 12289, 16384,  32768,
                                40001, 65535, 65536, 65537, 131072, 300001, MAX_BYTES - 8};
    check_case("%s_window_put_and_get_in_%s", kind_names[kind], epoch_names[epoch]);
    open_window(kind);
    if (epoch == LOCK_ALL)
        MPI_OK(MPI_Win_lock_all(0, window));
    if (epoch == FENCE)
        MPI_OK(MPI_Win_fence(0, window));
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        one_size(epoch, sizes[i], i);
    if (epoch == LOCK_ALL)
        MPI_OK(MPI_Win_unlock_all(window));
    close_window(kind);
}

static void clear_area(void) {
    prepare_memory(LOCK_ALL);
    memset(memory, 0xa5, AREA);
    memory_prepared(LOCK_ALL);
}

static void area_written(void) {
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_sync(window));
}

static void many_operations(enum kind kind, int count) {
    enum { PIECE = 48 };
    count = count * check.size * PIECE > MAX_BYTES ? MAX_BYTES / PIECE / check.size : count;
    check_case("%s_window_many_puts_and_gets_before_one_flush", kind_names[kind]);
    clear_area();
    for (int i = 0; i < count; i++)
        for (int target = 0; target < check.size; target++) {
            MPI_Aint at = (MPI_Aint)(i * check.size + check.rank) * PIECE;
            unsigned char *from = origin + (size_t)(i * check.size + target) * PIECE;
            pattern_fill(from, PIECE - 5, seed_of(check.rank, 0, i));
            MPI_OK(MPI_Put(from, PIECE - 5, MPI_BYTE, target, bases[target] + at, PIECE - 5, MPI_BYTE, window));
        }
    MPI_OK(MPI_Win_flush_all(window));
    area_written();
    for (int i = 0; i < count * check.size; i++) {
        const unsigned char *piece = memory + (size_t)i * PIECE;
        pattern_check("piece put here", piece, PIECE - 5, seed_of(i % check.size, 0, i / check.size));
        check_int("byte behind the piece", 0xa5, piece[PIECE - 5]);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    memset(origin, 0, (size_t)(count * check.size) * PIECE);
    for (int i = 0; i < count * check.size; i++)
        MPI_OK(MPI_Get(origin + (size_t)i * PIECE, PIECE - 5, MPI_BYTE, right, bases[right] + (MPI_Aint)i * PIECE,
                       PIECE - 5, MPI_BYTE, window));
    MPI_OK(MPI_Win_flush(right, window));
    for (int i = 0; i < count * check.size; i++)
        pattern_check("piece got", origin + (size_t)i * PIECE, PIECE - 5, seed_of(i % check.size, 0, i / check.size));
}

static void request_based(enum kind kind) {
    enum { COUNT = 24, PIECE = 20011 };
    MPI_Request requests[COUNT];
    check_case("%s_window_rput_and_rget_complete_by_their_requests", kind_names[kind]);
    clear_area();
    for (int i = 0; i < COUNT; i++) {
        pattern_fill(origin + i * PIECE, PIECE - 11, seed_of(check.rank, 0, 100 + i));
        MPI_OK(MPI_Rput(origin + i * PIECE, PIECE - 11, MPI_BYTE, right, bases[right] + i * PIECE, PIECE - 11, MPI_BYTE,
                        window, &requests[i]));
    }
    MPI_OK(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
    memset(origin, 0, COUNT * PIECE); // the origin may be used again; only the flush completes at the target
    MPI_OK(MPI_Win_flush(right, window));
    area_written();
    for (int i = 0; i < COUNT; i++)
        pattern_check("piece put here", memory + i * PIECE, PIECE - 11, seed_of(left, 0, 100 + i));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < COUNT; i++)
        MPI_OK(MPI_Rget(origin + i * PIECE, PIECE - 11, MPI_BYTE, right, bases[right] + i * PIECE, PIECE - 11, MPI_BYTE,
                        window, &requests[i]));
    MPI_OK(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < COUNT; i++) // done once the request is: no flush
        pattern_check("piece got", origin + i * PIECE, PIECE - 11, seed_of(check.rank, 0, 100 + i));
}

// Blocks of 5 every 9 bytes at the origin become blocks of 10 every 32 bytes at the target, and back.
static void scattered_types(enum kind kind, int blocks) {
    MPI_Datatype close = check_vector(2 * blocks, 5, 9, MPI_BYTE), wide = check_vector(blocks, 10, 32, MPI_BYTE);
    int bytes = 10 * blocks;
    check_case("%s_window_types_with_gaps_at_both_ends_%d_blocks", kind_names[kind], blocks);
    clear_area();
    for (int i = 0; i < bytes; i++)
        origin[i / 5 * 9 + i % 5] = pattern_byte(seed_of(check.rank, 0, 7), (size_t)i);
    MPI_OK(MPI_Put(origin, 1, close, right, bases[right], 1, wide, window));
    MPI_OK(MPI_Win_flush(right, window));
    area_written();
    for (int i = 0; i < 32 * blocks; i++) {
        int expected = i % 32 < 10 ? pattern_byte(seed_of(left, 0, 7), (size_t)(i / 32 * 10 + i % 32)) : 0xa5;
        if (memory[i] != expected)
            check_fail("byte %d put here: expected 0x%02x, got 0x%02x", i, (unsigned)expected, memory[i]);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    memset(fetched, 0xa5, (size_t)(18 * blocks));
    MPI_OK(MPI_Get(fetched, 1, close, right, bases[right], 1, wide, window));
    MPI_OK(MPI_Win_flush(right, window));
    for (int i = 0; i < 18 * blocks; i++) {
        int expected = i % 9 < 5 ? pattern_byte(seed_of(check.rank, 0, 7), (size_t)(i / 9 * 5 + i % 9)) : 0xa5;
        if (fetched[i] != expected)
            check_fail("byte %d got: expected 0x%02x, got 0x%02x", i, (unsigned)expected, fetched[i]);
    }
    MPI_OK(MPI_Type_free(&close));
    MPI_OK(MPI_Type_free(&wide));
}

static void windows_made_and_freed(int count) {
    check_case("windows_made_used_and_freed_many_times");
    for (int i = 0; i < count; i++) {
        int word = check.rank * 1000 + i, bytes = 4096 * (i % 5 + 1), *cell, *own = check_alloc((size_t)bytes);
        MPI_Win win;
        if (i % 2)
            MPI_OK(MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &cell, &win));
        else
            MPI_OK(MPI_Win_create(cell = own, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        MPI_OK(MPI_Win_fence(0, win));
        MPI_OK(MPI_Put(&word, 1, MPI_INT, right, i % 1024, 1, MPI_INT, win));
        MPI_OK(MPI_Win_fence(0, win));
        check_int("word put here", left * 1000 + i, cell[i % 1024]);
        MPI_OK(MPI_Win_free(&win));
        free(own);
    }
}

int main(int argc, char **argv) {
    MPI_Group world;
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI_OK(MPI_Group_incl(world, 1, &left, &left_group));
    MPI_OK(MPI_Group_incl(world, 1, &right, &right_group));
    bases = check_alloc((size_t)check.size * sizeof *bases);
    origin = check_alloc(WINDOW_BYTES);
    fetched = check_alloc(guarded_bytes(WINDOW_BYTES));

    for (int kind = ALLOCATED; kind <= DYNAMIC; kind++)
        for (int epoch = FENCE; epoch <= PSCW; epoch++)
            every_size(kind, epoch);
    for (enum kind kind = ALLOCATED; kind <= DYNAMIC; kind++) {
        open_window(kind);
        MPI_OK(MPI_Win_lock_all(0, window));
        many_operations(kind, scaled(1000, 20) / check.size);
        request_based(kind);
        scattered_types(kind, 6);
        scattered_types(kind, scaled(1000, 100));
        MPI_OK(MPI_Win_unlock_all(window));
        close_window(kind);
    }
    windows_made_and_freed(scaled(30, 4));

    MPI_OK(MPI_Group_free(&left_group));
    MPI_OK(MPI_Group_free(&right_group));
    MPI_OK(MPI_Group_free(&world));
    return check_finish();
}
