/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The variables of the events, by the calls that every MPI has: counts per source, defaults of registrations. Run with
 * OMPI_MCA_btl_ibex_event_buffered=1 and OMPI_MCA_btl_ibex_event_buffer=1000. Prints one line per wrong result. */
#include <ibex_mpi_t.h>
#include "expect.h"
#include <stdlib.h>
#include <string.h>

/* A handle of a count has a value for every source that exists or may come. */
static void counts(void)
{
    const char *const names[] = {"events_raised", "events_delivered", "events_buffered", "events_dropped", "events_late"};
    MPI_T_pvar_session session;
    int sources;
    MPI_T_source_get_num(&sources);
    MPI_T_pvar_session_create(&session);
    for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
        char name[64];
        int index, values = 0;
        MPI_T_pvar_handle handle;
        snprintf(name, sizeof name, "btl_ibex_%s", names[i]);
        HOLDS(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS);
        HOLDS(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &values) == MPI_SUCCESS);
        HOLDS(values >= sources && values >= 64);
        unsigned long long *value = malloc((values + 1) * sizeof *value);
        memset(value, 0xee, (values + 1) * sizeof *value);
        HOLDS(MPI_T_pvar_read(session, handle, value) == MPI_SUCCESS);
        for (int s = 0; s < values; ++s)
            HOLDS(value[s] == 0);
        HOLDS(value[values] == 0xeeeeeeeeeeeeeeeeULL);
        free(value);
        MPI_T_pvar_handle_free(session, &handle);
    }
    MPI_T_pvar_session_free(&session);
}

/* Counts always run, and each handle can reset its own: the calls that a session may make with a handle, and the codes
 * of all others. */
static void rules(void)
{
    int count, index, values, verbosity, class, bind, readonly, continuous, atomic;
    char name[64], desc[256];
    int name_len = sizeof name, desc_len = sizeof desc;
    unsigned long long value[256], again[256];
    MPI_Datatype datatype;
    MPI_T_enum enumtype;
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle handle, second;
    HOLDS(MPI_T_pvar_get_num(&count) == MPI_SUCCESS);
    HOLDS(MPI_T_pvar_get_index("btl_ibex_events_raised", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS);
    HOLDS(index >= 0 && index < count);
    EXPECT(MPI_SUCCESS, MPI_T_pvar_get_info(index, name, &name_len, &verbosity, &class, &datatype, &enumtype, desc, &desc_len,
                                            &bind, &readonly, &continuous, &atomic));
    HOLDS(strcmp(name, "btl_ibex_events_raised") == 0 && verbosity == MPI_T_VERBOSITY_TUNER_BASIC);
    HOLDS(class == MPI_T_PVAR_CLASS_COUNTER && datatype == MPI_UNSIGNED_LONG_LONG && bind == MPI_T_BIND_NO_OBJECT);
    HOLDS(!readonly && continuous && !atomic && strstr(desc, "one value for each source") != NULL);
    EXPECT(MPI_SUCCESS, MPI_T_pvar_session_create(&session));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_session_create(&other));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &values));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_handle_alloc(other, index, NULL, &second, &values));
    HOLDS(values <= 256);
    EXPECT(MPI_T_ERR_PVAR_NO_STARTSTOP, MPI_T_pvar_start(session, handle));
    EXPECT(MPI_T_ERR_PVAR_NO_STARTSTOP, MPI_T_pvar_stop(session, handle));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_read(session, handle, again));
    for (int i = 0; i < values; ++i)
        value[i] = again[i] + 5;
    EXPECT(MPI_SUCCESS, MPI_T_pvar_write(session, handle, value));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_read(session, handle, again));
    HOLDS(again[0] >= 5 && memcmp(value, again, values * sizeof *value) == 0);
    EXPECT(MPI_SUCCESS, MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_read(session, handle, value));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_read(other, second, again));
    HOLDS(memcmp(value, again, values * sizeof *value) == 0);
    EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_read(other, handle, value));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_handle_free(session, &handle));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_handle_free(other, &second));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_session_free(&session));
    EXPECT(MPI_SUCCESS, MPI_T_pvar_session_free(&other));
}

/* The info object has the user's values; it is freed. */
static void as_set(MPI_Info info)
{
    has(info, "ibex_buffered", "true");
    has(info, "ibex_buffer_events", "1024");
    MPI_Info_free(&info);
}

/* A registration that specifies nothing has the user's values. */
static void defaults(void)
{
    MPI_T_event_registration registration;
    MPI_Info info;
    EXPECT(MPI_SUCCESS, MPI_T_event_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &info, NULL, NULL, NULL));
    as_set(info);
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration));
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_get_info(registration, &info));
    as_set(info);
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(registration, NULL, NULL));
}

int main(int argc, char **argv)
{
    MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0});
    counts();
    rules();
    /* The component finds no port, so MPI_Init unloads it. */
    MPI_Init(&argc, &argv);
    defaults();
    MPI_Finalize();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
