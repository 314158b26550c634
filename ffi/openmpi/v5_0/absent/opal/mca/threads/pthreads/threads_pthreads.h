/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For an installation of Open MPI 5.0 that lacks this header; see threads_pthreads_mutex.h. Nothing of it is used. */
#ifndef IBEX_ABSENT_THREADS_PTHREADS_H
#define IBEX_ABSENT_THREADS_PTHREADS_H

#include "opal/mca/threads/thread.h"

#endif
