/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A copy of libibex.so beside the one that Open MPI loads as its component: what a tool began with in one goes on in the same, before
 * MPI_Init and after it. Arguments: the copy, and when it is loaded: "before" (MPI_Init), for itself alone, or "after". Linked with
 * neither. Prints one line per wrong answer; exits with how many. */
#define _GNU_SOURCE
#include <ibex_mpi_t.h>
#include <peruse.h>
#include "expect.h"
#include <dlfcn.h>
#include <string.h>

static void *copy;

/* A function of the copy, whatever else there is of its name. */
static void *of_copy(const char *name)
{
    void *found = dlsym(copy, name);
    HOLDS(found != NULL);
    return found;
}

static void load(const char *path)
{
    copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (copy == NULL)
        printf("%s\n", dlerror());
    HOLDS(copy != NULL);
}

static MPI_T_event_registration registered(void *alloc)
{
    MPI_T_event_registration registration = MPI_T_EVENT_REGISTRATION_NULL;
    int (*handle_alloc)(int, void *, MPI_Info, MPI_T_event_registration *) = alloc;
    EXPECT(MPI_SUCCESS, handle_alloc(0, NULL, MPI_INFO_NULL, &registration));
    return registration;
}

static void frees(void *function, MPI_T_event_registration registration)
{
    int (*handle_free)(MPI_T_event_registration, void *, MPI_T_event_free_cb_function) = function;
    EXPECT(MPI_SUCCESS, handle_free(registration, NULL, NULL));
}

int main(int argc, char **argv)
{
    int provided, before = argc > 2 && strcmp(argv[2], "before") == 0;
    MPI_T_event_registration early = MPI_T_EVENT_REGISTRATION_NULL;
    if (before) {
        load(argv[1]);
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        early = registered(of_copy("MPI_T_event_handle_alloc"));
    }
    MPI_Init(&argc, &argv);
    if (!before) {
        load(argv[1]);
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        early = registered(of_copy("PMPI_T_event_handle_alloc"));
    }
    /* Whichever library is found by the name alone: that of the component. */
    void *alloc = dlsym(RTLD_DEFAULT, "MPI_T_event_handle_alloc"), *end = dlsym(RTLD_DEFAULT, "MPI_T_event_handle_free");
    int (*flush)(void) = of_copy("ibex_events_flush"), (*init)(void) = of_copy("PERUSE_Init");
    HOLDS(alloc != NULL && end != NULL && alloc != of_copy("MPI_T_event_handle_alloc"));
    if (alloc != NULL && end != NULL) {
        /* What one has made the other knows. */
        frees(end, early);
        frees(of_copy("MPI_T_event_handle_free"), registered(alloc));
        frees(of_copy("PMPI_T_event_handle_free"), registered(of_copy("MPI_T_event_handle_alloc")));
    }
    EXPECT(MPI_SUCCESS, flush());
    EXPECT(before ? PERUSE_SUCCESS : PERUSE_ERR_GENERIC, init());
    MPI_T_finalize();
    MPI_Finalize();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
