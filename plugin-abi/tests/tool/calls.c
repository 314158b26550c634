/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every call of the events of MPI_T with every code that it can return: before and after MPI_T_init_thread, before
 * MPI_Init, between it and MPI_Finalize, and after that. Prints one line per wrong result; exits with their number. */
#include <ibex_mpi_t.h>
#include "callbacks.h"
#include "expect.h"
#include <stdlib.h>
#include <string.h>

/* Every call fails in this way while the interface is not initialised, whatever other errors it has. */
static void not_initialized(void)
{
    int number = -7;
    MPI_Count count = -7;
    MPI_Info info = MPI_INFO_NULL;
    MPI_T_event_registration registration = MPI_T_EVENT_REGISTRATION_NULL;
    const int code = MPI_T_ERR_NOT_INITIALIZED;
    EXPECT(code, MPI_T_event_get_num(&number));
    EXPECT(code, MPI_T_event_get_info(0, NULL, NULL, &number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    EXPECT(code, MPI_T_event_get_index("ibex_xfer_begin", &number));
    EXPECT(code, MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration));
    EXPECT(code, MPI_T_event_handle_set_info(registration, MPI_INFO_NULL));
    EXPECT(code, MPI_T_event_handle_get_info(registration, &info));
    EXPECT(code, MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, on_event));
    EXPECT(code, MPI_T_event_callback_set_info(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL));
    EXPECT(code, MPI_T_event_callback_get_info(registration, MPI_T_CB_REQUIRE_NONE, &info));
    EXPECT(code, MPI_T_event_handle_free(registration, NULL, NULL));
    EXPECT(code, MPI_T_event_set_dropped_handler(registration, on_dropped));
    EXPECT(code, MPI_T_event_read(NULL, 0, &number));
    EXPECT(code, MPI_T_event_copy(NULL, &number));
    EXPECT(code, MPI_T_event_get_timestamp(NULL, &count));
    EXPECT(code, MPI_T_event_get_source(NULL, &number));
    EXPECT(code, MPI_T_source_get_num(&number));
    EXPECT(code, MPI_T_source_get_info(0, NULL, NULL, NULL, NULL, NULL, &count, NULL, NULL));
    EXPECT(code, MPI_T_source_get_timestamp(0, &count));
    EXPECT(code, ibex_source_to_host(0, 1, &count, &count));
    EXPECT(code, ibex_events_flush());
    EXPECT(code, MPI_T_category_get_num_events(0, &number));
    EXPECT(code, MPI_T_category_get_events(0, 1, &number));
    HOLDS(number == -7 && count == -7 && registration == MPI_T_EVENT_REGISTRATION_NULL && info == MPI_INFO_NULL);
    EXPECT(code, MPI_T_event_get_num(NULL));
    EXPECT(code, MPI_T_event_get_index(NULL, NULL));
    EXPECT(code, MPI_T_event_handle_alloc(-1, NULL, MPI_INFO_NULL, NULL));
    EXPECT(code, MPI_T_event_register_callback(NULL, 9, MPI_INFO_NULL, NULL, NULL));
    EXPECT(code, MPI_T_source_get_timestamp(-1, NULL));
    EXPECT(code, MPI_T_category_get_events(-1, -1, NULL));
}

/* Checks the number of keys of an info object, which exists while MPI can make one. Frees it, as it is the caller's. */
static void is_fresh(MPI_Info info, int mpi_is_usable, int wanted)
{
    int keys = -1;
    HOLDS(mpi_is_usable == (info != MPI_INFO_NULL));
    if (info == MPI_INFO_NULL)
        return;
    MPI_Info_get_nkeys(info, &keys);
    HOLDS(keys == wanted);
    MPI_Info_free(&info);
}

static void types(int mpi_is_usable)
{
    int count = 0, index = -1;
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_get_num(NULL));
    EXPECT(MPI_SUCCESS, MPI_T_event_get_num(&count));
    HOLDS(count > 10);
    for (int i = 0; i < count; ++i) {
        char name[64] = "", desc[256] = "";
        int name_len = sizeof name, desc_len = sizeof desc, verbosity = -1, bind = -1, elements = 16;
        MPI_Datatype datatypes[16];
        MPI_Aint displacements[16];
        MPI_T_enum enumtype;
        MPI_Info info = (MPI_Info) 1;
        EXPECT(MPI_SUCCESS, MPI_T_event_get_info(i, name, &name_len, &verbosity, datatypes, displacements, &elements, &enumtype,
                                                 &info, desc, &desc_len, &bind));
        HOLDS(strncmp(name, "ibex_", 5) == 0 && name_len == (int) strlen(name) + 1 && desc_len > 1);
        HOLDS(verbosity >= MPI_T_VERBOSITY_USER_BASIC && verbosity <= MPI_T_VERBOSITY_MPIDEV_ALL);
        HOLDS(elements > 0 && elements <= 16);
        if (mpi_is_usable) {
            has(info, "ibex_buffered", "false");
            has(info, "ibex_buffer_events", "64");
        }
        is_fresh(info, mpi_is_usable, 2);
        /* The items of the enumeration are the names of the elements. */
        int items = -1;
        EXPECT(MPI_SUCCESS, MPI_T_enum_get_info(enumtype, &items, NULL, NULL));
        HOLDS(items == elements);
        for (int e = 0; e < items; ++e) {
            char item[64] = "";
            int item_len = sizeof item, value = -1;
            EXPECT(MPI_SUCCESS, MPI_T_enum_get_item(enumtype, e, &value, item, &item_len));
            HOLDS(value == e && item[0] >= 'a' && item[0] <= 'z');
        }
        HOLDS(bind == MPI_T_BIND_NO_OBJECT || bind == MPI_T_BIND_MPI_COMM);
        MPI_Aint end = 0;
        for (int e = 0; e < elements; ++e) {
            int size = datatypes[e] == MPI_UNSIGNED_LONG ? 8 : 4;
            HOLDS(datatypes[e] == MPI_UNSIGNED_LONG || datatypes[e] == MPI_UNSIGNED || datatypes[e] == MPI_INT);
            HOLDS(displacements[e] >= end && displacements[e] % size == 0);
            end = displacements[e] + size;
        }
        EXPECT(MPI_SUCCESS, MPI_T_event_get_index(name, &index));
        HOLDS(index == i);
        /* Room for fewer elements than there are, and for none. */
        int one = 1;
        MPI_Aint two[2] = {-1, -1};
        EXPECT(MPI_SUCCESS, MPI_T_event_get_info(i, NULL, NULL, NULL, NULL, two, &one, NULL, NULL, NULL, NULL, NULL));
        HOLDS(one == elements && two[0] == 0 && two[1] == -1);
        EXPECT(MPI_SUCCESS, MPI_T_event_get_info(i, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
        char cut[5];
        int room = sizeof cut;
        EXPECT(MPI_SUCCESS, MPI_T_event_get_info(i, cut, &room, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
        HOLDS(strcmp(cut, "ibex") == 0 && room == name_len);
    }
    /* Without the length or the number, the buffer is not written; without a buffer, only the length is. */
    char name[2] = "#";
    MPI_Datatype datatype = MPI_DATATYPE_NULL;
    int uninitialised = -7;
    EXPECT(MPI_SUCCESS, MPI_T_event_get_info(0, name, NULL, NULL, &datatype, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    HOLDS(name[0] == '#' && datatype == MPI_DATATYPE_NULL);
    EXPECT(MPI_SUCCESS,
           MPI_T_event_get_info(0, NULL, &uninitialised, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    HOLDS(uninitialised == (int) sizeof "ibex_xfer_begin");
    uninitialised = -7;
    EXPECT(MPI_SUCCESS,
           MPI_T_event_get_info(0, NULL, NULL, NULL, NULL, NULL, &uninitialised, NULL, NULL, NULL, NULL, NULL));
    HOLDS(uninitialised > 0);
    /* An erroneous call changes no argument. */
    int minus = -1, verbosity = -7;
    MPI_Info info = MPI_INFO_NULL;
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_get_info(0, name, &minus, &verbosity, NULL, NULL, NULL, NULL, &info, NULL, NULL, NULL));
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_get_info(0, NULL, NULL, &verbosity, NULL, NULL, NULL, NULL, &info, name, &minus, NULL));
    EXPECT(MPI_T_ERR_INVALID,
           MPI_T_event_get_info(0, NULL, NULL, &verbosity, &datatype, NULL, &minus, NULL, &info, NULL, NULL, NULL));
    EXPECT(MPI_T_ERR_INVALID_INDEX,
           MPI_T_event_get_info(count, NULL, &minus, &verbosity, NULL, NULL, &minus, NULL, &info, NULL, NULL, NULL));
    HOLDS(minus == -1 && verbosity == -7 && name[0] == '#' && info == MPI_INFO_NULL && datatype == MPI_DATATYPE_NULL);
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_event_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_event_get_info(count, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    index = -7;
    EXPECT(MPI_T_ERR_INVALID_NAME, MPI_T_event_get_index("xfer_begin", &index));
    EXPECT(MPI_T_ERR_INVALID_NAME, MPI_T_event_get_index("ibex_", &index));
    EXPECT(MPI_T_ERR_INVALID_NAME, MPI_T_event_get_index("btl_ibex_xfer_begin", &index));
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_get_index(NULL, &index));
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_get_index("ibex_xfer_begin", NULL));
    HOLDS(index == -7);
}

/* A type that is bound to a communicator refuses one that is invalid now; any other type ignores it. */
static void bad_communicators(int index, int mpi_is_usable)
{
    MPI_T_event_registration none = MPI_T_EVENT_REGISTRATION_NULL, unbound;
    MPI_Comm comm = MPI_COMM_NULL, freed;
    int of_none;
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &none));
    comm = NULL;
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &none));
    comm = (MPI_Comm) &comm;
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &none));
    EXPECT(MPI_SUCCESS, MPI_T_event_get_index("ibex_put_started", &of_none));
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(of_none, &comm, MPI_INFO_NULL, &unbound));
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(unbound, NULL, NULL));
    comm = MPI_COMM_WORLD;
    if (!mpi_is_usable) {
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &none));
    } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        freed = comm;
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &unbound));
        MPI_Comm_free(&comm);
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_alloc(index, &freed, MPI_INFO_NULL, &none));
        /* The registration of a freed communicator is still valid. */
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_set_info(unbound, MPI_INFO_NULL));
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(unbound, NULL, NULL));
        comm = MPI_COMM_SELF;
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(index, &comm, MPI_INFO_NULL, &unbound));
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(unbound, NULL, NULL));
    }
    HOLDS(none == MPI_T_EVENT_REGISTRATION_NULL);
}

static void registrations(int mpi_is_usable)
{
    int count, index, freed = 0;
    MPI_Info info = MPI_INFO_NULL, used = (MPI_Info) 1;
    MPI_T_event_registration one = MPI_T_EVENT_REGISTRATION_NULL, two;
    EXPECT(MPI_SUCCESS, MPI_T_event_get_num(&count));
    EXPECT(MPI_SUCCESS, MPI_T_event_get_index("ibex_xfer_begin", &index));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_event_handle_alloc(-1, NULL, MPI_INFO_NULL, &one));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_event_handle_alloc(count, NULL, MPI_INFO_NULL, &one));
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, NULL));
    bad_communicators(index, mpi_is_usable);

    if (mpi_is_usable) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "ibex_buffered", "true");
        MPI_Info_set(info, "ibex_buffer_events", "100");
        MPI_Info_set(info, "another", "key");
    }
    MPI_Comm world = MPI_COMM_WORLD;
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(index, mpi_is_usable ? &world : NULL, info, &one));
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &two));
    HOLDS(one != MPI_T_EVENT_REGISTRATION_NULL && one != two);
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_get_info(one, &used));
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_handle_get_info(one, NULL));
    if (mpi_is_usable) {
        has(used, "ibex_buffered", "true");
        has(used, "ibex_buffer_events", "128");
        /* One key that can be changed, one that cannot, one that is unreadable, and one that ibex does not know. */
        MPI_Info_set(info, "ibex_buffered", "false");
        MPI_Info_set(info, "ibex_buffer_events", "1000");
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_set_info(one, info));
        is_fresh(used, 1, 2);
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_get_info(one, &used));
        has(used, "ibex_buffered", "false");
        has(used, "ibex_buffer_events", "128");
        MPI_Info_set(info, "ibex_buffered", "perhaps");
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_set_info(one, info));
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_set_info(one, MPI_INFO_NULL));
        is_fresh(used, 1, 2);
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_get_info(one, &used));
        has(used, "ibex_buffered", "false");
        MPI_Info_free(&info);
    }
    is_fresh(used, mpi_is_usable, 2);

    for (int safety = MPI_T_CB_REQUIRE_NONE; safety <= MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE; ++safety) {
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_set_info(one, safety, MPI_INFO_NULL));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_get_info(one, safety, &used));
        EXPECT(MPI_SUCCESS, MPI_T_event_register_callback(one, safety, MPI_INFO_NULL, NULL, on_event));
        EXPECT(MPI_SUCCESS, MPI_T_event_callback_set_info(one, safety, MPI_INFO_NULL));
        EXPECT(MPI_SUCCESS, MPI_T_event_callback_get_info(one, safety, &used));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_get_info(one, safety, NULL));
        is_fresh(used, mpi_is_usable, 0);
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_get_info(two, safety, &used));
    }
    EXPECT(MPI_SUCCESS, MPI_T_event_register_callback(one, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL));
    EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_set_info(one, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL));
    for (int safety = -1; safety <= 4; safety += 5) {
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_register_callback(one, safety, MPI_INFO_NULL, NULL, on_event));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_set_info(one, safety, MPI_INFO_NULL));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_event_callback_get_info(one, safety, &used));
    }
    EXPECT(MPI_SUCCESS, MPI_T_event_set_dropped_handler(one, on_dropped));
    EXPECT(MPI_SUCCESS, MPI_T_event_set_dropped_handler(one, NULL));

    EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(one, &freed, count_free));
    HOLDS(freed == 1);
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(two, NULL, NULL));
    used = MPI_INFO_NULL;
    MPI_T_event_registration bad[] = {one, two, MPI_T_EVENT_REGISTRATION_NULL, (MPI_T_event_registration) &freed};
    for (int i = 0; i < 4; ++i) {
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_set_info(bad[i], MPI_INFO_NULL));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_get_info(bad[i], &used));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_register_callback(bad[i], 0, MPI_INFO_NULL, NULL, on_event));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_callback_set_info(bad[i], 0, MPI_INFO_NULL));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_callback_get_info(bad[i], 0, &used));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_set_dropped_handler(bad[i], on_dropped));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_free(bad[i], &freed, count_free));
    }
    HOLDS(freed == 1 && used == MPI_INFO_NULL);
}

/* A made-up number, or one next to a handle, is not the registration of another tool. */
static void cannot_be_guessed(void)
{
    MPI_T_event_registration others[3];
    int freed = 0;
    for (int i = 0; i < 3; ++i) {
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &others[i]));
        EXPECT(MPI_SUCCESS, MPI_T_event_register_callback(others[i], i, MPI_INFO_NULL, NULL, on_event));
    }
    for (long guess = 1; guess < 5000; ++guess) {
        MPI_T_event_registration near[] = {(MPI_T_event_registration) guess, (MPI_T_event_registration) ((char *) others[1] + guess),
                                           (MPI_T_event_registration) ((char *) others[1] - guess)};
        for (int i = 0; i < 3; ++i)
            EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_free(near[i], &freed, count_free));
    }
    EXPECT(MPI_SUCCESS, ibex_events_flush());
    for (int i = 0; i < 3; ++i)
        EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(others[i], &freed, count_free));
    HOLDS(freed == 3);
}

/* No instance is valid outside a callback, and none is dereferenced. */
static void instances(void)
{
    long buffer[16] = {-7};
    int source = -7;
    MPI_Count timestamp = -7;
    MPI_T_event_instance bad[] = {NULL, (MPI_T_event_instance) 1, (MPI_T_event_instance) buffer};
    for (int i = 0; i < 3; ++i) {
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_read(bad[i], 0, buffer));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_copy(bad[i], buffer));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_get_timestamp(bad[i], &timestamp));
        EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_get_source(bad[i], &source));
    }
    HOLDS(buffer[0] == -7 && source == -7 && timestamp == -7);
}

static void sources(int mpi_is_usable)
{
    int count = 0;
    EXPECT(MPI_T_ERR_INVALID, MPI_T_source_get_num(NULL));
    EXPECT(MPI_SUCCESS, MPI_T_source_get_num(&count));
    HOLDS(count >= 1);
    for (int i = 0; i < count; ++i) {
        char name[64], desc[256];
        int name_len = sizeof name, desc_len = sizeof desc;
        MPI_T_source_order ordering = 9;
        MPI_Count ticks = 0, most = 0, before = 0, after = 0;
        MPI_Info info = (MPI_Info) 1;
        EXPECT(MPI_SUCCESS, MPI_T_source_get_info(i, name, &name_len, desc, &desc_len, &ordering, &ticks, &most, &info));
        HOLDS(name_len == (int) strlen(name) + 1 && desc_len > 1);
        is_fresh(info, mpi_is_usable, 0);
        HOLDS(ordering == MPI_T_SOURCE_ORDERED || ordering == MPI_T_SOURCE_UNORDERED);
        HOLDS(ticks > 0 && most > ticks);
        EXPECT(MPI_SUCCESS, MPI_T_source_get_info(i, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
        EXPECT(MPI_SUCCESS, MPI_T_source_get_timestamp(i, &before));
        EXPECT(MPI_SUCCESS, MPI_T_source_get_timestamp(i, &after));
        HOLDS(before <= after && after <= most);
        EXPECT(MPI_T_ERR_INVALID, MPI_T_source_get_timestamp(i, NULL));
        if (strncmp(name, "host:", 5) == 0) {
            MPI_Count host = -7, error = -7;
            EXPECT(MPI_T_ERR_INVALID, ibex_source_to_host(i, before, NULL, &error));
            EXPECT(MPI_T_ERR_INVALID, ibex_source_to_host(i, -1, &host, &error));
            HOLDS(host == -7 && error == -7);
            EXPECT(MPI_SUCCESS, ibex_source_to_host(i, before, &host, &error));
            HOLDS(host == before && error == 0);
            EXPECT(MPI_SUCCESS, ibex_source_to_host(i, after, &host, NULL));
            HOLDS(host == after);
        }
        int minus = -1;
        ordering = 9;
        EXPECT(MPI_T_ERR_INVALID, MPI_T_source_get_info(i, name, &minus, NULL, NULL, &ordering, NULL, NULL, NULL));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_source_get_info(i, NULL, NULL, desc, &minus, &ordering, NULL, NULL, NULL));
        HOLDS(minus == -1 && ordering == (MPI_T_source_order) 9);
    }
    MPI_Count timestamp = -7;
    for (int i = -1; i <= 10000; i += 10001) {
        EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_source_get_info(i, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
        EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_source_get_timestamp(i, &timestamp));
        EXPECT(MPI_T_ERR_INVALID_INDEX, ibex_source_to_host(i, 1, &timestamp, NULL));
    }
    HOLDS(timestamp == -7);
}

/* Codes that the header adds have a text and a class, like MPI's own. */
static void texts(void)
{
    static const struct {
        int code;
        const char *name;
    } added[] = {{MPI_T_ERR_NOT_ACCESSIBLE, "MPI_T_ERR_NOT_ACCESSIBLE: "}, {MPI_T_ERR_NOT_SUPPORTED, "MPI_T_ERR_NOT_SUPPORTED: "}};
    for (int i = 0; i < 2; ++i) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int length = -1, class = -1;
        EXPECT(MPI_SUCCESS, MPI_Error_string(added[i].code, text, &length));
        HOLDS(strncmp(text, added[i].name, strlen(added[i].name)) == 0 && length == (int) strlen(text));
        EXPECT(MPI_SUCCESS, MPI_Error_class(added[i].code, &class));
        HOLDS(class == added[i].code);
    }
}

/* `wanted` categories have events; any number if negative, because the component may have been unloaded. They have the
 * variables of the transport, too, if these are `there`. */
static void categories(int wanted, int there)
{
    int count, events, types, cvars, pvars, with = 0;
    MPI_T_category_get_num(&count);
    EXPECT(MPI_SUCCESS, MPI_T_event_get_num(&types));
    int *indices = malloc((types + 1) * sizeof *indices);
    for (int i = 0; i < count; ++i) {
        /* MPI keeps the numbers of unloaded components, and reports them as invalid. */
        int code = MPI_T_category_get_info(i, NULL, NULL, NULL, NULL, &cvars, &pvars, NULL);
        EXPECT(code, MPI_T_category_get_num_events(i, &events));
        if (code != MPI_SUCCESS)
            continue;
        HOLDS(events == 0 || (events == types && (!there || (cvars > 40 && pvars > 30))));
        indices[events] = -7;
        EXPECT(MPI_SUCCESS, MPI_T_category_get_events(i, types + 1, indices));
        for (int e = 0; e < events; ++e)
            HOLDS(indices[e] == e);
        HOLDS(indices[events] == -7);
        EXPECT(MPI_SUCCESS, MPI_T_category_get_events(i, 0, NULL));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_category_get_events(i, -1, indices));
        EXPECT(MPI_T_ERR_INVALID, MPI_T_category_get_events(i, 1, NULL));
        with += events > 0;
    }
    free(indices);
    HOLDS(with == wanted || wanted < 0);
    EXPECT(MPI_T_ERR_INVALID, MPI_T_category_get_num_events(0, NULL));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_category_get_num_events(-1, &events));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_category_get_num_events(count, &events));
    EXPECT(MPI_T_ERR_INVALID_INDEX, MPI_T_category_get_events(count, 1, &events));
}

int main(int argc, char **argv)
{
    /* "component": it is loaded; "refused": it is loaded, but another copy was before. */
    int provided, component = argc > 1;
    not_initialized();
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    types(0);
    registrations(0);
    cannot_be_guessed();
    instances();
    sources(0);
    categories(component, component && strcmp(argv[1], "component") == 0);

    MPI_Init(&argc, &argv);
    types(1);
    registrations(1);
    texts();
    instances();
    sources(1);
    categories(component ? -1 : 0, 0);
    MPI_Finalize();

    types(0);
    registrations(0);
    instances();
    sources(0);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
