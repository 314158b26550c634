// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Messages whose data has gaps, small and large: from a layout to the same layout, to packed bytes and back, and
// between two layouts with one signature. Each MPI datatype has a plain list of byte ranges beside it, to check without
// MPI that every byte of the type is right and every gap is untouched. Ranks form a ring. Runs with 1 or more ranks.
#include "check.h"

#include <stddef.h>

enum { MAX_RANGES = 4096, ROOM = 6 << 20, UNTOUCHED = 0xa5 };

struct layout {
    const char *name;
    MPI_Datatype type;
    size_t extent, bytes; // of one element: span to the next, and data in it
    int ranges;
    struct range {
        size_t offset, length;
    } range[MAX_RANGES];
};

static unsigned char *source, *target, *packed, *packed_in;

static struct layout *new_layout(const char *name) {
    struct layout *layout = calloc(1, sizeof *layout);
    layout->name = name;
    return layout;
}

static void add_range(struct layout *layout, size_t offset, size_t length) {
    layout->range[layout->ranges++] = (struct range){offset, length};
    layout->bytes += length;
}

// Commits the type, and compares MPI's size and extent with the list of ranges.
static struct layout *finished(struct layout *layout, size_t extent) {
    MPI_Aint lower, span;
    int bytes;
    layout->extent = extent;
    MPI_OK(MPI_Type_commit(&layout->type));
    MPI_OK(MPI_Type_get_extent(layout->type, &lower, &span));
    MPI_OK(MPI_Type_size(layout->type, &bytes));
    check_int("lower bound of the type", 0, lower);
    check_int("extent of the type", (long long)extent, span);
    check_int("size of the type", (long long)layout->bytes, bytes);
    return layout;
}

static struct layout *vector_of_ints(void) {
    struct layout *layout = new_layout("vector");
    MPI_OK(MPI_Type_vector(8, 3, 5, MPI_INT, &layout->type));
    for (size_t i = 0; i < 8; i++)
        add_range(layout, i * 20, 12);
    return finished(layout, 7 * 20 + 12);
}

static struct layout *indexed_ints(void) { // 24 ints, as the vector
    static const int lengths[] = {1, 7, 2, 10, 4}, offsets[] = {0, 2, 11, 15, 40};
    struct layout *layout = new_layout("indexed");
    MPI_OK(MPI_Type_indexed(5, lengths, offsets, MPI_INT, &layout->type));
    for (int i = 0; i < 5; i++)
        add_range(layout, (size_t)offsets[i] * 4, (size_t)lengths[i] * 4);
    return finished(layout, 44 * 4);
}

static struct layout *bytes_with_odd_stride(void) {
    struct layout *layout = new_layout("hvector_of_odd_stride");
    MPI_OK(MPI_Type_create_hvector(37, 5, 11, MPI_BYTE, &layout->type));
    for (size_t i = 0; i < 37; i++)
        add_range(layout, i * 11, 5);
    return finished(layout, 36 * 11 + 5);
}

static struct layout *record(void) {
    struct fields {
        char letter;
        double number;
        int three[3];
        short half;
    };
    static const int lengths[] = {1, 1, 3, 1};
    static const MPI_Aint offsets[] = {offsetof(struct fields, letter), offsetof(struct fields, number),
                                       offsetof(struct fields, three), offsetof(struct fields, half)};
    static const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_SHORT};
    struct layout *layout = new_layout("struct");
    MPI_Datatype unsized;
    MPI_OK(MPI_Type_create_struct(4, lengths, offsets, types, &unsized));
    MPI_OK(MPI_Type_create_resized(unsized, 0, sizeof(struct fields), &layout->type));
    MPI_OK(MPI_Type_free(&unsized));
    add_range(layout, offsetof(struct fields, letter), 1);
    add_range(layout, offsetof(struct fields, number), 8);
    add_range(layout, offsetof(struct fields, three), 12);
    add_range(layout, offsetof(struct fields, half), 2);
    return finished(layout, sizeof(struct fields));
}

static struct layout *column_of_doubles(void) {
    struct layout *layout = new_layout("resized_column");
    MPI_OK(MPI_Type_create_resized(MPI_DOUBLE, 0, 72, &layout->type));
    add_range(layout, 0, 8);
    return finished(layout, 72);
}

static struct layout *many_short_blocks(void) { // one element that crosses every fragment boundary within a block
    struct layout *layout = new_layout("hindexed_of_many_blocks");
    static int lengths[MAX_RANGES];
    static MPI_Aint offsets[MAX_RANGES];
    size_t at = 0;
    for (int i = 0; i < MAX_RANGES; i++) {
        lengths[i] = 1 + i * 7 % 61;
        offsets[i] = (MPI_Aint)at;
        add_range(layout, at, (size_t)lengths[i]);
        at += (size_t)lengths[i] + 1 + (size_t)(i % 9);
    }
    MPI_OK(MPI_Type_create_hindexed(MAX_RANGES, lengths, offsets, MPI_BYTE, &layout->type));
    return finished(layout, (size_t)offsets[MAX_RANGES - 1] + (size_t)lengths[MAX_RANGES - 1]);
}

static void fill_layout(const struct layout *layout, int count, unsigned char *at, uint64_t seed) {
    size_t index = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < layout->ranges; k++)
            for (size_t b = 0; b < layout->range[k].length; b++)
                at[(size_t)i * layout->extent + layout->range[k].offset + b] = pattern_byte(seed, index++);
}

static void check_layout(const struct layout *layout, int count, const unsigned char *at, uint64_t seed) {
    size_t index = 0, offset = 0, end;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < layout->ranges; k++) {
            size_t first = (size_t)i * layout->extent + layout->range[k].offset;
            for (; offset < first; offset++)
                if (at[offset] != UNTOUCHED)
                    return check_fail("gap at byte %zu of %d elements: expected 0x%02x, got 0x%02x", offset, count,
                                      UNTOUCHED, at[offset]);
            for (size_t b = 0; b < layout->range[k].length; b++, offset++, index++)
                if (at[offset] != pattern_byte(seed, index))
                    return check_fail("byte %zu of the data, %d elements: expected 0x%02x, got 0x%02x", index, count,
                                      pattern_byte(seed, index), at[offset]);
        }
    for (end = (size_t)count * layout->extent + CHECK_GUARD_BYTES; offset < end; offset++)
        if (at[offset] != UNTOUCHED)
            return check_fail("byte %zu behind %d elements: expected 0x%02x, got 0x%02x", offset, count, UNTOUCHED,
                              at[offset]);
}

static void transfer(const void *from, int sends, MPI_Datatype sent, void *to, int takes, MPI_Datatype taken,
                     bool late) {
    MPI_Request requests[2];
    if (!late)
        MPI_OK(MPI_Irecv(to, takes, taken, left, 1, MPI_COMM_WORLD, &requests[0]));
    MPI_OK(MPI_Isend(from, sends, sent, right, 1, MPI_COMM_WORLD, &requests[1]));
    if (late) { // the token follows the message, so that has arrived before its receive
        check_token(right, left, 2);
        MPI_OK(MPI_Irecv(to, takes, taken, left, 1, MPI_COMM_WORLD, &requests[0]));
    }
    MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
}

static void one_count(const struct layout *layout, int count, bool late) {
    size_t span = (size_t)count * layout->extent + CHECK_GUARD_BYTES, bytes = (size_t)count * layout->bytes;
    uint64_t mine = ((uint64_t)check.rank << 32) + bytes, theirs = ((uint64_t)left << 32) + bytes;
    fill_layout(layout, count, source, mine);

    memset(target, UNTOUCHED, span); // layout to layout
    transfer(source, count, layout->type, target, count, layout->type, late);
    check_layout(layout, count, target, theirs);

    memset(packed_in, UNTOUCHED, bytes + CHECK_GUARD_BYTES); // layout to packed bytes
    transfer(source, count, layout->type, packed_in, (int)bytes, MPI_PACKED, late);
    pattern_check("packed bytes received", packed_in, bytes, theirs);
    check_int("byte behind the packed ones", UNTOUCHED, packed_in[bytes]);

    pattern_fill(packed, bytes, mine); // packed bytes to layout
    memset(target, UNTOUCHED, span);
    transfer(packed, (int)bytes, MPI_PACKED, target, count, layout->type, late);
    check_layout(layout, count, target, theirs);
}

// Each layout at sizes on both sides of the eager limit and of the fragment size.
static void every_layout(struct layout *const *layouts, int number) {
    static const size_t wanted[] = {1, 200, 5000, 13000, 40000, 70000, 600000};
    for (int l = 0; l < number; l++) {
        check_case("%s_small_and_large", layouts[l]->name);
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            size_t count = 1 + (wanted[i] - 1) / layouts[l]->bytes;
            if (i && count == 1 + (wanted[i - 1] - 1) / layouts[l]->bytes)
                continue; // an element is larger than both
            if (count * layouts[l]->extent + 2 * CHECK_GUARD_BYTES < ROOM)
                one_count(layouts[l], (int)count, i % 2);
        }
    }
}

// 24 ints lie one way at the sender and another way at the receiver.
static void one_layout_to_another(const struct layout *sent, const struct layout *taken) {
    check_case("%s_received_as_%s", sent->name, taken->name);
    for (int count = 1; count <= 5000; count *= 17) {
        uint64_t mine = ((uint64_t)check.rank << 32) + (unsigned)count;
        uint64_t theirs = ((uint64_t)left << 32) + (unsigned)count;
        fill_layout(sent, count, source, mine);
        memset(target, UNTOUCHED, (size_t)count * taken->extent + CHECK_GUARD_BYTES);
        transfer(source, count, sent->type, target, count, taken->type, count % 2);
        check_layout(taken, count, target, theirs);
    }
}

// Addresses instead of offsets: parts of three separate allocations, received from MPI_BOTTOM.
static void separate_allocations(void) {
    enum { PARTS = 3 };
    static const int lengths[PARTS] = {1000, 20000, 77};
    MPI_Aint from[PARTS], to[PARTS];
    unsigned char *sources[PARTS], *targets[PARTS];
    MPI_Datatype sent, taken;
    check_case("three_allocations_in_one_message_from_mpi_bottom");
    for (int i = 0; i < PARTS; i++) {
        sources[i] = check_alloc((size_t)lengths[i]);
        targets[i] = check_alloc(guarded_bytes((size_t)lengths[i]));
        pattern_fill(sources[i], (size_t)lengths[i], (uint64_t)(check.rank * PARTS + i));
        MPI_OK(MPI_Get_address(sources[i], &from[i]));
        MPI_OK(MPI_Get_address(guarded_ready(targets[i], (size_t)lengths[i], 3), &to[i]));
    }
    MPI_OK(MPI_Type_create_hindexed(PARTS, lengths, from, MPI_BYTE, &sent));
    MPI_OK(MPI_Type_create_hindexed(PARTS, lengths, to, MPI_BYTE, &taken));
    MPI_OK(MPI_Type_commit(&sent));
    MPI_OK(MPI_Type_commit(&taken));
    transfer(MPI_BOTTOM, 1, sent, MPI_BOTTOM, 1, taken, false);
    for (int i = 0; i < PARTS; i++) {
        unsigned char *at = targets[i] + CHECK_GUARD_BYTES + 3;
        pattern_check("part", at, (size_t)lengths[i], (uint64_t)(left * PARTS + i));
        guarded_check("part", at, (size_t)lengths[i]);
        free(sources[i]);
        free(targets[i]);
    }
    MPI_OK(MPI_Type_free(&sent));
    MPI_OK(MPI_Type_free(&taken));
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    source = check_alloc(ROOM);
    target = check_alloc(ROOM);
    packed = check_alloc(ROOM);
    packed_in = check_alloc(ROOM);

    check_case("extents_and_sizes_of_the_types");
    struct layout *layouts[] = {vector_of_ints(), indexed_ints(),      bytes_with_odd_stride(),
                                record(),         column_of_doubles(), many_short_blocks()};
    int number = sizeof layouts / sizeof *layouts;
    do {
        every_layout(layouts, number);
        one_layout_to_another(layouts[0], layouts[1]);
        one_layout_to_another(layouts[1], layouts[0]);
        separate_allocations();
    } while (check_again());

    for (int i = 0; i < number; i++) {
        MPI_OK(MPI_Type_free(&layouts[i]->type));
        free(layouts[i]);
    }
    return check_finish();
}
