/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For an Open MPI 5.0 installed without this header; see threads_pthreads_mutex.h. ibex uses nothing of it. */
#ifndef IBEX_ABSENT_THREADS_PTHREADS_H
#define IBEX_ABSENT_THREADS_PTHREADS_H

#include "opal/mca/threads/thread.h"

#endif
