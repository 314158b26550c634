// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Things other than messages that ranks of a host share: the memory of MPI_Win_allocate_shared, which a neighbour
// writes directly and all increment by atomics, and a shared file pointer, at which all write records, in any order and
// in the order of ranks. Runs with 1 or more ranks of one host.
#include "check.h"

enum { BYTES = 1 << 16, TICKETS = 500, RECORD = 1000, RECORDS = 50 };

// Behind the counter: memory that the left neighbour writes.
enum { COUNTER = sizeof(uint64_t), WINDOW_BYTES = COUNTER + BYTES };

static void share_memory(void) {
    check_case("memory_of_a_shared_window_is_that_of_all_ranks");
    unsigned char *mine, *theirs;
    MPI_Win window;
    MPI_OK(MPI_Win_allocate_shared(WINDOW_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window));
    MPI_Aint bytes;
    int unit;
    MPI_OK(MPI_Win_shared_query(window, right, &bytes, &unit, &theirs));
    check_int("bytes of the neighbour", WINDOW_BYTES, bytes);
    MPI_OK(MPI_Win_lock_all(0, window));
    memset(mine, 0, WINDOW_BYTES);
    MPI_OK(MPI_Win_sync(window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));

    pattern_fill(theirs + COUNTER, BYTES, seed_of(check.rank, 0, 0));
    for (uint64_t i = 0, least = 0; i < TICKETS; i++) {
        uint64_t one = 1, ticket = 0;
        MPI_OK(MPI_Fetch_and_op(&one, &ticket, MPI_UINT64_T, 0, 0, MPI_SUM, window));
        MPI_OK(MPI_Win_flush(0, window));
        check_true("a ticket is later than the one before", ticket >= least);
        least = ticket + 1;
    }
    MPI_OK(MPI_Win_sync(window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_sync(window));
    pattern_check("bytes that the neighbour wrote", mine + COUNTER, BYTES, seed_of(left, 0, 0));
    uint64_t tickets;
    memcpy(&tickets, mine, sizeof tickets);
    check_int("tickets", check.rank == 0 ? (long long)check.size * TICKETS : 0, (long long)tickets);
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
}

// A record begins with its rank and number.
static void fill(unsigned char *record, int number) {
    int head[2] = {check.rank, number};
    memcpy(record, head, sizeof head);
    pattern_fill(record + sizeof head, RECORD - sizeof head, seed_of(check.rank, 0, number));
}

// Reads a record, checks it, and returns its rank; that must have written as many before.
static int read_record(MPI_File file, int at, int *before) {
    unsigned char record[RECORD] = {0};
    MPI_OK(MPI_File_read_at(file, (MPI_Offset)at * RECORD, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    int head[2];
    memcpy(head, record, sizeof head);
    check_true("the rank of a record", head[0] >= 0 && head[0] < check.size);
    if (head[0] < 0 || head[0] >= check.size)
        return -1;
    check_int("the number of a record", before[head[0]]++, head[1]);
    pattern_check("bytes of a record", record + sizeof head, RECORD - sizeof head, seed_of(head[0], 0, head[1]));
    return head[0];
}

static void share_file(void) {
    check_case("the_pointer_of_a_file_is_that_of_all_ranks");
    char name[] = "/tmp/ibex-shared-XXXXXX";
    if (check.rank == 0)
        close(mkstemp(name));
    MPI_OK(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD));
    MPI_File file;
    MPI_OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    unsigned char record[RECORD];
    for (int number = 0; number < RECORDS; number++) {
        fill(record, number);
        MPI_OK(MPI_File_write_shared(file, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    fill(record, RECORDS);
    MPI_OK(MPI_File_write_ordered(file, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_OK(MPI_File_sync(file));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    int *before = check_alloc((size_t)check.size * sizeof *before);
    for (int at = 0; at < check.size * RECORDS; at++)
        read_record(file, at, before);
    for (int rank = 0; rank < check.size; rank++)
        check_int("the rank of a record in order", rank, read_record(file, check.size * RECORDS + rank, before));
    free(before);
    MPI_OK(MPI_File_close(&file));
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    share_memory();
    share_file();
    return check_finish();
}
