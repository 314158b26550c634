// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: ibex' PML raises the events.
//
// Compares the events of messages and one-sided operations, in seeded random patterns, with the exchanged data: each
// message begins and ends once on each side, with continues between, and bytes add up; operations complete once; the
// timestamps of each source are in order. If emulated adapters write a trace, also compares the events with the
// requests that they executed. Registers by MPI_T before MPI_Init. 2 or more ranks. Needs -libex.
//
// usage: events [--seed S] [--patterns N] [--threads T] [--adapter NAME] [--trace exact|narrow]
//   NAME: beginning of the names of the sources that stamp completions, or `none`; T: threads that run patterns at
//   once; exact: the adapters' clocks do not wrap, so each stamp is used; narrow: some stamps may be too old
#include "ibex_mpi_t.h"

#include "trace.h"

enum { FIRST_TAG = 1000, MOST_MESSAGES = 12, MOST_OPERATIONS = 4, MOST_EVENTS = 1 << 19, COMMS = 3 };
enum { WINDOW_BYTES = 1 << 17 };

static struct tool tool;

struct message {
    int pattern, from, to, comm;
    size_t bytes;
    bool synchronous, gaps, from_any;
};

// An operation on the window of another rank.
enum what { PUT, GET, ADD, SWAP };
struct onesided {
    int pattern, from, to;
    enum what what;
    size_t bytes, at;
};

static struct {
    uint64_t seed;
    int patterns, messages, operations;
    struct message *message;
    struct onesided *operation;
    int *first_message, *first_operation; // of each pattern, and the number of all behind the last
} plan;

static MPI_Comm comms[COMMS];
static MPI_Win window;
static int threads = 1;
static bool one_sided;
static uint64_t state;

static uint64_t random_number(void) { return pattern_word(state++, 0); }

// Sizes around the limits of the protocols, most of them small.
static size_t random_size(void) {
    static const size_t about[] = {0, 8, 100, 256, 4000, 12 << 10, 32 << 10, 64 << 10, 300000, 1 << 20, 3 << 20};
    uint64_t draw = random_number();
    size_t limit = sizeof about / sizeof *about;
    size_t base = about[draw % 8 == 0 ? draw / 8 % limit : draw / 8 % 6];
    size_t away = random_number() % 129;
    return base + away > 64 ? base + away - 64 : base;
}

static int other_than(int rank) { return (int)((unsigned)rank + 1 + random_number() % (unsigned)(check.size - 1)) % check.size; }

// Each pattern has a seed of its own, so that one of them can be made alone.
static void make_plan(void) {
    plan.message = check_alloc((size_t)plan.patterns * MOST_MESSAGES * sizeof *plan.message);
    plan.operation = check_alloc((size_t)plan.patterns * MOST_OPERATIONS * sizeof *plan.operation);
    plan.first_message = check_alloc(((size_t)plan.patterns + 1) * sizeof(int));
    plan.first_operation = check_alloc(((size_t)plan.patterns + 1) * sizeof(int));
    for (int pattern = 0; pattern < plan.patterns; pattern++) {
        state = pattern_word(plan.seed, (uint64_t)pattern);
        plan.first_message[pattern] = plan.messages;
        plan.first_operation[pattern] = plan.operations;
        for (uint64_t left = 1 + random_number() % MOST_MESSAGES; left > 0; left--) {
            struct message *message = &plan.message[plan.messages++];
            message->pattern = pattern;
            message->from = (int)(random_number() % (unsigned)check.size);
            message->to = other_than(message->from);
            message->comm = (int)(random_number() % COMMS);
            message->synchronous = random_number() % 5 == 0;
            message->from_any = random_number() % 4 == 0;
            message->gaps = random_number() % 6 == 0;
            message->bytes = random_size() & ~(size_t)(message->gaps ? 15 : 0);
        }
        for (uint64_t left = random_number() % (MOST_OPERATIONS + 1); left > 0; left--) {
            struct onesided *one = &plan.operation[plan.operations++];
            one->pattern = pattern;
            one->from = (int)(random_number() % (unsigned)check.size);
            one->to = other_than(one->from);
            one->what = (enum what)(random_number() % 4);
            one->at = random_number() % (WINDOW_BYTES / 16) * 8;
            one->bytes = 1 + random_number() % (random_number() % 4 ? 500 : WINDOW_BYTES / 2 - 1);
        }
    }
    plan.first_message[plan.patterns] = plan.messages;
    plan.first_operation[plan.patterns] = plan.operations;
}

// The last communicator has the ranks the other way round.
static int rank_in(int comm, int rank) { return comm == COMMS - 1 ? check.size - 1 - rank : rank; }

static void start_message(int number, void **buffer, MPI_Request *request) {
    const struct message *message = &plan.message[number];
    MPI_Comm comm = comms[message->comm];
    bool gaps = message->gaps && message->bytes > 0;
    MPI_Datatype type = gaps ? check_vector((int)(message->bytes / 16), 16, 32, MPI_BYTE) : MPI_BYTE;
    int elements = gaps ? 1 : (int)message->bytes;
    *buffer = check_alloc(2 * message->bytes + 64);
    if (check.rank == message->to) {
        int from = message->from_any ? MPI_ANY_SOURCE : rank_in(message->comm, message->from);
        MPI_OK(MPI_Irecv(*buffer, elements, type, from, FIRST_TAG + number, comm, request));
    } else {
        int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) =
            message->synchronous ? MPI_Issend : MPI_Isend;
        int to = rank_in(message->comm, message->to);
        pattern_fill(*buffer, message->bytes, (uint64_t)number);
        MPI_OK(send(*buffer, elements, type, to, FIRST_TAG + number, comm, request));
    }
    if (gaps)
        MPI_OK(MPI_Type_free(&type));
}

static void start_operation(const struct onesided *one, unsigned char *memory) {
    int64_t *word = (int64_t *)memory;
    MPI_Aint at = (MPI_Aint)one->at;
    switch (one->what) {
    case PUT: MPI_OK(MPI_Put(memory, (int)one->bytes, MPI_BYTE, one->to, at, (int)one->bytes, MPI_BYTE, window)); break;
    case GET: MPI_OK(MPI_Get(memory, (int)one->bytes, MPI_BYTE, one->to, at, (int)one->bytes, MPI_BYTE, window)); break;
    case ADD: MPI_OK(MPI_Fetch_and_op(word, word + 1, MPI_INT64_T, one->to, at, MPI_SUM, window)); break;
    case SWAP: MPI_OK(MPI_Compare_and_swap(word, word + 1, word + 2, MPI_INT64_T, one->to, at, window)); break;
    }
}

static void run_pattern(int pattern) {
    static unsigned char memory[MOST_OPERATIONS][WINDOW_BYTES / 2 + 32] __attribute__((aligned(8)));
    MPI_Request requests[MOST_MESSAGES];
    void *buffers[MOST_MESSAGES];
    int under_way = 0, operations = 0;
    for (int i = plan.first_message[pattern]; i < plan.first_message[pattern + 1]; i++)
        if (check.rank == plan.message[i].from || check.rank == plan.message[i].to) {
            start_message(i, &buffers[under_way], &requests[under_way]);
            under_way++;
        }
    for (int i = plan.first_operation[pattern]; one_sided && i < plan.first_operation[pattern + 1]; i++)
        if (check.rank == plan.operation[i].from)
            start_operation(&plan.operation[i], memory[operations++]);
    if (operations)
        MPI_OK(MPI_Win_flush_all(window));
    MPI_OK(MPI_Waitall(under_way, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < under_way; i++)
        free(buffers[i]);
}

static void *run_patterns(void *first) {
    for (int pattern = (int)(intptr_t)first; pattern < plan.patterns; pattern += threads)
        run_pattern(pattern);
    return NULL;
}

// The last events may wait until earlier ones of the adapter have come; those that came too late for that are dropped.
static int ends_seen(void) {
    int ends = 0;
    for (int i = 0; i < seen_count(&tool); i++)
        ends += tool.all[i].kind == END && tool.all[i].data.transfer.tag >= FIRST_TAG;
    return ends;
}

static void wait_for_ends(int expected) {
    double until = MPI_Wtime() + 120;
    while (ends_seen() + seen_all_dropped() < expected && MPI_Wtime() < until)
        check_progress();
}

// The events of a message that this rank has seen so far.
struct account {
    int begun, ended;
    uint64_t bytes, message;
    uint64_t continued_on, ended_on; // one bit per source
};

// Each source (a thread or a port) has its pieces in order.
static void judge_piece(const struct seen *seen, const struct message *message, uint32_t context, struct account *account) {
    const struct transfer *piece = &seen->data.transfer;
    bool received = check.rank == message->to;
    check_int("direction", received, piece->direction);
    check_int("rank of the sender", rank_in(message->comm, message->from), piece->source);
    check_int("rank of the other", received ? message->from : message->to, piece->peer);
    check_int("context", context, piece->context);
    check_int("bytes of the message", (long long)message->bytes, (long long)piece->total);
    check_true("an offset within the message", piece->offset + piece->bytes <= piece->total);
    uint64_t source = UINT64_C(1) << seen->source % 64;
    check_true("nothing comes after the end", (account->ended_on & source) == 0);
    check_true("nothing comes before the begin", seen->kind != BEGIN || (account->continued_on & source) == 0);
    account->continued_on |= seen->kind == CONTINUE ? source : 0;
    account->ended_on |= seen->kind == END ? source : 0;
    if (account->begun + account->ended)
        check_int("number of the message", (long long)account->message, (long long)piece->message);
    account->begun += seen->kind == BEGIN;
    account->ended += seen->kind == END;
    account->bytes += piece->bytes;
    account->message = piece->message;
}

static void judge_transfers(const uint32_t contexts[COMMS]) {
    struct account *accounts = check_alloc((size_t)plan.messages * sizeof *accounts);
    for (int i = 0; i < seen_count(&tool); i++) {
        const struct seen *seen = &tool.all[i];
        int index = seen->data.transfer.tag - FIRST_TAG;
        if (seen->kind > END || index < 0)
            continue;
        if (index >= plan.messages)
            check_fail("a message with tag %d: expected none, got one", seen->data.transfer.tag);
        else
            judge_piece(seen, &plan.message[index], contexts[plan.message[index].comm], &accounts[index]);
    }
    int lost = 0;
    for (int i = 0; i < plan.messages; i++) {
        const struct message *message = &plan.message[i];
        int mine = message->from == check.rank || message->to == check.rank;
        // With several threads a piece may come too late, or a thread may end before it delivers one: compared below.
        if (threads > 1 && mine && !(accounts[i].begun && accounts[i].ended && accounts[i].bytes == message->bytes)) {
            lost++;
            continue;
        }
        if (accounts[i].begun != mine || accounts[i].ended != mine || accounts[i].bytes != (mine ? message->bytes : 0))
            check_fail("message %d of pattern %d: expected %d begin, %d end, %zu bytes, got %d, %d, %lu", i, message->pattern, mine,
                       mine, mine ? message->bytes : 0, accounts[i].begun, accounts[i].ended, accounts[i].bytes);
    }
    check_true("pieces that are missing are counted as dropped", lost <= seen_all_dropped());
    free(accounts);
}

static uint64_t operation_of(const struct seen *seen) { return seen->data.operation.operation; }

// Its place in `all`; `count` if it is not there.
static int find_operation(struct seen *const *all, int count, uint64_t operation) {
    int place = 0;
    while (place < count && operation_of(all[place]) != operation)
        place++;
    return place;
}

// Each operation started once, and then completed once, with success and with the same memory.
static int judge_operations(int started, int complete) {
    int waiting = 0, pairs = 0;
    struct seen **open = check_alloc(((size_t)seen_count(&tool) + 1) * sizeof *open);
    for (int i = 0; i < seen_count(&tool); i++) {
        struct seen *seen = &tool.all[i];
        if (seen->kind != started && seen->kind != complete)
            continue;
        if (seen->kind == complete) {
            const struct operation *operation = &seen->data.operation;
            check_int("status", 0, complete == ATOMIC_COMPLETE ? seen->data.atomic.status : operation->status);
        }
        int place = find_operation(open, waiting, operation_of(seen));
        if (place == waiting) {
            check_true("it was started before it was complete", seen->kind == started || threads > 1);
            open[waiting++] = seen;
            continue;
        }
        size_t same = started == ATOMIC_STARTED ? offsetof(struct atomic, status) : offsetof(struct operation, status);
        check_true("one is started, the other complete", open[place]->kind != seen->kind);
        check_true("the same memory, peer and size", memcmp(&open[place]->data, &seen->data, same) == 0);
        open[place] = open[--waiting];
        pairs++;
    }
    check_true("operations that were not completed are counted as dropped", waiting <= seen_all_dropped());
    free(open);
    return pairs;
}

static void judge_connections(void) {
    int peers = 0;
    for (int i = 0; i < seen_count(&tool); i++) {
        const struct connection *seen = &tool.all[i].data.connection;
        if (tool.all[i].kind != CONNECTED)
            continue;
        check_true("a peer of the job", seen->peer < (unsigned)check.size && (int)seen->peer != check.rank);
        check_true("queue pairs", seen->queue_pair != 0 && seen->remote_queue_pair != 0);
        peers++;
    }
    check_true("connections to all peers", peers >= check.size - 1);
}

// By the host's clock each operation started before it completed, as far as an adapter's time is known on that clock.
static void judge_host_times(int started, int complete) {
    for (int i = 0; i < seen_count(&tool); i++) {
        const struct seen *end = &tool.all[i];
        if (end->kind != complete)
            continue;
        MPI_Count host = 0, error = 0;
        check_int("ibex_source_to_host", MPI_SUCCESS, ibex_source_to_host(end->source, end->timestamp, &host, &error));
        int begin = i;
        while (begin-- > 0 && (tool.all[begin].kind != started || operation_of(&tool.all[begin]) != operation_of(end)))
            ;
        if (begin >= 0 && tool.all[begin].timestamp > host + error)
            check_fail("an operation that was started at %lld: expected it to be complete after that, got %lld, within %lld",
                       (long long)tool.all[begin].timestamp, (long long)host, (long long)error);
    }
}

// Timestamps in the order of delivery, none in the future. Returns how many events there are.
static int judge_source(int index, const struct source *source, double elapsed) {
    MPI_Count last = 0, first = 0, now = 0;
    int events = 0;
    for (int i = 0; i < seen_count(&tool); i++) {
        const struct seen *seen = &tool.all[i];
        if (seen->source != index)
            continue;
        if (seen->timestamp < last)
            check_fail("timestamps of %s: expected at least %lld, got %lld", source->name, (long long)last,
                       (long long)seen->timestamp);
        last = seen->timestamp;
        first = events++ ? first : last;
    }
    check_int("an ordered source", MPI_T_SOURCE_ORDERED, source->order);
    if (!events)
        return 0;
    check_int("MPI_T_source_get_timestamp", MPI_SUCCESS, MPI_T_source_get_timestamp(index, &now));
    check_true("the source's clock is past its last event", now >= last);
    double seconds = (double)(last - first) / (double)source->rate;
    if (seconds > elapsed * 1.01 + 0.01)
        check_fail("seconds between first and last event of %s: expected at most %f, got %f", source->name, elapsed, seconds);
    return events;
}

static void judge_sources(const char *adapter, double elapsed) {
    int sources = 0, of_adapter = 0, of_any = 0;
    check_int("MPI_T_source_get_num", MPI_SUCCESS, MPI_T_source_get_num(&sources));
    for (int index = 0; index < sources; index++) {
        struct source source = seen_source(index);
        int events = judge_source(index, &source, elapsed);
        of_adapter += adapter && strncmp(source.name, adapter, strlen(adapter)) == 0 ? events : 0;
        of_any += strncmp(source.name, "host:", 5) == 0 ? 0 : events;
    }
    if (adapter && strcmp(adapter, "none") == 0)
        check_int("events by an adapter's clock", 0, of_any);
    else
        check_true("something was completed", !adapter || of_adapter > 0);
}

static void start(int *argc, char ***argv) {
    listen_must(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &(int){0}), "MPI_T");
    seen_listen(&tool, MOST_EVENTS, (1u << KINDS) - 1, MPI_INFO_NULL);
    check_start_with(threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, argc, argv, 2);
    counter_open(&seen_dropped, "btl_ibex_events_dropped");
    comms[0] = MPI_COMM_WORLD;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -check.rank, &comms[COMMS - 1]));
}

static void run(void) {
    static unsigned char memory[WINDOW_BYTES] __attribute__((aligned(8)));
    int mine = 0;
    for (int i = 0; i < plan.messages; i++)
        mine += plan.message[i].from == check.rank || plan.message[i].to == check.rank;
    if (one_sided) {
        MPI_OK(MPI_Win_create(memory, WINDOW_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
        MPI_OK(MPI_Win_lock_all(0, window));
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    check_in_threads(threads, run_patterns);
    if (one_sided) {
        MPI_OK(MPI_Win_unlock_all(window));
        MPI_OK(MPI_Win_free(&window));
    }
    wait_for_ends(mine);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv) {
    const char *adapter, *trace;
    plan.seed = (uint64_t)check_number(argc, argv, "--seed", 1, 1 << 30);
    plan.patterns = check_number(argc, argv, "--patterns", 0, 1 << 20);
    threads = check_number(argc, argv, "--threads", 1, CHECK_THREADS);
    adapter = check_option(argc, argv, "--adapter");
    trace = check_option(argc, argv, "--trace");
    // Only emulated adapters certainly have all kinds; another test has operations of several threads.
    one_sided = trace && threads == 1;
    long began = check_nanoseconds(CLOCK_MONOTONIC); // connections made in MPI_Init are seen, too
    start(&argc, &argv);
    check_no_more(argc);
    plan.patterns = plan.patterns ? plan.patterns : scaled(300, 10);
    make_plan();
    if (check.rank == 0)
        printf("# seed %lu: %d patterns, %d messages, %d one-sided operations\n", plan.seed, plan.patterns, plan.messages,
               one_sided ? plan.operations : 0);
    run();

    // The judging communicates, so listening ends first.
    seen_stop(&tool);
    double elapsed = (double)(check_nanoseconds(CLOCK_MONOTONIC) - began) / 1e9;
    check_case("no event is lost here");
    check_true("room for all events", atomic_load(&tool.count) < MOST_EVENTS);
    uint32_t contexts[COMMS] = {0};
    for (int i = 0; i < seen_count(&tool); i++) {
        int index = tool.all[i].data.transfer.tag - FIRST_TAG;
        if (tool.all[i].kind <= END && index >= 0 && index < plan.messages)
            contexts[plan.message[index].comm] = tool.all[i].data.transfer.context;
    }
    check_case("each message begins and ends once with all its bytes in between");
    check_true("communicators differ", contexts[0] != contexts[1] && contexts[1] != contexts[2] && contexts[0] != contexts[2]);
    judge_transfers(contexts);
    check_case("each put, get and atomic operation is started and completed once");
    int pairs = judge_operations(PUT_STARTED, PUT_COMPLETE) + judge_operations(GET_STARTED, GET_COMPLETE);
    check_true("some of them", !one_sided || pairs > 0);
    pairs = judge_operations(ATOMIC_STARTED, ATOMIC_COMPLETE);
    check_true("some atomic ones", !one_sided || pairs > 0);
    check_case("connections are shown");
    judge_connections();
    check_case("timestamps are in order on each source");
    judge_sources(adapter, elapsed);
    check_case("operations begin before they end, on the host's clock");
    judge_host_times(PUT_STARTED, PUT_COMPLETE);
    judge_host_times(GET_STARTED, GET_COMPLETE);
    judge_host_times(ATOMIC_STARTED, ATOMIC_COMPLETE);
    if (trace) {
        check_case("the events of the adapters match what they executed and its timestamps");
        trace_judge(&tool, threads == 1 && strcmp(trace, "narrow") != 0);
    }
    for (int i = 1; i < COMMS; i++)
        MPI_OK(MPI_Comm_free(&comms[i]));
    return check_finish();
}
