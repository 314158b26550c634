/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two tools in one process, each a library: one registers while the other frees, and one intercepts the other's
 * allocations. The program intercepts a call as well, by its own function with the MPI_T_ name. */
#include <pthread.h>
#include "expect.h"
#include "two_tools.h"

enum { TURNS = 500 };

static atomic_int counted;

int MPI_T_event_get_num(int *num_events)
{
    ++counted;
    return PMPI_T_event_get_num(num_events);
}

static void *run(void *turn)
{
    for (int i = 0; i < TURNS; ++i)
        EXPECT(0, ((int (*)(void)) turn)());
    return NULL;
}

int main(void)
{
    int provided, types;
    pthread_t other;
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
    MPI_T_event_get_num(&types);
    pthread_create(&other, NULL, run, (void *) two_turn);
    run((void *) one_turn);
    pthread_join(other, NULL);
    /* A registration that was freed while the other tool did the same ends at the latest with the next one. */
    EXPECT(0, two_turn());
    HOLDS(one_ended == TURNS * types && two_ended == (TURNS + 1) * types);
    HOLDS(intercepted == (2 * TURNS + 1) * types);
    /* Once by this program, and once in each turn. */
    HOLDS(counted == 2 * TURNS + 2);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
