/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A tool and its program in one: registers a callback for every event type of ibex, exchanges messages, and says for each
 * ordered source (a thread, a port, ...) how often a timestamp was less than the one before.
 *     mpicc -I ~/.local/include/ibex examples/ordered.c -L ~/.local/lib -Wl,-rpath,$HOME/.local/lib -libex -o ordered
 */
#include <ibex_mpi_t.h>
#include <stdio.h>

enum { SOURCES = 64, TYPES = 128, ROUNDS = 400, LONGEST = 10 << 20 };

/* Not atomic, because one thread calls MPI. */
static struct { MPI_Count last; long events, steps_back; } sources[SOURCES];

static void on_event(MPI_T_event_instance event, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user)
{
    int source;
    MPI_Count time;
    (void)registration, (void)safety, (void)user;
    if (MPI_T_event_get_source(event, &source) || MPI_T_event_get_timestamp(event, &time) || source >= SOURCES)
        return;
    sources[source].events++;
    sources[source].steps_back += time < sources[source].last;
    sources[source].last = time;
}

int main(int argc, char **argv)
{
    static char out[LONGEST], in[LONGEST];
    static const int lengths[] = {8, 4096, 65536, LONGEST};
    MPI_T_event_registration registrations[TYPES];
    int provided, types, rank, ranks;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_T_event_get_num(&types);
    for (int type = 0; type < types; type++)
        if (types > TYPES || MPI_T_event_handle_alloc(type, NULL, MPI_INFO_NULL, &registrations[type]) ||
            MPI_T_event_register_callback(registrations[type], MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, on_event))
            MPI_Abort(MPI_COMM_WORLD, 1);
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = lengths[round % 4];
        MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % ranks, 0, in, bytes, MPI_BYTE, (rank + ranks - 1) % ranks, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int type = 0; type < types; type++)
        MPI_T_event_handle_free(registrations[type], NULL, NULL);
    for (int source = 0; source < SOURCES; source++) {
        char name[64];
        MPI_T_source_order order;
        MPI_T_source_get_info(source, name, &(int){sizeof name}, NULL, NULL, &order, NULL, NULL, NULL);
        if (sources[source].events && order == MPI_T_SOURCE_ORDERED)
            printf("rank %d: source %-13s %4ld events, %ld steps back\n", rank, name, sources[source].events,
                   sources[source].steps_back);
    }
    MPI_T_finalize();
    return MPI_Finalize();
}
