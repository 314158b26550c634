// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The classical list of one-sided communication, in windows to which memory is attached while the list grows
// (MPI_Win_create_dynamic). Every rank appends: it attaches an element, finds the last one, and puts a pointer to its
// own there, unless another was faster. Then all read the list: every element is there once, and the elements of a rank
// are in the order in which it appended them. Twice: with a shared lock around each access, and within one
// MPI_Win_lock_all, with flushes. Runs with 2 or more ranks.
//
// usage: linked_list [--downwards] [--attached-first]
//   --attached-first  all memory is attached before any rank appends
//   --downwards       each element lies below the one before; without --attached-first stock Open MPI 4.1 then uses a
//                     wrong key now and then (README.md)
#include "check.h"

#include <stddef.h>

// Each rank appends ELEMENTS to each of the lists; Open MPI takes 64 attachments unless osc_rdma_max_attach says more.
enum { PAGE = 4096, NOBODY = -1, ELEMENTS = 24, ROUNDS = 8 };

// The place of an element. The rank that is written here first has appended its element; the address may come later.
struct pointer {
    int64_t rank;
    MPI_Aint address;
};

// In a page of its own, so that it is registered by itself.
struct element {
    struct pointer next;
    int64_t owner, number;
};

enum how { LOCK_EACH, LOCK_ALL, HOWS };
static const char *const how_names[] = {"a_shared_lock_each", "lock_all_and_flush"};

static MPI_Win window;
static enum how how;
static char *arena; // of elements, a page each
static bool downwards, attached_first;

static void begin(int rank) {
    if (how == LOCK_EACH)
        MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
}

static void end(int rank) {
    if (how == LOCK_EACH)
        MPI_OK(MPI_Win_unlock(rank, window));
    else
        MPI_OK(MPI_Win_flush(rank, window));
}

static int64_t fetched(int64_t rank, MPI_Aint at) {
    int64_t nothing = 0, value = 0;
    begin((int)rank);
    MPI_OK(MPI_Fetch_and_op(&nothing, &value, MPI_INT64_T, (int)rank, at, MPI_NO_OP, window));
    end((int)rank);
    return value;
}

static void replaced(int64_t rank, MPI_Aint at, int64_t value) {
    begin((int)rank);
    MPI_OK(MPI_Accumulate(&value, 1, MPI_INT64_T, (int)rank, at, 1, MPI_INT64_T, MPI_REPLACE, window));
    end((int)rank);
}

// Returns the former value; `value` has replaced it if it was `expected`.
static int64_t swapped(int64_t rank, MPI_Aint at, int64_t expected, int64_t value) {
    int64_t before = 0;
    begin((int)rank);
    MPI_OK(MPI_Compare_and_swap(&value, &expected, &before, MPI_INT64_T, (int)rank, at, window));
    end((int)rank);
    return before;
}

static MPI_Aint rank_after(struct pointer element) {
    return element.address + (MPI_Aint)(offsetof(struct element, next) + offsetof(struct pointer, rank));
}

static MPI_Aint address_after(struct pointer element) {
    return element.address + (MPI_Aint)(offsetof(struct element, next) + offsetof(struct pointer, address));
}

static struct element *place(int number) {
    return (struct element *)(void *)(arena + (size_t)PAGE * (size_t)(downwards ? ELEMENTS - number : number));
}

static void attach(int number) {
    struct element *element = place(number);
    *element = (struct element){.next = {NOBODY, 0}, .owner = check.rank, .number = number};
    MPI_OK(MPI_Win_attach(window, element, sizeof *element));
}

static struct pointer make(int number) {
    if (!attached_first)
        attach(number);
    struct element *element = place(number);
    struct pointer pointer = {check.rank, 0};
    MPI_OK(MPI_Get_address(element, &pointer.address));
    return pointer;
}

// The element after this one; its rank is known, its address may not be there yet.
static struct pointer next_of(struct pointer element, int64_t rank) {
    struct pointer next = {rank, 0};
    while (next.address == 0)
        next.address = (MPI_Aint)fetched(element.rank, address_after(element));
    return next;
}

// Appends `element`. `last` is an element of the list, not always the last one.
static void append(struct pointer last, struct pointer element) {
    for (;;) {
        int64_t rank = swapped(last.rank, rank_after(last), NOBODY, element.rank);
        if (rank == NOBODY) {
            replaced(last.rank, address_after(last), (int64_t)element.address);
            return;
        }
        last = next_of(last, rank);
    }
}

static void read_through(struct pointer head) {
    int *seen = check_alloc((size_t)check.size * sizeof *seen), all = 0;
    for (struct pointer element = head;;) {
        struct element copy;
        begin((int)element.rank);
        MPI_OK(MPI_Get(&copy, (int)sizeof copy, MPI_BYTE, (int)element.rank, element.address, (int)sizeof copy, MPI_BYTE, window));
        end((int)element.rank);
        check_int("owner of an element", element.rank, copy.owner);
        if (copy.owner != element.rank || all++ > check.size * ELEMENTS)
            break;
        int first = element.rank == 0 ? 0 : 1;
        check_int("number of a rank's element in the order of the list", first + seen[copy.owner]++, copy.number);
        if (copy.next.rank == NOBODY)
            break;
        element = copy.next;
    }
    for (int r = 0; r < check.size; r++)
        check_int("elements of a rank", ELEMENTS + (r == 0), seen[r]);
    free(seen);
}

static void build_and_read(void) {
    MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    if (how == LOCK_ALL)
        MPI_OK(MPI_Win_lock_all(0, window));
    int first = check.rank == 0 ? 0 : 1;
    for (int i = first; attached_first && i <= ELEMENTS; i++)
        attach(i);
    struct pointer head = {0, 0};
    if (check.rank == 0)
        head = make(0);
    MPI_OK(MPI_Bcast(&head.address, 1, MPI_AINT, 0, MPI_COMM_WORLD));
    struct pointer last = head;
    for (int i = 1; i <= ELEMENTS; i++) {
        struct pointer mine = make(i);
        append(last, mine);
        last = mine;
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    read_through(head);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (how == LOCK_ALL)
        MPI_OK(MPI_Win_unlock_all(window));
    for (int i = ELEMENTS; i >= first; i--)
        MPI_OK(MPI_Win_detach(window, place(i)));
    MPI_OK(MPI_Win_free(&window));
}

int main(int argc, char **argv) {
    downwards = check_flag(argc, argv, "--downwards");
    attached_first = check_flag(argc, argv, "--attached-first");
    check_start(&argc, &argv, 2);
    check_no_more(argc);
    size_t bytes = (size_t)PAGE * (size_t)(ELEMENTS + 1);
    for (int h = 0; h < HOWS; h++) {
        how = (enum how)h;
        check_case("a_list_in_memory_of_all_ranks_by_%s", how_names[h]);
        for (int i = 0; i < scaled(ROUNDS, 1); i++) {
            // New memory for each list, mostly at the address of the last list's.
            arena = check_map(bytes);
            build_and_read();
            munmap(arena, bytes);
        }
    }
    return check_finish();
}
