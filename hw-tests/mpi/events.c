// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What ibex shows of a seeded random exchange, compared with what was exchanged: for each message one begin and one end
// on each side, in that order, continues between them, and bytes that add up; one-sided operations that complete once;
// timestamps in order on every source. Registers through the events of MPI_T, before MPI_Init. Needs -libex.
//
// usage: events [--seed S] [--adapter NAME]     NAME: what arrives is stamped by sources whose names begin so
#include "check.h"
#include "ibex_mpi_t.h"

enum { FIRST_TAG = 1000, BATCH = 12, MOST_EVENTS = 1 << 18, OB1_HEADER = 56 };

// Elements of btl_ibex_xfer_*, as docs/events.md lays them out.
struct transfer {
    uint64_t request, message, offset, bytes, total;
    uint32_t context;
    int32_t source, tag;
    uint32_t sequence, direction, peer;
};

// Of btl_ibex_put_*, get_*.
struct operation {
    uint64_t operation, local, remote, bytes;
    uint32_t peer, status;
};

// Of btl_ibex_connection_established.
struct connection {
    uint32_t peer, port, queue_pair, remote_queue_pair;
};

enum kind { BEGIN, CONTINUE, END, PUT_STARTED, PUT_COMPLETE, GET_STARTED, GET_COMPLETE, EAGER, RENDEZVOUS, CONNECTED, KINDS };
static const char *const names[KINDS] = {
    "btl_ibex_xfer_begin",    "btl_ibex_xfer_continue", "btl_ibex_xfer_end",     "btl_ibex_put_started",
    "btl_ibex_put_complete",  "btl_ibex_get_started",   "btl_ibex_get_complete", "btl_ibex_eager_chosen",
    "btl_ibex_rendezvous_chosen", "btl_ibex_connection_established",
};

struct seen {
    int kind, source;
    MPI_Count timestamp;
    union {
        struct transfer transfer;
        struct operation operation;
        struct connection connection;
        unsigned char bytes[96];
    } data;
};

static struct seen *all;
static atomic_int count;
static MPI_T_event_registration registrations[KINDS];

// A message of the exchange.
struct message {
    int from, to, dup;
    size_t bytes;
    bool synchronous, gaps;
};

static uint64_t state;

static uint64_t random_number(void) { return pattern_word(state++, 0); }

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user) {
    (void)registration, (void)safety;
    int place = atomic_fetch_add(&count, 1);
    if (place >= MOST_EVENTS)
        return;
    struct seen *seen = &all[place];
    seen->kind = (int)(intptr_t)user;
    MPI_T_event_copy(instance, &seen->data);
    MPI_T_event_get_timestamp(instance, &seen->timestamp);
    MPI_T_event_get_source(instance, &seen->source);
}

static void listen(void) {
    int provided;
    all = check_alloc(MOST_EVENTS * sizeof *all);
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
        abort();
    for (intptr_t kind = 0; kind < KINDS; kind++) {
        int index, code = MPI_T_event_get_index(names[kind], &index);
        if (code == MPI_SUCCESS)
            code = MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &registrations[kind]);
        if (code == MPI_SUCCESS)
            code = MPI_T_event_register_callback(registrations[kind], MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL,
                                                 (void *)kind, on_event);
        if (code != MPI_SUCCESS) {
            fprintf(stderr, "%s cannot be listened to: %d\n", names[kind], code);
            exit(1);
        }
    }
}

// Sizes about the limits of the protocols, small ones most.
static size_t random_size(void) {
    static const size_t about[] = {0, 8, 100, 256, 4000, 12 << 10, 32 << 10, 64 << 10, 300000, 1 << 20, 3 << 20};
    uint64_t draw = random_number();
    size_t limit = sizeof about / sizeof *about;
    size_t base = about[draw % 4 == 0 ? draw / 4 % limit : draw / 4 % 6];
    size_t away = random_number() % 129;
    return base + away > 64 ? base + away - 64 : base;
}

static struct message *plan(int messages) {
    struct message *planned = check_alloc((size_t)messages * sizeof *planned);
    for (int i = 0; i < messages; i++) {
        struct message *message = &planned[i];
        message->from = (int)(random_number() % (unsigned)check.size);
        message->to = (int)((unsigned)message->from + 1 + random_number() % (unsigned)(check.size - 1)) % check.size;
        message->dup = (int)(random_number() % 2);
        message->synchronous = random_number() % 5 == 0;
        message->gaps = random_number() % 6 == 0;
        message->bytes = random_size() & ~(size_t)(message->gaps ? 15 : 0);
    }
    return planned;
}

// Blocks of 16 bytes, 32 apart: no contiguous memory for the adapter to read.
static MPI_Datatype with_gaps(size_t bytes) {
    MPI_Datatype type;
    MPI_OK(MPI_Type_vector((int)(bytes / 16), 16, 32, MPI_BYTE, &type));
    MPI_OK(MPI_Type_commit(&type));
    return type;
}

static void exchange(const struct message *planned, int messages, MPI_Comm dup) {
    for (int first = 0; first < messages; first += BATCH) {
        MPI_Request requests[BATCH];
        void *buffers[BATCH];
        int under_way = 0;
        for (int i = first; i < messages && i < first + BATCH; i++) {
            const struct message *message = &planned[i];
            MPI_Comm comm = message->dup ? dup : MPI_COMM_WORLD;
            if (check.rank != message->from && check.rank != message->to)
                continue;
            unsigned char *buffer = buffers[under_way] = check_alloc(2 * message->bytes + 64);
            bool gaps = message->gaps && message->bytes > 0;
            MPI_Datatype type = gaps ? with_gaps(message->bytes) : MPI_BYTE;
            int elements = gaps ? 1 : (int)message->bytes;
            if (check.rank == message->to) {
                MPI_OK(MPI_Irecv(buffer, elements, type, message->from, FIRST_TAG + i, comm, &requests[under_way]));
            } else {
                pattern_fill(buffer, 2 * message->bytes, (uint64_t)i);
                int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) =
                    message->synchronous ? MPI_Issend : MPI_Isend;
                MPI_OK(send(buffer, elements, type, message->to, FIRST_TAG + i, comm, &requests[under_way]));
            }
            if (gaps)
                MPI_OK(MPI_Type_free(&type));
            under_way++;
        }
        MPI_OK(MPI_Waitall(under_way, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < under_way; i++)
            free(buffers[i]);
    }
}

// What arrived last waits for its turn among the adapter's events.
static int ends_seen(void) {
    int ends = 0, events = atomic_load(&count);
    for (int i = 0; i < events && i < MOST_EVENTS; i++)
        ends += all[i].kind == END && all[i].data.transfer.tag >= FIRST_TAG;
    return ends;
}

static void wait_for_ends(int expected) {
    double until = MPI_Wtime() + 20;
    while (ends_seen() < expected && MPI_Wtime() < until) {
        int flag;
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, FIRST_TAG - 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    }
}

// How a message was seen by this rank, so far.
struct account {
    int begun, ended;
    uint64_t bytes, message;
};

static void judge_transfers(const struct message *planned, int messages, const uint32_t contexts[2]) {
    struct account *accounts = check_alloc((size_t)messages * sizeof *accounts);
    memset(accounts, 0, (size_t)messages * sizeof *accounts);
    for (int i = 0; i < atomic_load(&count); i++) {
        const struct transfer *seen = &all[i].data.transfer;
        if (all[i].kind > END || seen->tag < FIRST_TAG)
            continue;
        int index = seen->tag - FIRST_TAG;
        if (index >= messages) {
            check_fail("a message with tag %d: expected none, got one", seen->tag);
            continue;
        }
        const struct message *message = &planned[index];
        struct account *account = &accounts[index];
        bool received = check.rank == message->to;
        check_int("direction", received, seen->direction);
        check_int("rank of the sender", message->from, seen->source);
        check_int("rank of the other", received ? message->from : message->to, seen->peer);
        check_int("context", contexts[message->dup], seen->context);
        check_int("bytes of the message", (long long)message->bytes, (long long)seen->total);
        check_true("an offset within the message", seen->offset + seen->bytes <= seen->total);
        check_int("begins before", all[i].kind != BEGIN, account->begun);
        check_int("ends before", 0, account->ended);
        if (account->begun)
            check_int("number of the message", (long long)account->message, (long long)seen->message);
        account->begun += all[i].kind == BEGIN;
        account->ended += all[i].kind == END;
        account->bytes += seen->bytes;
        account->message = seen->message;
    }
    for (int i = 0; i < messages; i++) {
        int mine = planned[i].from == check.rank || planned[i].to == check.rank;
        check_int("begins of a message", mine, accounts[i].begun);
        check_int("ends of a message", mine, accounts[i].ended);
        check_int("bytes seen of a message", mine ? (long long)planned[i].bytes : 0, (long long)accounts[i].bytes);
    }
    free(accounts);
}

// Started once, then complete once, with success.
static int judge_operations(int started, int complete) {
    int under_way = 0, pairs = 0, events = atomic_load(&count);
    struct operation *open = check_alloc((size_t)events * sizeof *open);
    for (int i = 0; i < events; i++) {
        const struct operation *seen = &all[i].data.operation;
        if (all[i].kind == started) {
            open[under_way++] = *seen;
        } else if (all[i].kind == complete) {
            int place = 0;
            while (place < under_way && open[place].operation != seen->operation)
                place++;
            check_true("it was started", place < under_way);
            check_int("status", 0, seen->status);
            if (place == under_way)
                continue;
            check_true("the same memory", open[place].local == seen->local && open[place].remote == seen->remote &&
                                              open[place].bytes == seen->bytes && open[place].peer == seen->peer);
            open[place] = open[--under_way];
            pairs++;
        }
    }
    check_int("operations that were not completed", 0, under_way);
    free(open);
    return pairs;
}

static void judge_choices(const struct message *planned, int messages) {
    int sent = 0, chosen = 0;
    for (int i = 0; i < messages; i++)
        sent += planned[i].from == check.rank;
    for (int i = 0; i < atomic_load(&count); i++) {
        struct {
            uint64_t bytes;
            uint32_t context;
            int32_t tag;
        } seen;
        memcpy(&seen, &all[i].data, sizeof seen);
        if ((all[i].kind != EAGER && all[i].kind != RENDEZVOUS) || seen.tag < FIRST_TAG)
            continue;
        const struct message *message = &planned[seen.tag - FIRST_TAG];
        check_int("bytes", (long long)message->bytes, (long long)seen.bytes);
        check_int("a synchronous or long message by rendezvous", message->synchronous || message->bytes > (12 << 10) - OB1_HEADER,
                  all[i].kind == RENDEZVOUS);
        chosen++;
    }
    check_int("choices", sent, chosen);
}

static void judge_connections(void) {
    int peers = 0;
    for (int i = 0; i < atomic_load(&count); i++) {
        const struct connection *seen = &all[i].data.connection;
        if (all[i].kind != CONNECTED)
            continue;
        check_true("a peer of the job", seen->peer < (unsigned)check.size && (int)seen->peer != check.rank);
        check_true("queue pairs", seen->queue_pair != 0 && seen->remote_queue_pair != 0);
        peers++;
    }
    check_true("connections to all peers", peers >= check.size - 1);
}

static void source_name(int source, char name[64]) {
    int room = 64, more = 0;
    MPI_T_source_order order;
    MPI_Count rate, most;
    MPI_T_source_get_info(source, name, &room, NULL, &more, &order, &rate, &most, NULL);
}

// Timestamps in the order of delivery, none in the future; what was received is the adapter's.
static void judge_sources(const char *adapter, double elapsed) {
    int sources = 0, of_adapter = 0;
    check_int("MPI_T_source_get_num", MPI_SUCCESS, MPI_T_source_get_num(&sources));
    for (int source = 0; source < sources; source++) {
        MPI_Count last = 0, first = 0, now = 0, rate = 0, most = 0;
        MPI_T_source_order order;
        char name[64], text[256];
        int room = sizeof name, more = sizeof text, events = 0;
        check_int("MPI_T_source_get_info", MPI_SUCCESS,
                  MPI_T_source_get_info(source, name, &room, text, &more, &order, &rate, &most, NULL));
        for (int i = 0; i < atomic_load(&count); i++) {
            if (all[i].source != source)
                continue;
            if (all[i].timestamp < last)
                check_fail("timestamps of %s: expected at least %lld, got %lld", name, (long long)last,
                           (long long)all[i].timestamp);
            last = all[i].timestamp;
            first = events++ ? first : last;
        }
        check_int("an ordered source", MPI_T_SOURCE_ORDERED, order);
        if (!events)
            continue;
        check_int("MPI_T_source_get_timestamp", MPI_SUCCESS, MPI_T_source_get_timestamp(source, &now));
        check_true("the source's clock is past its last event", now >= last);
        double seconds = (double)(last - first) / (double)rate;
        if (seconds > elapsed * 1.01 + 0.01)
            check_fail("seconds between first and last event of %s: expected at most %f, got %f", name, elapsed, seconds);
        of_adapter += adapter && strncmp(name, adapter, strlen(adapter)) == 0 ? events : 0;
    }
    if (!adapter)
        return;
    int received = 0;
    for (int i = 0; i < atomic_load(&count); i++) {
        char name[64];
        if (all[i].kind != GET_COMPLETE && (all[i].kind != END || !all[i].data.transfer.direction))
            continue;
        source_name(all[i].source, name);
        if (strncmp(name, adapter, strlen(adapter)) != 0)
            check_fail("source of what was completed: expected %s, got %s", adapter, name);
        received++;
    }
    check_true("something was completed", received > 0 && of_adapter > 0);
}

int main(int argc, char **argv) {
    const char *adapter = NULL;
    uint64_t seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--adapter") == 0)
            adapter = argv[i + 1];
    }
    listen();
    check_start(&argc, &argv, 2);
    double start = MPI_Wtime();
    state = seed << 32;
    MPI_Comm dup;
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    int messages = scaled(2000, 40);
    struct message *planned = plan(messages);
    int mine = 0;
    for (int i = 0; i < messages; i++)
        mine += planned[i].from == check.rank || planned[i].to == check.rank;
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    exchange(planned, messages, dup);
    wait_for_ends(mine);
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));

    // The judging below communicates, so what is judged is over.
    for (int kind = 0; kind < KINDS; kind++)
        MPI_T_event_handle_free(registrations[kind], NULL, NULL);
    double elapsed = MPI_Wtime() - start + 1; // what was connected in MPI_Init was seen, too
    check_case("no event is lost here");
    check_true("room for all events", atomic_load(&count) < MOST_EVENTS);
    check_end_case();
    if (check.failed)
        return check_finish();

    uint32_t contexts[2] = {0, 0};
    for (int i = 0; i < atomic_load(&count); i++)
        if (all[i].kind <= END && all[i].data.transfer.tag >= FIRST_TAG)
            contexts[planned[all[i].data.transfer.tag - FIRST_TAG].dup] = all[i].data.transfer.context;
    check_case("each message begins and ends once with all its bytes in between");
    check_true("communicators differ", contexts[0] != contexts[1]);
    judge_transfers(planned, messages, contexts);
    check_end_case();
    check_case("each put and get is started and completed once");
    int pairs = judge_operations(PUT_STARTED, PUT_COMPLETE) + judge_operations(GET_STARTED, GET_COMPLETE);
    check_true("some of them", pairs > 0);
    check_end_case();
    check_case("how each message goes is said");
    judge_choices(planned, messages);
    check_end_case();
    check_case("connections are shown");
    judge_connections();
    check_end_case();
    check_case("timestamps are in order on each source");
    judge_sources(adapter, elapsed);
    check_end_case();
    MPI_OK(MPI_Comm_free(&dup));
    free(planned);
    return check_finish();
}
