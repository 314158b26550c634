// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One message longer than 2 GiB (than 31 bits of bytes can count), as a count of a large datatype: every byte is
// checked. Also a sixteenth of it in blocks with gaps. Needs 2 ranks or more, of which the first and the last take
// part, and memory for the message on each of the two: 2 GiB + 16 MiB + 4093 bytes, times IBEX_TEST_SCALE.
#include "check.h"

enum { UNIT = 4093 }; // bytes of the datatype: no power of two, so pieces do not end where an element ends

static int last;

static void contiguous(size_t units) {
    size_t bytes = units * UNIT;
    MPI_Datatype unit = check_block(UNIT, UNIT);
    check_case("one_message_of_%zu_bytes", bytes);
    if (check.rank == 0) {
        unsigned char *from = check_map(bytes);
        pattern_fill(from, bytes, 1);
        MPI_OK(MPI_Send(from, (int)units, unit, last, 1, MPI_COMM_WORLD));
        munmap(from, bytes);
    } else if (check.rank == last) {
        unsigned char *to = check_map(bytes + 64);
        MPI_Status status;
        MPI_Count got = -1;
        int count = -1;
        memset(to + bytes, 0xa5, 64);
        MPI_OK(MPI_Recv(to, (int)units, unit, 0, 1, MPI_COMM_WORLD, &status));
        MPI_OK(MPI_Get_count(&status, unit, &count));
        MPI_OK(MPI_Get_elements_x(&status, MPI_BYTE, &got));
        check_int("units received", (long long)units, count);
        check_int("bytes received", (long long)bytes, got);
        pattern_check("message", to, bytes, 1);
        for (int i = 0; i < 64; i++)
            check_int("byte behind the message", 0xa5, to[bytes + (size_t)i]);
        munmap(to, bytes + 64);
    }
    MPI_OK(MPI_Type_free(&unit));
}

// Blocks of UNIT bytes every UNIT + 3, sent as they lie and received without the gaps.
static void with_gaps(size_t units) {
    size_t bytes = units * UNIT, span = units * (UNIT + 3);
    MPI_Datatype unit = check_block(UNIT, UNIT), spread = check_block(UNIT, UNIT + 3);
    check_case("one_message_of_%zu_bytes_in_blocks_with_gaps", bytes);
    if (check.rank == 0) {
        unsigned char *from = check_map(span);
        for (size_t i = 0; i < units; i++)
            pattern_fill(from + i * (UNIT + 3), UNIT, i);
        MPI_OK(MPI_Send(from, (int)units, spread, last, 2, MPI_COMM_WORLD));
        munmap(from, span);
    } else if (check.rank == last) {
        unsigned char *to = check_map(bytes);
        MPI_OK(MPI_Recv(to, (int)units, unit, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (size_t i = 0; i < units; i++)
            if (pattern_mismatch(to + i * UNIT, UNIT, i) < UNIT) {
                pattern_check("block", to + i * UNIT, UNIT, i);
                check_fail("block that differs: expected none, got %zu of %zu", i, units);
                break;
            }
        munmap(to, bytes);
    }
    MPI_OK(MPI_Type_free(&unit));
    MPI_OK(MPI_Type_free(&spread));
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    last = check.size - 1;
    size_t bytes = (size_t)((double)((2ull << 30) + (16 << 20) + UNIT) * check.scale), units = (bytes + UNIT - 1) / UNIT;
    contiguous(units);
    with_gaps(units / 16 + 1);
    return check_finish();
}
