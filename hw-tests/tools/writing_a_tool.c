// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counts the messages and bytes of an application by peer, as they cross the transport. docs/writing-a-tool.md explains it line by line.
#include <ibex_mpi_t.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS = 16, ELEMENTS = 16, TAG = 42, MESSAGES = 100, LONG = 1 << 20 };

// Counts of messages sent [0] and received [1].
static struct {
    atomic_ulong messages, bytes;
} counts[2][PEERS];

// An event type, and where in its data the elements are that this tool wants.
struct watched {
    const char *name;
    int is_last; // whether it ends a message
    MPI_Aint bytes, tag, direction, peer;
    MPI_T_event_registration registration;
    MPI_Count timestamp;
    int source; // of its latest event; -1: none
};

static struct watched watched[] = {
    {.name = "ibex_xfer_begin"},
    {.name = "ibex_xfer_continue"},
    {.name = "ibex_xfer_end", .is_last = 1},
};
enum { WATCHED = sizeof watched / sizeof *watched };

static void on_event(MPI_T_event_instance event, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    struct watched *type = user;
    unsigned char data[256];
    unsigned long bytes;
    unsigned direction, peer;
    int tag;
    (void)registration, (void)safety;
    MPI_T_event_copy(event, data);
    memcpy(&tag, data + type->tag, sizeof tag);
    if (tag != TAG)
        return;
    memcpy(&bytes, data + type->bytes, sizeof bytes);
    memcpy(&direction, data + type->direction, sizeof direction);
    memcpy(&peer, data + type->peer, sizeof peer);
    atomic_fetch_add(&counts[direction % 2][peer % PEERS].bytes, bytes);
    atomic_fetch_add(&counts[direction % 2][peer % PEERS].messages, type->is_last);
    MPI_T_event_get_timestamp(event, &type->timestamp);
    MPI_T_event_get_source(event, &type->source);
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *user) {
    struct watched *type = user;
    (void)registration, (void)source, (void)safety;
    fprintf(stderr, "%lld events %s were lost\n", (long long)count, type->name);
}

static void fail(const char *what, int code) {
    fprintf(stderr, "%s answers %d\n", what, code);
    exit(1);
}

static void describe(struct watched *type, int index) {
    MPI_Datatype datatypes[ELEMENTS];
    MPI_Aint displacements[ELEMENTS];
    MPI_T_enum names;
    int elements = ELEMENTS;
    int code = MPI_T_event_get_info(index, NULL, NULL, NULL, datatypes, displacements, &elements, &names, NULL, NULL, NULL, NULL);
    if (code != MPI_SUCCESS)
        fail("MPI_T_event_get_info", code);
    for (int i = 0; i < elements; i++) {
        char name[64];
        int value, room = sizeof name;
        MPI_T_enum_get_item(names, i, &value, name, &room);
        if (strcmp(name, "bytes") == 0 && datatypes[i] == MPI_UNSIGNED_LONG)
            type->bytes = displacements[i];
        else if (strcmp(name, "tag") == 0 && datatypes[i] == MPI_INT)
            type->tag = displacements[i];
        else if (strcmp(name, "direction") == 0 && datatypes[i] == MPI_UNSIGNED)
            type->direction = displacements[i];
        else if (strcmp(name, "peer") == 0 && datatypes[i] == MPI_UNSIGNED)
            type->peer = displacements[i];
    }
}

static void watch(struct watched *type, MPI_Comm comm) {
    int index, code = MPI_T_event_get_index(type->name, &index);
    if (code != MPI_SUCCESS)
        fail(type->name, code);
    describe(type, index);
    type->source = -1;
    code = MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &type->registration);
    if (code != MPI_SUCCESS)
        fail("MPI_T_event_handle_alloc", code);
    MPI_T_event_set_dropped_handler(type->registration, on_dropped);
    MPI_T_event_register_callback(type->registration, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, type, on_event);
}

static void tell_when(const struct watched *type) {
    char name[64];
    int room = sizeof name;
    MPI_T_source_order order;
    MPI_Count ticks_per_second, now;
    if (type->source < 0)
        return;
    MPI_T_source_get_info(type->source, name, &room, NULL, NULL, &order, &ticks_per_second, NULL, NULL);
    if (MPI_T_source_get_timestamp(type->source, &now) == MPI_SUCCESS)
        printf("  the last %s was %.6f s ago by the clock %s\n", type->name,
               (double)(now - type->timestamp) / (double)ticks_per_second, name);
}

static void exchange(int rank, int size) {
    static char sent[LONG], got[LONG];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < MESSAGES; i++) {
        int bytes = i % 10 == 0 ? LONG : 8;
        MPI_Sendrecv(sent, bytes, MPI_BYTE, next, TAG, got, bytes, MPI_BYTE, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < WATCHED; i++)
        watch(&watched[i], MPI_COMM_WORLD);

    exchange(rank, size);

    for (int i = 0; i < WATCHED; i++)
        MPI_T_event_handle_free(watched[i].registration, NULL, NULL);
    for (int peer = 0; peer < size && peer < PEERS; peer++)
        printf("rank %d, peer %d: %lu messages of %lu bytes sent, %lu messages of %lu bytes received\n", rank, peer,
               counts[0][peer].messages, counts[0][peer].bytes, counts[1][peer].messages, counts[1][peer].bytes);
    for (int i = 0; i < WATCHED; i++)
        tell_when(&watched[i]);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
