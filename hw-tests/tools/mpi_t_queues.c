// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Performance variables of a communicator's queues: the example of MPI's standard, which finds receives that are called
// while many messages are unexpected (14.3.7), and the other variables of the PML. Without a tool that listens to
// events, and with one. Rank 0 sends to rank 1. 2 ranks.
#include "mpi_t_listen.h"
#include <ibex_mpi_t.h>

enum { MESSAGES = 10, TAG = 7, LONG = 1 << 20, THRESHOLD = 5 };

enum { POSTED, POSTED_MOST, UNEXPECTED, UNEXPECTED_MOST, BYTES, BYTES_MOST, ALL, ATTEMPTS, VARIABLES };
static const struct {
    const char *name;
    int class;
    bool is_long;
} variables[VARIABLES] = {
    {"pml_ibex_posted_receives", MPI_T_PVAR_CLASS_LEVEL, false},
    {"pml_ibex_posted_receives_most", MPI_T_PVAR_CLASS_HIGHWATERMARK, false},
    {"pml_ibex_unexpected_messages", MPI_T_PVAR_CLASS_LEVEL, false},
    {"pml_ibex_unexpected_messages_most", MPI_T_PVAR_CLASS_HIGHWATERMARK, false},
    {"pml_ibex_unexpected_bytes", MPI_T_PVAR_CLASS_LEVEL, true},
    {"pml_ibex_unexpected_bytes_most", MPI_T_PVAR_CLASS_HIGHWATERMARK, true},
    {"pml_ibex_unexpected_messages_all", MPI_T_PVAR_CLASS_COUNTER, true},
    {"pml_ibex_match_attempts", MPI_T_PVAR_CLASS_COUNTER, true},
};

static unsigned char sent[LONG], got[LONG];
static MPI_Comm comm;

// The example's tool: how many receives it has identified, and what each has found.
static MPI_T_pvar_session session, another;
static MPI_T_pvar_handle handle;
static int identified, found[4 * MESSAGES], receives;

static MPI_T_pvar_handle handle_in(MPI_T_pvar_session in, int variable, MPI_Comm of) {
    const char *name = variables[variable].name;
    int class = variables[variable].class, index, verbosity, bind, readonly, continuous, atomic, count;
    MPI_T_pvar_handle allocated;
    MPI_Datatype datatype;
    MPI_T_enum enumtype;
    MPI_OK(PMPI_T_pvar_get_index(name, class, &index));
    MPI_OK(PMPI_T_pvar_get_info(index, NULL, NULL, &verbosity, &class, &datatype, &enumtype, NULL, NULL, &bind, &readonly,
                                &continuous, &atomic));
    check_true("datatype", datatype == (variables[variable].is_long ? MPI_UNSIGNED_LONG_LONG : MPI_UNSIGNED));
    check_int("bind", MPI_T_BIND_MPI_COMM, bind);
    check_int("read-only", class == MPI_T_PVAR_CLASS_LEVEL, readonly);
    MPI_OK(PMPI_T_pvar_handle_alloc(in, index, &of, &allocated, &count));
    check_int("count", 1, count);
    return allocated;
}

static MPI_T_pvar_handle handle_of(int variable, MPI_Comm of) { return handle_in(session, variable, of); }

static long long read_in(MPI_T_pvar_session in, int variable, MPI_T_pvar_handle from) {
    unsigned value = 0;
    unsigned long long long_value = 0;
    MPI_OK(PMPI_T_pvar_read(in, from, variables[variable].is_long ? (void *)&long_value : (void *)&value));
    return variables[variable].is_long ? (long long)long_value : (long long)value;
}

static long long read_of(int variable, MPI_T_pvar_handle from) { return read_in(session, variable, from); }

static void begin_tool(void) {
    MPI_OK(PMPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    MPI_OK(PMPI_T_pvar_session_create(&session));
    handle = handle_of(UNEXPECTED, comm);
}

int MPI_Recv(void *buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm on, MPI_Status *status) {
    int value;
    if (on == comm) {
        int code = PMPI_T_pvar_read(session, handle, &value);
        if (code == MPI_SUCCESS && value > THRESHOLD)
            identified++;
        found[receives++ % (4 * MESSAGES)] = value;
    }
    return PMPI_Recv(buffer, count, datatype, source, tag, on, status);
}

static void long_queues(const char *how) {
    check_case("a tool identifies receives with long queues of unexpected messages%s", how);
    identified = receives = 0;
    for (int i = 0; i < MESSAGES && check.rank == 0; i++)
        MPI_OK(MPI_Send(&i, 1, MPI_INT, 1, TAG + i, comm));
    check_meet();
    for (int i = 0; i < MESSAGES && check.rank == 1; i++) {
        // The last first, behind the others in the queue.
        int tag = TAG + MESSAGES - 1 - i, value = -1;
        MPI_OK(MPI_Recv(&value, 1, MPI_INT, 0, tag, comm, MPI_STATUS_IGNORE));
        check_int("the message", tag - TAG, value);
        check_int("unexpected when it is called", MESSAGES - i, found[i]);
    }
    check_int("identified", check.rank == 1 ? MESSAGES - THRESHOLD : 0, identified);
    check_meet();
}

static void each_variable(const char *how, bool is_first) {
    MPI_T_pvar_handle handles[VARIABLES], elsewhere = handle_of(UNEXPECTED, MPI_COMM_SELF);
    MPI_Request requests[MESSAGES];
    MPI_Message message;
    long long before[VARIABLES];
    check_case("each variable has the value of its description%s", how);
    for (int i = 0; i < VARIABLES; i++) {
        handles[i] = handle_of(i, comm);
        before[i] = read_of(i, handles[i]);
    }
    check_int("nothing waits", 0, before[POSTED] + before[UNEXPECTED] + before[BYTES]);
    if (is_first)
        check_int("the most messages", check.rank == 1 ? MESSAGES : 0, before[UNEXPECTED_MOST]);
    for (int i = 0; i < MESSAGES && check.rank == 1; i++) {
        MPI_OK(MPI_Irecv(&got[i], 1, MPI_BYTE, 0, TAG + i, comm, &requests[i]));
        check_int("posted", i + 1, read_of(POSTED, handles[POSTED]));
    }
    check_meet();
    for (int i = MESSAGES - 1; i >= 0 && check.rank == 0; i--)
        MPI_OK(MPI_Send(&sent[i], 1, MPI_BYTE, 1, TAG + i, comm));
    if (check.rank == 1) {
        MPI_OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
        check_int("none are posted", 0, read_of(POSTED, handles[POSTED]));
        check_int("the most", MESSAGES, read_of(POSTED_MOST, handles[POSTED_MOST]));
        check_int("no more were unexpected", before[ALL], read_of(ALL, handles[ALL]));
        check_true("others were compared", read_of(ATTEMPTS, handles[ATTEMPTS]) >= before[ATTEMPTS] + MESSAGES);
        // A cancelled receive waits no longer, whether it is alone or not.
        MPI_OK(MPI_Irecv(got, 1, MPI_BYTE, 0, TAG, comm, &requests[0]));
        MPI_OK(MPI_Irecv(got, 1, MPI_BYTE, 0, TAG, comm, &requests[1]));
        check_int("two", 2, read_of(POSTED, handles[POSTED]));
        MPI_OK(MPI_Cancel(&requests[1]));
        check_int("one", 1, read_of(POSTED, handles[POSTED]));
        MPI_OK(MPI_Cancel(&requests[0]));
        MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        check_int("none", 0, read_of(POSTED, handles[POSTED]));
    }
    check_meet();
    // A short message and one that is announced.
    if (check.rank == 0) {
        MPI_OK(MPI_Isend(sent, LONG, MPI_BYTE, 1, TAG + 1, comm, &requests[0]));
        MPI_OK(MPI_Send(sent, 8, MPI_BYTE, 1, TAG, comm));
    }
    check_meet();
    if (check.rank == 1) {
        check_int("unexpected", 2, read_of(UNEXPECTED, handles[UNEXPECTED]));
        check_int("bytes", LONG + 8, read_of(BYTES, handles[BYTES]));
        check_int("all", before[ALL] + 2, read_of(ALL, handles[ALL]));
        check_int("of another communicator", 0, read_of(UNEXPECTED, elsewhere));
        MPI_OK(MPI_Mprobe(0, TAG, comm, &message, MPI_STATUS_IGNORE));
        check_int("a matched probe has one", 1, read_of(UNEXPECTED, handles[UNEXPECTED]));
        check_int("the other's bytes", LONG, read_of(BYTES, handles[BYTES]));
        MPI_OK(MPI_Mrecv(got, 8, MPI_BYTE, &message, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Recv(got, LONG, MPI_BYTE, 0, TAG + 1, comm, MPI_STATUS_IGNORE));
        check_int("none", 0, read_of(UNEXPECTED, handles[UNEXPECTED]) + read_of(BYTES, handles[BYTES]));
        check_int("the most bytes", LONG + 8, read_of(BYTES_MOST, handles[BYTES_MOST]));
        check_int("the most messages", is_first ? MESSAGES : 3 * MESSAGES, read_of(UNEXPECTED_MOST, handles[UNEXPECTED_MOST]));
    } else {
        MPI_OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    }
    for (int i = 0; i < VARIABLES; i++)
        MPI_OK(PMPI_T_pvar_handle_free(session, &handles[i]));
    MPI_OK(PMPI_T_pvar_handle_free(session, &elsewhere));
}

static void send_more(int first, int many) {
    for (int i = first; i < first + many && check.rank == 0; i++)
        MPI_OK(MPI_Send(&i, 1, MPI_INT, 1, TAG + i, comm));
    check_meet();
}

static void receive(int first, int many) {
    for (int i = first, got; i < first + many && check.rank == 1; i++)
        MPI_OK(PMPI_Recv(&got, 1, MPI_INT, 0, TAG + i, comm, MPI_STATUS_IGNORE));
}

// A watermark's handle begins anew where it is reset; that of another session, or another variable, does not.
static void a_watermark_is_reset(const char *how) {
    MPI_T_pvar_handle most, of_other_session, of_bytes, all, now;
    check_case("the value after a reset is the current level%s", how);
    MPI_OK(PMPI_T_pvar_session_create(&another));
    most = handle_of(UNEXPECTED_MOST, comm);
    of_bytes = handle_of(BYTES_MOST, comm);
    all = handle_of(ALL, comm);
    now = handle_of(UNEXPECTED, comm);
    of_other_session = handle_in(another, UNEXPECTED_MOST, comm);
    send_more(0, 3 * MESSAGES);
    receive(0, 2 * MESSAGES);
    if (check.rank == 1) {
        check_int("before", 3 * MESSAGES, read_of(UNEXPECTED_MOST, most));
        long long bytes = read_of(BYTES_MOST, of_bytes);
        MPI_OK(PMPI_T_pvar_reset(session, most));
        check_int("reset", MESSAGES, read_of(UNEXPECTED_MOST, most));
        check_int("another variable", bytes, read_of(BYTES_MOST, of_bytes));
        MPI_OK(PMPI_T_pvar_reset(session, all));
        check_int("a counter", 0, read_of(ALL, all));
        check_true("a level cannot be reset", PMPI_T_pvar_reset(session, now) != MPI_SUCCESS);
    }
    check_meet();
    send_more(3 * MESSAGES, 2);
    receive(2 * MESSAGES, MESSAGES + 2);
    if (check.rank == 1) {
        check_int("more came, and all went", MESSAGES + 2, read_of(UNEXPECTED_MOST, most));
        check_int("a counter has them", 2, read_of(ALL, all));
        MPI_OK(PMPI_T_pvar_reset(session, most));
        check_int("there are none now", 0, read_of(UNEXPECTED_MOST, most));
        check_int("of another session", 3 * MESSAGES, read_in(another, UNEXPECTED_MOST, of_other_session));
    }
    // One call resets all that can be reset; the other session's is as it was. Then one is written.
    check_meet();
    send_more(0, 4);
    receive(0, 4);
    if (check.rank == 1) {
        check_int("four", 4, read_of(UNEXPECTED_MOST, most));
        MPI_OK(PMPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
        check_int("all at once", 0, read_of(UNEXPECTED_MOST, most) + read_of(BYTES_MOST, of_bytes) + read_of(ALL, all));
        MPI_OK(PMPI_T_pvar_write(session, most, &(unsigned){7}));
        check_int("written", 7, read_of(UNEXPECTED_MOST, most));
        check_int("of another session", 3 * MESSAGES, read_in(another, UNEXPECTED_MOST, of_other_session));
    }
    MPI_OK(PMPI_T_pvar_handle_free(session, &most));
    MPI_OK(PMPI_T_pvar_handle_free(session, &of_bytes));
    MPI_OK(PMPI_T_pvar_handle_free(session, &all));
    MPI_OK(PMPI_T_pvar_handle_free(session, &now));
    MPI_OK(PMPI_T_pvar_handle_free(another, &of_other_session));
    MPI_OK(PMPI_T_pvar_session_free(&another));
}

// Least memory for unexpected messages that was left, in two sessions of which one resets its handle.
static void the_least_memory_is_told(const char *how) {
    enum { MEMORY = 4 << 20, RECORD = 128 };
    MPI_T_pvar_session sessions[2];
    MPI_T_pvar_handle handles[2];
    int index = -1, values;
    unsigned long long left[2], again[2];
    check_case("the least memory that was left for unexpected messages%s", how);
    MPI_OK(PMPI_T_pvar_get_index("pml_ibex_unexpected_memory_least_left", MPI_T_PVAR_CLASS_LOWWATERMARK, &index));
    for (int i = 0; i < 2; i++) {
        MPI_OK(PMPI_T_pvar_session_create(&sessions[i]));
        MPI_OK(PMPI_T_pvar_handle_alloc(sessions[i], index, NULL, &handles[i], &values));
        MPI_OK(PMPI_T_pvar_reset(sessions[i], handles[i]));
    }
    check_meet();
    send_more(0, MESSAGES);
    for (int i = 0; i < 2; i++)
        MPI_OK(PMPI_T_pvar_read(sessions[i], handles[i], &left[i]));
    if (check.rank == 1) {
        check_true("they take memory", left[0] <= MEMORY - MESSAGES * RECORD && left[0] > 0);
        check_int("of another session", (long long)left[0], (long long)left[1]);
    }
    receive(0, MESSAGES);
    MPI_OK(PMPI_T_pvar_reset(sessions[0], handles[0]));
    for (int i = 0; i < 2; i++)
        MPI_OK(PMPI_T_pvar_read(sessions[i], handles[i], &again[i]));
    if (check.rank == 1) {
        check_true("a reset", again[0] > left[0]);
        check_int("of another session", (long long)left[1], (long long)again[1]);
    }
    for (int i = 0; i < 2; i++) {
        MPI_OK(PMPI_T_pvar_handle_free(sessions[i], &handles[i]));
        MPI_OK(PMPI_T_pvar_session_free(&sessions[i]));
    }
    check_meet();
}

int main(int argc, char **argv) {
    MPI_T_event_registration registration = MPI_T_EVENT_REGISTRATION_NULL;
    int events = 0;
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    begin_tool();
    for (int listens = 0; listens < 2; listens++) {
        const char *how = listens ? ", while another listens to events" : "";
        if (listens)
            registration = listen_at(MPI_T_CB_REQUIRE_MPI_RESTRICTED, "ibex_comm_msg_arrived", &comm, count_event, &events);
        check_meet();
        long_queues(how);
        each_variable(how, !listens);
        a_watermark_is_reset(how);
        the_least_memory_is_told(how);
    }
    check_true("it has heard of messages", check.rank == 0 || events >= MESSAGES);
    listen_no_more(registration);
    MPI_OK(PMPI_T_pvar_handle_free(session, &handle));
    MPI_OK(PMPI_T_pvar_session_free(&session));
    MPI_OK(MPI_T_finalize());
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
