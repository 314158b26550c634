/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the tool interface asks of the MPI it serves, in the MPI's own terms: which of the handles and codes stands for what
 * is the installed mpi.h's to say. Called by host.rs alone. Grade: setup.
 */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "ompi/communicator/communicator.h"
#include "opal/mca/base/mca_base_var_enum.h"

int ibex_tool_mpi_t_is_initialized(void);
int ibex_tool_mpi_is_usable(void);
void *ibex_tool_datatype(int kind);
uint64_t ibex_tool_context(const void *obj_handle, int *is_null);
int ibex_tool_category(int index, char *name, int room);
int ibex_tool_info_get(void *info, const char *key, char *value, int room);
int ibex_tool_info_new(void **info);
int ibex_tool_info_set(void *info, const char *key, const char *value);
void *ibex_tool_info_null(void);
void *ibex_tool_enum_new(const char *name, const char *const *items, int count);
int ibex_tool_code(int code);
int ibex_tool_verbosity(int level);
int ibex_tool_bind(int communicator);

/* The first call of the interface that looks at nothing else. */
int ibex_tool_mpi_t_is_initialized(void)
{
    int count;
    return PMPI_T_cvar_get_num(&count) != MPI_T_ERR_NOT_INITIALIZED;
}

/* Whether info objects may be made and read. */
int ibex_tool_mpi_is_usable(void)
{
    int initialized = 0, finalized = 0;
    PMPI_Initialized(&initialized);
    PMPI_Finalized(&finalized);
    return initialized && !finalized;
}

/* 0: a signed number of 32 bits, 1: an unsigned one, 2: an unsigned one of 64 bits. */
void *ibex_tool_datatype(int kind)
{
    _Static_assert(sizeof(int) == 4 && sizeof(unsigned long) == 8, "the types that docs/events.md names");
    return kind == 0 ? (void *) MPI_INT : kind == 1 ? (void *) MPI_UNSIGNED : (void *) MPI_UNSIGNED_LONG;
}

/* The number that messages in this communicator carry. */
uint64_t ibex_tool_context(const void *obj_handle, int *is_null)
{
    MPI_Comm comm = *(const MPI_Comm *) obj_handle;
    *is_null = comm == NULL || comm == MPI_COMM_NULL;
    return *is_null ? 0 : (uint64_t) ((ompi_communicator_t *) comm)->c_contextid;
}

int ibex_tool_category(int index, char *name, int room)
{
    return PMPI_T_category_get_info(index, name, &room, NULL, NULL, NULL, NULL, NULL);
}

/* Returns whether the key is there and its value fits. */
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

/* An enumeration whose items are these, with their places as values. It lives as long as the process. */
void *ibex_tool_enum_new(const char *name, const char *const *items, int count)
{
    mca_base_var_enum_value_t values[17] = {{0, NULL}};
    mca_base_var_enum_t *made = NULL;
    for (int i = 0; i < count && i < 16; ++i)
        values[i] = (mca_base_var_enum_value_t){i, items[i]};
    return mca_base_var_enum_create(name, values, &made) == OPAL_SUCCESS ? (void *) made : MPI_T_ENUM_NULL;
}

/* The codes, in the order of host.rs. */
int ibex_tool_code(int code)
{
#ifndef MPI_T_ERR_NOT_SUPPORTED
#define MPI_T_ERR_NOT_SUPPORTED 82
#endif
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

/* Levels 1 to 9. */
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
