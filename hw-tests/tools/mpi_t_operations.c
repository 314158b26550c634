// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Ends of puts, gets and atomics have the adapter's time if it stamps completions, whether a flush finds them or a call
// that waits for a message; whether the tool listens before the operations begin, or to other events too. A flush ends
// after the operations that it waits for. Rank 0 works on the memory of rank 1. 2 ranks.
#include <ibex_mpi_t.h>

#include "../mpi/seen.h"

enum { ROUNDS = 30, BYTES = 1 << 16, TAG = 5, MOST_EVENTS = 1 << 14 };

static const unsigned ENDS = 1u << PUT_COMPLETE | 1u << GET_COMPLETE | 1u << ATOMIC_COMPLETE;
static struct tool tool;
static MPI_Win window;

// Begins an operation of each kind, on memory that is not used again before they are done.
static void begin_operations(int round) {
    static unsigned char memory[4][BYTES];
    static long long added = 1, found;
    int bytes = 1 + round * (BYTES / 2 - 1) / ROUNDS;
    MPI_OK(MPI_Put(memory[0], bytes, MPI_BYTE, 1, 8, bytes, MPI_BYTE, window));
    MPI_OK(MPI_Get(memory[1], bytes, MPI_BYTE, 1, 8 + BYTES / 2, bytes, MPI_BYTE, window));
    MPI_OK(MPI_Fetch_and_op(&added, &found, MPI_LONG_LONG, 1, 0, MPI_SUM, window));
}

static void by_flush(void) { MPI_OK(MPI_Win_flush(1, window)); }

// Rank 1 answers; most operations end meanwhile.
static void ask(void) { MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD)); }

static void by_receive(void) {
    ask();
    MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void by_wait(void) {
    MPI_Request request;
    MPI_OK(MPI_Irecv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request));
    ask();
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void by_probe(void) {
    ask();
    MPI_OK(MPI_Probe(1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void answer(void) {
    MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
}

static bool is_of_host[COUNTER_VALUES];
static bool has_stamps;

static void look_at_sources(void) {
    int sources = 0;
    check_int("MPI_T_source_get_num", MPI_SUCCESS, MPI_T_source_get_num(&sources));
    for (int index = 0; index < sources && index < COUNTER_VALUES; index++) {
        is_of_host[index] = seen_source(index).is_host;
        has_stamps |= !is_of_host[index];
    }
}

// The end of an operation names the thread that handled it, and the port whose source tells of it; an atomic on this
// process's own memory has no port.
static void names_who_handled_it(const struct seen *seen) {
    static int source_of[COUNTER_VALUES];
    const struct operation *operation = &seen->data.operation;
    const struct atomic *atomic = &seen->data.atomic;
    bool is_atomic = seen->kind == ATOMIC_COMPLETE, is_get = seen->kind == GET_COMPLETE;
    uint32_t thread = is_atomic ? atomic->thread : is_get ? operation->thread : operation->thread_of_put;
    uint32_t port = is_atomic ? atomic->port : is_get ? operation->port : operation->port_of_put;
    check_true("the thread", thread < COUNTER_VALUES && is_of_host[thread]);
    check_true("the port", port < COUNTER_VALUES || (port == UINT32_MAX && is_atomic && is_of_host[seen->source]));
    if (is_of_host[seen->source] || port >= COUNTER_VALUES)
        return;
    if (source_of[port] == 0)
        source_of[port] = 1 + seen->source;
    check_int("the port's source", source_of[port] - 1, seen->source);
}

static void ends_are_stamped(const char *how, void (*wait)(void), unsigned kinds) {
    int ends[KINDS] = {0}, by_host[KINDS] = {0};
    check_case("operations that end while %s have the adapter's time%s", how, kinds == ENDS ? "" : ", beside events of the host's");
    if (check.rank == 0)
        seen_listen(&tool, MOST_EVENTS, kinds, MPI_INFO_NULL);
    for (int round = 0; round < ROUNDS; round++) {
        if (check.rank == 0) {
            begin_operations(round);
            wait();
            by_flush();
        } else if (wait != by_flush) {
            answer();
        }
    }
    if (check.rank == 0) {
        seen_stop(&tool);
        for (int i = 0; i < seen_count(&tool); i++) {
            ends[tool.all[i].kind]++;
            by_host[tool.all[i].kind] += is_of_host[tool.all[i].source];
            if (ENDS >> tool.all[i].kind & 1)
                names_who_handled_it(&tool.all[i]);
        }
        for (int kind = 0; kind < KINDS; kind++)
            if (ENDS >> kind & 1) {
                check_true(seen_names[kind], ends[kind] >= ROUNDS);
                check_int(seen_names[kind], has_stamps ? 0 : ends[kind], by_host[kind]);
            }
        free(tool.all);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

// Place of the next event of this kind, and of this number unless that is 0; else the end.
static int next(int kind, uint64_t number, int from) {
    while (from < seen_count(&tool) && (tool.all[from].kind != kind || (number && tool.all[from].data.operation.operation != number)))
        from++;
    return from;
}

// The put that was started at a place is over before the next flush that begins after it.
static void is_waited_for(int put) {
    int flush = next(FLUSH_STARTED, 0, put), all = seen_count(&tool);
    int over = flush < all ? next(FLUSH_COMPLETE, tool.all[flush].data.flush.operation, flush) : all;
    int done = next(PUT_COMPLETE, tool.all[put].data.operation.operation, put);
    check_true("a wait begins and ends, and so does the put", over < all && done < all);
    if (over < all && done < all) {
        MPI_Count host = 0, error = 0;
        check_int("time", MPI_SUCCESS, ibex_source_to_host(tool.all[done].source, tool.all[done].timestamp, &host, &error));
        check_true("the put is over before the wait", host - error <= tool.all[over].timestamp);
    }
}

static void flushes_are_told(void) {
    const unsigned kinds = 1u << PUT_STARTED | 1u << PUT_COMPLETE | 1u << FLUSH_STARTED | 1u << FLUSH_COMPLETE;
    static unsigned char memory[BYTES];
    int flushes = 0, puts = 0;
    check_case("a flush begins, and ends after the operations that it waits for");
    if (check.rank == 0) {
        seen_listen(&tool, MOST_EVENTS, kinds, MPI_INFO_NULL);
        for (int round = 0; round < ROUNDS; round++) {
            MPI_OK(MPI_Put(memory, BYTES / 4, MPI_BYTE, 1, 8, BYTES / 4, MPI_BYTE, window));
            by_flush();
        }
        seen_stop(&tool);
        for (int i = 0; i < seen_count(&tool); i++) {
            const struct seen *seen = &tool.all[i];
            if (seen->kind == PUT_STARTED && seen->data.operation.bytes == BYTES / 4) {
                puts++;
                is_waited_for(i);
            }
            if (seen->kind != FLUSH_STARTED)
                continue;
            const struct flush *flush = &seen->data.flush;
            int end = next(FLUSH_COMPLETE, flush->operation, i);
            flushes++;
            check_true("on the host's clock", is_of_host[seen->source]);
            check_true("of all peers or of the one", flush->peer == UINT32_MAX || flush->peer == 1);
            check_int("a number of its own", seen_count(&tool), next(FLUSH_STARTED, flush->operation, i + 1));
            check_true("it ends", end < seen_count(&tool));
            if (end < seen_count(&tool)) {
                check_true("after it has begun", seen->timestamp <= tool.all[end].timestamp);
                check_true("as what has begun", memcmp(flush, &tool.all[end].data.flush, sizeof *flush) == 0);
            }
        }
        check_int("puts", ROUNDS, puts);
        check_true("each of the program's is told", flushes >= ROUNDS);
        free(tool.all);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv) {
    static unsigned char memory[8 + BYTES] __attribute__((aligned(8)));
    listen_must(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}), "MPI_T");
    check_start(&argc, &argv, 2);
    MPI_OK(MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI_OK(MPI_Win_lock_all(0, window));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    look_at_sources();
    for (int more = 0; more < 2; more++) {
        unsigned kinds = more ? (1u << KINDS) - 1 : ENDS;
        ends_are_stamped("a flush waits", by_flush, kinds);
        ends_are_stamped("a blocking receive waits", by_receive, kinds);
        ends_are_stamped("a receive is waited for", by_wait, kinds);
        ends_are_stamped("a probe looks", by_probe, kinds);
    }
    flushes_are_told();
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
    MPI_OK(MPI_T_finalize());
    return check_finish();
}
