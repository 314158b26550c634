/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every call from eight threads at once, with registrations of each thread, and some that any thread frees: each is
 * freed once, its free function is called once, and no number is used twice while its handle exists. */
#include <ibex_mpi_t.h>
#include "callbacks.h"
#include "expect.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 8, TURNS = 2000, SHARED = 4 };

static _Atomic(MPI_T_event_registration) shared[SHARED];
static atomic_long allocated, freed, told;

static void on_free(MPI_T_event_registration, MPI_T_cb_safety, void *user)
{
    HOLDS(user == &told);
    ++told;
}

static MPI_T_event_registration one(int type)
{
    MPI_T_event_registration registration = MPI_T_EVENT_REGISTRATION_NULL;
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(type, NULL, MPI_INFO_NULL, &registration));
    /* If one that may do anything came first, the registration would get the room of a buffered one. */
    for (int safety = MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE; safety >= (int) MPI_T_CB_REQUIRE_NONE; --safety)
        EXPECT(MPI_SUCCESS, MPI_T_event_register_callback(registration, safety, MPI_INFO_NULL, NULL, on_event));
    EXPECT(MPI_SUCCESS, MPI_T_event_set_dropped_handler(registration, on_dropped));
    ++allocated;
    return registration;
}

static void ask(int type, int types)
{
    int number, length = 0, events = 0;
    MPI_Count now;
    EXPECT(MPI_SUCCESS, MPI_T_event_get_num(&number));
    HOLDS(number == types);
    EXPECT(MPI_SUCCESS, MPI_T_event_get_info(type, NULL, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    EXPECT(MPI_SUCCESS, MPI_T_event_get_index("ibex_port_async", &number));
    EXPECT(MPI_SUCCESS, MPI_T_source_get_num(&number));
    EXPECT(MPI_SUCCESS, MPI_T_source_get_info(number - 1, NULL, &length, NULL, NULL, NULL, &now, NULL, NULL));
    EXPECT(MPI_SUCCESS, MPI_T_source_get_timestamp(0, &now));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_category_get_num_events(-1, &events));
}

/* A registration that another thread has freed is reported as invalid; no other error may occur. */
static void is_own_or_gone(int code) { HOLDS(code == MPI_SUCCESS || code == MPI_T_ERR_INVALID_HANDLE); }

static void *run(void *user)
{
    unsigned seed = (unsigned) (size_t) user;
    int types;
    MPI_T_event_get_num(&types);
    for (int turn = 0; turn < TURNS; ++turn) {
        int type = rand_r(&seed) % types;
        MPI_T_event_registration own = one(type), other;
        MPI_Info info = MPI_INFO_NULL;
        ask(type, types);
        /* Puts ours in a place from which any thread takes it; other threads may be using the former one. */
        other = atomic_exchange(&shared[rand_r(&seed) % SHARED], own);
        is_own_or_gone(MPI_T_event_handle_get_info(own, &info));
        is_own_or_gone(MPI_T_event_callback_get_info(own, MPI_T_CB_REQUIRE_NONE, &info));
        is_own_or_gone(MPI_T_event_callback_set_info(own, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL));
        is_own_or_gone(MPI_T_event_register_callback(own, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL));
        is_own_or_gone(MPI_T_event_set_dropped_handler(own, NULL));
        if (rand_r(&seed) % 2 == 0)
            other = atomic_load(&shared[rand_r(&seed) % SHARED]);
        if (other != MPI_T_EVENT_REGISTRATION_NULL && MPI_T_event_handle_free(other, &told, on_free) == MPI_SUCCESS)
            ++freed;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &(int){0});
    for (size_t i = 0; i < THREADS; ++i)
        pthread_create(&threads[i], NULL, run, (void *) (i + 1));
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    HOLDS(allocated == (long) THREADS * TURNS && freed > allocated / 4 && freed < allocated);
    /* A registration that was freed while another thread did the same ends at the latest with the next one. */
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(one(0), &told, on_free));
    HOLDS(told == freed + 1);
    printf("%ld of %ld freed; %d wrong\n", freed, allocated, wrong);
    return wrong != 0;
}
