/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A copy of libibex.so beside the one that Open MPI loads as its component: the one that was loaded first works, the
 * other refuses all calls of a tool. Arguments: the copy, and when it is loaded: "before" (MPI_Init), or "after".
 * Linked with neither. Prints one line per wrong result; exits with their number. */
#define _GNU_SOURCE
#include <ibex_mpi_t.h>
#include <peruse.h>
#include "expect.h"
#include <dlfcn.h>
#include <string.h>

static void *load(const char *path)
{
    void *copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (copy == NULL)
        printf("%s\n", dlerror());
    HOLDS(copy != NULL);
    return copy;
}

static void answers(void *library, int is_first)
{
    /* By the MPI_T_ name the call would continue in the component, whose symbols are global. */
    int (*get_num)(int *) = dlsym(library, "PMPI_T_event_get_num"), (*flush)(void) = dlsym(library, "ibex_events_flush");
    int (*init)(void) = dlsym(library, "PERUSE_Init"), count = 0;
    HOLDS(get_num != NULL && flush != NULL && init != NULL);
    if (get_num == NULL || flush == NULL || init == NULL)
        return;
    EXPECT(is_first ? MPI_SUCCESS : MPI_T_ERR_NOT_SUPPORTED, get_num(&count));
    EXPECT(is_first ? MPI_SUCCESS : MPI_T_ERR_NOT_SUPPORTED, flush());
    EXPECT(is_first ? PERUSE_SUCCESS : PERUSE_ERR_GENERIC, init());
    HOLDS((count > 0) == is_first);
}

int main(int argc, char **argv)
{
    int provided, before = argc > 2 && strcmp(argv[2], "before") == 0;
    void *copy = before ? load(argv[1]) : NULL;
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    if (!before)
        copy = load(argv[1]);
    /* The default lookup finds the component's functions, which Open MPI has loaded globally. */
    answers(RTLD_DEFAULT, !before);
    answers(copy, before);
    MPI_T_finalize();
    MPI_Finalize();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
