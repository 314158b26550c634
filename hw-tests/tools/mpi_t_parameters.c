// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Control variables: a tool writes the eager limit before MPI_Init and while MPI runs, as the number of reads shows;
// others refuse. Without a tool that listens to events, and with one. 2 ranks; rank 0 alone writes.
#include "../mpi/counts.h"
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { LIMIT = 2000, BELOW = 1500, BEYOND = 4000, TAG = 7 };

static const char *const eager_limit = "pml_ibex_eager_limit";
static struct counter gets;

static unsigned char sent[BEYOND], got[BEYOND];

static int write_parameter(const char *name, unsigned long long value) {
    MPI_T_cvar_handle handle;
    int index, count;
    int code = MPI_T_cvar_get_index(name, &index);
    if (code == MPI_SUCCESS)
        code = MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
    if (code == MPI_SUCCESS) {
        code = MPI_T_cvar_write(handle, &value);
        MPI_T_cvar_handle_free(&handle);
    }
    return code;
}

static unsigned long long read_parameter(const char *name) {
    unsigned long long value = 0;
    MPI_T_cvar_handle handle;
    int index, count;
    check_int(name, MPI_SUCCESS, MPI_T_cvar_get_index(name, &index));
    check_int("alloc", MPI_SUCCESS, MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    check_int("read", MPI_SUCCESS, MPI_T_cvar_read(handle, &value));
    MPI_T_cvar_handle_free(&handle);
    return value;
}

static void set_limit(unsigned long long value) {
    if (check.rank == 0)
        check_int("write", MPI_SUCCESS, write_parameter(eager_limit, value));
}

// Sends a message in each way that a short one may take; the receiver must read all of them, or none (`is_read`).
static void goes(const char *what, int from, int bytes, bool is_read) {
    long long before = counted(&gets);
    MPI_Request request;
    for (int way = 0; way < 3; way++) {
        memset(sent, way + 1, bytes);
        if (check.rank == from && way == 0)
            MPI_OK(MPI_Send(sent, bytes, MPI_BYTE, 1 - from, TAG, MPI_COMM_WORLD));
        else if (check.rank == from && way == 1)
            MPI_OK(MPI_Isend(sent, bytes, MPI_BYTE, 1 - from, TAG, MPI_COMM_WORLD, &request));
        else if (check.rank == from) {
            MPI_OK(MPI_Send_init(sent, bytes, MPI_BYTE, 1 - from, TAG, MPI_COMM_WORLD, &request));
            MPI_OK(MPI_Start(&request));
        } else {
            MPI_OK(MPI_Recv(got, bytes, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            check_true(what, memcmp(sent, got, bytes) == 0);
        }
        if (check.rank == from && way > 0)
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        if (check.rank == from && way == 2)
            MPI_OK(MPI_Request_free(&request));
    }
    if (check.rank != from)
        check_int(what, is_read ? 3 : 0, counted(&gets) - before);
}

static void before_init(int written) {
    check_case("an eager limit written before MPI_Init holds for the job, in the process that wrote it");
    check_int("write", MPI_SUCCESS, written);
    check_int("the limit", check.rank == 0 ? LIMIT : 12288, (long long)read_parameter(eager_limit));
    goes("a message below it", 0, BELOW, false);
    goes("a message beyond it", 0, BEYOND, true);
    goes("a message to who wrote it", 1, BEYOND, false);
}

static void while_mpi_runs(const char *how) {
    check_case("an eager limit written while MPI runs holds for the next message%s", how);
    set_limit(BELOW);
    goes("a message that is longer with its header", 0, BELOW, true);
    set_limit(LIMIT);
    goes("a message below it again", 0, BELOW, false);
    // No send buffer holds more than the limit was at the beginning.
    set_limit(1 << 20);
    goes("a message as long as none may be", 0, BEYOND, true);
    goes("a short one", 0, BELOW, false);
    if (check.rank == 0)
        check_int("the most", LIMIT, (long long)read_parameter(eager_limit));
    set_limit(1);
    goes("a message beyond the least limit", 0, 1000, true);
    if (check.rank == 0)
        check_int("the least", 64, (long long)read_parameter(eager_limit));
    set_limit(LIMIT);
    goes("a message below it once more", 0, BELOW, false);
}

// The value that a registration has for this key of its info, unless it says otherwise.
static void default_is(const char *key, const char *expected) {
    MPI_Info info;
    char value[16] = "";
    int there;
    int code = MPI_T_event_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &info, NULL, NULL, NULL);
    check_int("info", MPI_SUCCESS, code);
    MPI_OK(MPI_Info_get(info, key, sizeof value - 1, value, &there));
    if (!there || strcmp(value, expected) != 0)
        check_fail("%s: expected %s, got %s", key, expected, value);
    MPI_OK(MPI_Info_free(&info));
}

static void what_else_can_be_written(void) {
    static const char *const until_init[] = {"btl_ibex_service_level", "btl_ibex_connect_timeout", "pml_ibex_read_size"};
    check_case("others can be written until MPI_Init, and those of events at any time");
    for (unsigned i = 0; i < sizeof until_init / sizeof *until_init; i++)
        check_int(until_init[i], MPI_T_ERR_CVAR_SET_NOT_NOW, write_parameter(until_init[i], read_parameter(until_init[i])));
    for (unsigned long long room = 100; room <= 1000; room += 900) {
        check_int("write", MPI_SUCCESS, write_parameter("btl_ibex_event_buffer", room));
        check_int("write", MPI_SUCCESS, write_parameter("btl_ibex_event_buffered", 1));
        default_is("ibex_buffered", "true");
        default_is("ibex_buffer_events", room == 100 ? "128" : "1024"); // a power of two
    }
    check_int("write", MPI_SUCCESS, write_parameter("btl_ibex_event_buffered", 0));
    default_is("ibex_buffered", "false");
    check_int("write", MPI_SUCCESS, write_parameter("btl_ibex_verbose", 0));
}

int main(int argc, char **argv) {
    MPI_T_event_registration registration;
    int provided, code, events = 0;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    code = rank && strcmp(rank, "0") == 0 ? write_parameter(eager_limit, LIMIT) : MPI_SUCCESS;
    check_start(&argc, &argv, 2);
    // The ranks connect with their first message, so what ibex says of that shows that this holds at once.
    if (check.rank == 0)
        check_int("write", MPI_SUCCESS, write_parameter("btl_ibex_verbose", 2));
    counter_open(&gets, "btl_ibex_get");
    before_init(code);
    while_mpi_runs("");
    registration = listen_to("ibex_comm_req_complete", NULL, count_event, &events);
    while_mpi_runs(", while a tool listens");
    check_true("it has heard of messages", events > 0);
    listen_no_more(registration);
    what_else_can_be_written();
    counter_close(&gets);
    MPI_OK(MPI_T_finalize());
    return check_finish();
}
