/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For an Open MPI 5.0 installed without this header (Debian 13): the parts that opal/mca/threads/mutex.h uses. These
 * are types of members that ibex reads, and functions that inline functions call. The folder is searched last, so an
 * installed header takes precedence. version.rs compares the size of opal_mutex_t when ibex is loaded. */
#ifndef IBEX_ABSENT_THREADS_PTHREADS_MUTEX_H
#define IBEX_ABSENT_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "opal/class/opal_object.h"
#include "opal/constants.h"

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t *mutex, bool recursive)
{
    pthread_mutexattr_t kind;
    if (pthread_mutexattr_init(&kind) != 0)
        return OPAL_ERR_IN_ERRNO;
    int failed = recursive ? pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE) : 0;
    failed = failed != 0 ? failed : pthread_mutex_init(mutex, &kind);
    pthread_mutexattr_destroy(&kind);
    return failed == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}

static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_lock(mutex);
}

/* Returns 0 if it has taken the mutex. */
static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *mutex)
{
    return pthread_mutex_trylock(mutex) != 0;
}

static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_unlock(mutex);
}

static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_destroy(mutex);
}

static inline int opal_thread_internal_cond_init(opal_thread_internal_cond_t *condition)
{
    return pthread_cond_init(condition, NULL) == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}

static inline void opal_thread_internal_cond_wait(opal_thread_internal_cond_t *condition, opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_cond_wait(condition, mutex);
}

static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_signal(condition);
}

static inline void opal_thread_internal_cond_broadcast(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_broadcast(condition);
}

static inline void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_destroy(condition);
}

#endif
