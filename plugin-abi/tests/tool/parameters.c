/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Control variables: their scopes, and values that a tool writes between MPI_T_init_thread and MPI_Init. With an
 * argument it writes values out of bounds, which MPI_Init refuses. Prints one line per wrong result. */
#include <ibex_mpi_t.h>
#include "expect.h"
#include <string.h>

enum { EVENT_BUFFER, EVENT_BUFFERED, VERBOSE, SERVICE_LEVEL, GID_INDEX, CONNECT_VIA, VARIABLES };

static const struct {
    const char *name;
    int scope;
} variables[VARIABLES] = {
    {"btl_ibex_event_buffer", MPI_T_SCOPE_LOCAL},  {"btl_ibex_event_buffered", MPI_T_SCOPE_LOCAL}, {"btl_ibex_verbose", MPI_T_SCOPE_LOCAL},
    {"btl_ibex_service_level", MPI_T_SCOPE_LOCAL}, {"btl_ibex_gid_index", MPI_T_SCOPE_ALL},        {"btl_ibex_connect_via", MPI_T_SCOPE_ALL},
};

static MPI_T_cvar_handle handles[VARIABLES];

static void find(void)
{
    for (int i = 0; i < VARIABLES; ++i) {
        char name[64], desc[2048];
        int index = -1, scope = -1, verbosity, bind, count, name_len = sizeof name, desc_len = sizeof desc;
        MPI_Datatype datatype;
        MPI_T_enum enumtype;
        EXPECT(MPI_SUCCESS, MPI_T_cvar_get_index(variables[i].name, &index));
        EXPECT(MPI_SUCCESS, MPI_T_cvar_get_info(index, name, &name_len, &verbosity, &datatype, &enumtype, desc, &desc_len, &bind, &scope));
        HOLDS(strcmp(name, variables[i].name) == 0 && bind == MPI_T_BIND_NO_OBJECT && scope == variables[i].scope);
        HOLDS((strstr(desc, "The values of all processes must go together.") != NULL) == (scope == MPI_T_SCOPE_ALL));
        HOLDS((strstr(desc, "A tool may write it while MPI runs.") != NULL) == (i <= VERBOSE));
        EXPECT(MPI_SUCCESS, MPI_T_cvar_handle_alloc(index, NULL, &handles[i], &count));
    }
}

static void write_count(int variable, unsigned long long value)
{
    unsigned long long read = ~0ULL;
    EXPECT(MPI_SUCCESS, MPI_T_cvar_write(handles[variable], &value));
    EXPECT(MPI_SUCCESS, MPI_T_cvar_read(handles[variable], &read));
    HOLDS(read == value);
}

static void write_before_init(void)
{
    char text[2048] = "";
    /* As long as an int, because Open MPI reads so many bytes for a bool. */
    int flag = 1;
    write_count(EVENT_BUFFER, 2000);
    write_count(SERVICE_LEVEL, 3);
    EXPECT(MPI_SUCCESS, MPI_T_cvar_write(handles[EVENT_BUFFERED], &flag));
    EXPECT(MPI_SUCCESS, MPI_T_cvar_write(handles[CONNECT_VIA], "tcp"));
    EXPECT(MPI_SUCCESS, MPI_T_cvar_read(handles[CONNECT_VIA], text));
    HOLDS(strcmp(text, "tcp") == 0);
}

/* The component finds no port, so MPI_Init unloads it: nothing can be written now, and registrations use the values
 * written before. */
static void hold_after_init(void)
{
    MPI_Info info;
    for (int i = 0; i < VARIABLES; ++i)
        EXPECT(MPI_T_ERR_CVAR_SET_NOT_NOW, MPI_T_cvar_write(handles[i], &(unsigned long long){0}));
    EXPECT(MPI_SUCCESS, MPI_T_event_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &info, NULL, NULL, NULL));
    has(info, "ibex_buffered", "true");
    has(info, "ibex_buffer_events", "2048");
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0});
    find();
    if (argc > 1) {
        write_count(SERVICE_LEVEL, 16);
        MPI_Init(&argc, &argv);
    } else {
        write_before_init();
        MPI_Init(&argc, &argv);
        hold_after_init();
    }
    for (int i = 0; i < VARIABLES; ++i)
        EXPECT(MPI_SUCCESS, MPI_T_cvar_handle_free(&handles[i]));
    MPI_Finalize();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
