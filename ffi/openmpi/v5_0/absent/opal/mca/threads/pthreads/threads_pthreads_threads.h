/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For an Open MPI 5.0 installed without this header; see threads_pthreads_mutex.h. */
#ifndef IBEX_ABSENT_THREADS_PTHREADS_THREADS_H
#define IBEX_ABSENT_THREADS_PTHREADS_THREADS_H

#include <sched.h>
#include <signal.h>

#include "opal/mca/threads/pthreads/threads_pthreads.h"
#include "opal/mca/threads/threads.h"

#define OPAL_THREAD_YIELD_WHEN_IDLE_DEFAULT false

/* No function that ibex calls uses this. */
static inline void opal_thread_yield(void)
{
    (void) sched_yield();
}

#endif
