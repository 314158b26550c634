/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where the MPI has the events itself (mock_libmpi.c), every call under both names is the MPI's, with its arguments, whether
 * ibex's or the MPI's is found first. With an argument: also after ibex was loaded from there, as Open MPI loads a component. */
#include <ibex_mpi_t.h>
#include <dlfcn.h>
#include "expect.h"
#include "handed_on.h"

#define I(call, i) ((int) ARGUMENT(call, i))
#define P(call, i) ((void *) ARGUMENT(call, i))

#define EVERY_CALL(NAME)                                                                                                       \
    EXPECT(ANSWER(0), NAME(event_get_num)(P(0, 0)));                                                                           \
    EXPECT(ANSWER(1), NAME(event_get_info)(I(1, 0), P(1, 1), P(1, 2), P(1, 3), P(1, 4), P(1, 5), P(1, 6), P(1, 7), P(1, 8),    \
                                           P(1, 9), P(1, 10), P(1, 11)));                                                      \
    EXPECT(ANSWER(2), NAME(event_get_index)(P(2, 0), P(2, 1)));                                                                \
    EXPECT(ANSWER(3), NAME(event_handle_alloc)(I(3, 0), P(3, 1), P(3, 2), P(3, 3)));                                           \
    EXPECT(ANSWER(4), NAME(event_handle_set_info)(P(4, 0), P(4, 1)));                                                          \
    EXPECT(ANSWER(5), NAME(event_handle_get_info)(P(5, 0), P(5, 1)));                                                          \
    EXPECT(ANSWER(6), NAME(event_register_callback)(P(6, 0), I(6, 1), P(6, 2), P(6, 3), P(6, 4)));                             \
    EXPECT(ANSWER(7), NAME(event_callback_set_info)(P(7, 0), I(7, 1), P(7, 2)));                                               \
    EXPECT(ANSWER(8), NAME(event_callback_get_info)(P(8, 0), I(8, 1), P(8, 2)));                                               \
    EXPECT(ANSWER(9), NAME(event_handle_free)(P(9, 0), P(9, 1), P(9, 2)));                                                     \
    EXPECT(ANSWER(10), NAME(event_set_dropped_handler)(P(10, 0), P(10, 1)));                                                   \
    EXPECT(ANSWER(11), NAME(event_read)(P(11, 0), I(11, 1), P(11, 2)));                                                        \
    EXPECT(ANSWER(12), NAME(event_copy)(P(12, 0), P(12, 1)));                                                                  \
    EXPECT(ANSWER(13), NAME(event_get_timestamp)(P(13, 0), P(13, 1)));                                                         \
    EXPECT(ANSWER(14), NAME(event_get_source)(P(14, 0), P(14, 1)));                                                            \
    EXPECT(ANSWER(15), NAME(source_get_num)(P(15, 0)));                                                                        \
    EXPECT(ANSWER(16), NAME(source_get_info)(I(16, 0), P(16, 1), P(16, 2), P(16, 3), P(16, 4), P(16, 5), P(16, 6), P(16, 7),   \
                                             P(16, 8)));                                                                       \
    EXPECT(ANSWER(17), NAME(source_get_timestamp)(I(17, 0), P(17, 1)));                                                        \
    EXPECT(ANSWER(18), NAME(category_get_num_events)(I(18, 0), P(18, 1)));                                                     \
    EXPECT(ANSWER(19), NAME(category_get_events)(I(19, 0), I(19, 1), P(19, 2)))

#define LINKED(name) MPI_T_##name
#define PROFILED(name) PMPI_T_##name

int main(int argc, char **argv)
{
    EVERY_CALL(LINKED);
    EVERY_CALL(PROFILED);
    /* The sources are the MPI's, of whose clocks ibex knows nothing. */
    int (*to_host)(int, MPI_Count, MPI_Count *, MPI_Count *) = dlsym(RTLD_DEFAULT, "ibex_source_to_host");
    MPI_Count time = 0;
    if (to_host != NULL)
        EXPECT(MPI_T_ERR_NOT_SUPPORTED, to_host(0, 0, &time, NULL));
    if (argc > 1) {
        HOLDS(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) != NULL);
        EVERY_CALL(LINKED);
        EVERY_CALL(PROFILED);
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
