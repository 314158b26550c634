/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls of the MPI that the tool interface serves, in the MPI's own terms: the installed mpi.h defines the values of
 * handles and codes. Called only by host.rs. Grade: setup. Threads: any. Tests: those of host.rs. */
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ompi/communicator/communicator.h"
#include "ompi/errhandler/errcode.h"
#include "opal/class/opal_pointer_array.h"
#include "opal/mca/base/mca_base_var_enum.h"
#include "release.h"

/* Number of calls of MPI_T_init_thread minus that of MPI_T_finalize. Null in an MPI that hides its symbols. */
extern volatile uint32_t ompi_mpit_init_count __attribute__((weak));

/* Avoids MPI's lock if possible, because a signal handler of a tool may have interrupted its holder. Otherwise calls
 * the function of the interface that does least. */
bool ibex_tool_mpi_t_is_initialized(void)
{
    int count;
    if (&ompi_mpit_init_count != NULL)
        return ompi_mpit_init_count != 0;
    return PMPI_T_cvar_get_num(&count) != MPI_T_ERR_NOT_INITIALIZED;
}

/* Like ibex_tool_mpi_t_is_initialized, but never takes MPI's lock: for deliveries. 1 if the MPI hides the count. */
int ibex_tool_may_call(void)
{
    return &ompi_mpit_init_count == NULL || ompi_mpit_init_count != 0;
}

/* Address of a number that is not 0 if functions of a tool may be called. */
const volatile uint32_t *ibex_tool_init_count(void)
{
    static const uint32_t hidden = 1;
    return &ompi_mpit_init_count != NULL ? &ompi_mpit_init_count : &hidden;
}

bool ibex_tool_mpi_was_initialized(void)
{
    int initialized = 0;
    PMPI_Initialized(&initialized);
    return initialized;
}

/* Whether MPI_Finalize has been called, and has completed all communication of the application. */
bool ibex_tool_mpi_was_finalized(void)
{
    int finalized = 0;
    PMPI_Finalized(&finalized);
    return finalized;
}

bool ibex_tool_mpi_is_usable(void)
{
    return ibex_tool_mpi_was_initialized() && !ibex_tool_mpi_was_finalized();
}

/* Whether this thread may call MPI now, by the thread level: no other thread may be calling it at the same time. */
bool ibex_tool_may_call_mpi(void)
{
    int level = MPI_THREAD_SINGLE, is_main = 1;
    if (!ibex_tool_mpi_is_usable())
        return 1;
    PMPI_Query_thread(&level);
    PMPI_Is_thread_main(&is_main);
    return level == MPI_THREAD_MULTIPLE || (level != MPI_THREAD_SERIALIZED && is_main);
}

/* Returns MPI's datatype for: 0, a signed number of 32 bits; 1, an unsigned one; 2, an unsigned one of 64 bits. */
void *ibex_tool_datatype(int kind)
{
    _Static_assert(sizeof(int) == 4 && sizeof(unsigned long) == 8, "the types that docs/events.md names");
    return kind == 0 ? (void *) MPI_INT : kind == 1 ? (void *) MPI_UNSIGNED : (void *) MPI_UNSIGNED_LONG;
}

/* Context number of a communicator. Only compares the handle with those of MPI, because it may be a freed one. */
uint64_t ibex_tool_context(const void *obj_handle, int *is_valid)
{
    MPI_Comm comm = *(const MPI_Comm *) obj_handle;
    int known = 0;
    if (ibex_tool_mpi_is_usable() && comm != NULL && comm != MPI_COMM_NULL)
        known = opal_pointer_array_get_size(&ompi_mpi_communicators);
    while (known > 0 && opal_pointer_array_get_item(&ompi_mpi_communicators, known - 1) != (void *) comm)
        --known;
    *is_valid = known > 0;
    return *is_valid ? ibex_context_of((const ompi_communicator_t *) comm) : 0;
}

/* Function of registration.rs: the communicator with this number is freed, and its number may be reused. */
static void (*freed)(uint64_t context);

static int deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    (void) key, (void) value, (void) extra;
    freed(ibex_context_of((const ompi_communicator_t *) comm));
    return MPI_SUCCESS;
}

/* Makes MPI call `on_freed` when a valid communicator is freed: by an attribute on it, which duplicates do not inherit.
 * Returns whether that worked. */
bool ibex_tool_notify_when_freed(const void *obj_handle, void (*on_freed)(uint64_t))
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int keyval = MPI_KEYVAL_INVALID;
    MPI_Comm comm = *(const MPI_Comm *) obj_handle;
    int code = MPI_SUCCESS, there = 0;
    void *value;
    if (comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF)
        return 1;
    pthread_mutex_lock(&lock);
    freed = on_freed;
    if (keyval == MPI_KEYVAL_INVALID)
        code = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &keyval, NULL);
    if (code == MPI_SUCCESS)
        code = PMPI_Comm_get_attr(comm, keyval, &value, &there);
    /* Setting the attribute again would delete, and so report, the former one. */
    if (code == MPI_SUCCESS && !there)
        code = PMPI_Comm_set_attr(comm, keyval, NULL);
    pthread_mutex_unlock(&lock);
    return code == MPI_SUCCESS;
}

int ibex_tool_category(int index, char *name, int room)
{
    return PMPI_T_category_get_info(index, name, &room, NULL, NULL, NULL, NULL, NULL);
}

/* Returns whether the key exists and its value fits. */
int ibex_tool_info_get(void *info, const char *key, char *value, int room)
{
    int there = 0, length = 0;
    if (PMPI_Info_get_valuelen((MPI_Info) info, key, &length, &there) != MPI_SUCCESS || !there || length >= room)
        return 0;
    return PMPI_Info_get((MPI_Info) info, key, room - 1, value, &there) == MPI_SUCCESS && there;
}

int ibex_tool_info_new(void **info)
{
    return PMPI_Info_create((MPI_Info *) info);
}

int ibex_tool_info_set(void *info, const char *key, const char *value)
{
    return PMPI_Info_set((MPI_Info) info, key, value);
}

void *ibex_tool_info_null(void)
{
    return MPI_INFO_NULL;
}

/* Makes an enumeration of these items, with their indexes as values. It is never freed. */
void *ibex_tool_enum_new(const char *name, const char *const *items, int count)
{
    mca_base_var_enum_value_t values[17] = {{0, NULL}};
    mca_base_var_enum_t *made = NULL;
    for (int i = 0; i < count && i < 16; ++i)
        values[i] = (mca_base_var_enum_value_t){i, items[i]};
    return mca_base_var_enum_create(name, values, &made) == OPAL_SUCCESS ? (void *) made : MPI_T_ENUM_NULL;
}

/* Values of include/ibex_mpi_t.h. */
#ifndef MPI_T_ERR_NOT_ACCESSIBLE
#define MPI_T_ERR_NOT_ACCESSIBLE 81
#endif
#ifndef MPI_T_ERR_NOT_SUPPORTED
#define MPI_T_ERR_NOT_SUPPORTED 82
#endif

/* Adds the codes of the header to MPI_Error_string and MPI_Error_class, if MPI has left their places among the
 * predefined ones empty. MPI_Finalize frees only the objects after the predefined ones. */
void ibex_tool_explain_codes(void)
{
    static ompi_mpi_errcode_t codes[] = {
        {.code = MPI_T_ERR_NOT_ACCESSIBLE,
         .cls = MPI_T_ERR_NOT_ACCESSIBLE,
         .errstring = "MPI_T_ERR_NOT_ACCESSIBLE: Requested functionality not accessible"},
        {.code = MPI_T_ERR_NOT_SUPPORTED,
         .cls = MPI_T_ERR_NOT_SUPPORTED,
         .errstring = "MPI_T_ERR_NOT_SUPPORTED: Requested functionality not supported"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i)
        if (codes[i].code <= ompi_mpi_errcode_lastpredefined &&
            opal_pointer_array_get_item(&ompi_mpi_errcodes, codes[i].code) == NULL)
            opal_pointer_array_set_item(&ompi_mpi_errcodes, codes[i].code, &codes[i]);
}

/* Codes in the order of host.rs. */
int ibex_tool_code(int code)
{
    static const int codes[] = {
        MPI_SUCCESS,
        MPI_T_ERR_INVALID,
        MPI_T_ERR_NOT_INITIALIZED,
        MPI_T_ERR_INVALID_INDEX,
        MPI_T_ERR_INVALID_NAME,
        MPI_T_ERR_INVALID_HANDLE,
        MPI_T_ERR_NOT_SUPPORTED,
    };
    return code >= 0 && (size_t) code < sizeof codes / sizeof *codes ? codes[code] : MPI_T_ERR_INVALID;
}

int ibex_tool_verbosity(int level)
{
    static const int levels[] = {
        MPI_T_VERBOSITY_USER_BASIC,   MPI_T_VERBOSITY_USER_DETAIL,   MPI_T_VERBOSITY_USER_ALL,
        MPI_T_VERBOSITY_TUNER_BASIC,  MPI_T_VERBOSITY_TUNER_DETAIL,  MPI_T_VERBOSITY_TUNER_ALL,
        MPI_T_VERBOSITY_MPIDEV_BASIC, MPI_T_VERBOSITY_MPIDEV_DETAIL, MPI_T_VERBOSITY_MPIDEV_ALL,
    };
    return levels[level < 1 ? 0 : level > 9 ? 8 : level - 1];
}

int ibex_tool_bind(int communicator)
{
    return communicator ? MPI_T_BIND_MPI_COMM : MPI_T_BIND_NO_OBJECT;
}
