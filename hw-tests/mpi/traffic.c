// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Seeded random traffic over several communicators at once (the world, a duplicate, halves, an intercommunicator), by
// one thread, or by several with communicators of their own. The message of each receive is compared with the one that
// MPI's rules demand (traffic_plan.h). Runs with 1 or more ranks: traffic [--seed S] [--messages N] [--threads T]
#include "traffic_plan.h"

enum { COMMUNICATORS = 4, MOST_THREADS = 8, MOST_REQUESTS = COMMUNICATORS * MOST_MESSAGES, ROUNDS = 20, UNSENT_TAG = 99 };

struct channel {
    MPI_Comm comm;
    int participants, first, me;
    uint64_t seed;
    struct plan plan;
    struct receives receives;
    MPI_Status statuses[MOST_MESSAGES];
    unsigned char *arenas[MOST_MESSAGES];
};

struct lane {
    int number;
    struct random random;
    int most; // messages of a communicator in a round
    int channels;
    struct channel channel[COMMUNICATORS];
    // Requests under way: sends, and posted receives with the places of their statuses.
    int count;
    MPI_Request requests[2 * MOST_REQUESTS];
    MPI_Status *statuses[2 * MOST_REQUESTS];
    unsigned char *sent[2 * MOST_REQUESTS];
    long exchanged;
};

static struct lane *lanes; // one for each thread

static MPI_Datatype block; // BLOCK bytes, and a gap up to STRIDE

static size_t room(int bytes, bool has_gaps) { return has_gaps ? (size_t)(bytes / BLOCK) * STRIDE : (size_t)bytes; }

static void add_request(struct lane *lane, MPI_Request request, MPI_Status *status, unsigned char *sent) {
    lane->requests[lane->count] = request;
    lane->statuses[lane->count] = status;
    lane->sent[lane->count++] = sent;
}

static int rank_of(const struct channel *channel, int participant) {
    return participant < channel->first ? participant : participant - channel->first;
}

static int participant_of(const struct channel *channel, int rank) {
    return channel->first > 0 && channel->me < channel->first ? channel->first + rank : rank;
}

static unsigned char *filled(const struct message *message) {
    unsigned char *at = check_alloc(room(message->bytes, message->has_gaps));
    if (!message->has_gaps) {
        pattern_fill(at, (size_t)message->bytes, message->seed);
        return at;
    }
    for (int i = 0; i < message->bytes; i++)
        at[i / BLOCK * STRIDE + i % BLOCK] = pattern_byte(message->seed, (size_t)i);
    return at;
}

static void start_send(struct lane *lane, struct channel *channel, const struct message *message) {
    typedef int send_call(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    static send_call *const at_once[MODES] = {MPI_Isend, MPI_Issend, MPI_Ibsend};
    static send_call *const persistent[MODES] = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init};
    unsigned char *from = filled(message);
    MPI_Request request;
    MPI_Datatype type = message->has_gaps ? block : MPI_BYTE;
    int count = message->has_gaps ? message->bytes / BLOCK : message->bytes;
    send_call *call = (message->is_persistent ? persistent : at_once)[message->mode];
    MPI_OK(call(from, count, type, rank_of(channel, message->to), message->tag, channel->comm, &request));
    if (message->is_persistent)
        MPI_OK(MPI_Start(&request));
    add_request(lane, request, NULL, from);
    lane->exchanged++;
}

static void start_receive(struct lane *lane, struct channel *channel, int index) {
    const struct receive *receive = &channel->receives.each[index];
    int source = receive->source == ANY ? MPI_ANY_SOURCE : rank_of(channel, receive->source);
    int tag = receive->tag == ANY ? MPI_ANY_TAG : receive->tag, count = receive->capacity;
    MPI_Datatype type = receive->has_gaps ? block : MPI_BYTE;
    MPI_Status *status = &channel->statuses[index];
    MPI_Request request;
    size_t bytes = room(receive->capacity, receive->has_gaps);
    channel->arenas[index] = check_alloc(guarded_bytes(bytes));
    unsigned char *to = guarded_ready(channel->arenas[index], bytes, (size_t)index);
    if (receive->has_gaps)
        count /= BLOCK;
    if (receive->way == PROBED) {
        MPI_OK(MPI_Probe(source, tag, channel->comm, status));
        MPI_OK(MPI_Recv(to, count, type, status->MPI_SOURCE, status->MPI_TAG, channel->comm, status));
    } else if (receive->way == MATCHED) {
        MPI_Message message;
        MPI_OK(MPI_Mprobe(source, tag, channel->comm, &message, status));
        MPI_OK(MPI_Mrecv(to, count, type, &message, status));
    } else if (receive->way == PERSISTENT) {
        MPI_OK(MPI_Recv_init(to, count, type, source, tag, channel->comm, &request));
        MPI_OK(MPI_Start(&request));
        add_request(lane, request, status, NULL);
    } else {
        MPI_OK(MPI_Irecv(to, count, type, source, tag, channel->comm, &request));
        add_request(lane, request, status, NULL);
    }
}

// Posts a receive without a message among the others, and cancels it.
static void cancel_one(struct channel *channel) {
    int word, cancelled = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_OK(MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, UNSENT_TAG, channel->comm, &request));
    MPI_OK(MPI_Cancel(&request));
    MPI_OK(MPI_Wait(&request, &status));
    MPI_OK(MPI_Test_cancelled(&status, &cancelled));
    check_true("a receive that nothing was sent to is cancelled", cancelled);
}

static void compare(struct channel *channel, int index) {
    const struct receive *receive = &channel->receives.each[index];
    const MPI_Status *status = &channel->statuses[index];
    int from = participant_of(channel, status->MPI_SOURCE);
    size_t all = room(receive->capacity, receive->has_gaps);
    unsigned char *at = channel->arenas[index] + CHECK_GUARD_BYTES + index % 64;
    const struct message *message = resolve(&channel->plan, channel->me, receive, from);
    if (!message) {
        check_fail("receive %d of source %d, tag %d: expected one of its messages, got one of rank %d under tag %d", index,
                   receive->source, receive->tag, status->MPI_SOURCE, status->MPI_TAG);
        return;
    }
    check_status(status, status->MPI_SOURCE, message->tag, message->bytes);
    size_t wrong = (size_t)message->bytes;
    if (receive->has_gaps) {
        for (size_t i = 0; i < all; i++) {
            size_t byte = i / STRIDE * BLOCK + i % STRIDE;
            bool is_data = i % STRIDE < BLOCK && byte < (size_t)message->bytes;
            if (at[i] != (is_data ? pattern_byte(message->seed, byte) : 0x5a) && wrong == (size_t)message->bytes)
                wrong = byte;
        }
    } else {
        wrong = pattern_mismatch(at, (size_t)message->bytes, message->seed);
        for (size_t i = (size_t)message->bytes; i < all; i++)
            check_true("a byte behind the message is as it was", at[i] == 0x5a);
    }
    if (wrong < (size_t)message->bytes)
        check_fail("receive %d of source %d, tag %d, byte %zu of %d from rank %d: expected its message, got other bytes",
                   index, receive->source, receive->tag, wrong, message->bytes, status->MPI_SOURCE);
    guarded_check("receive", at, all);
}

// Starts all sends of this process, with the receives between that are posted first.
static void start_sends(struct lane *lane, int posted[]) {
    int next[COMMUNICATORS] = {0}, left = 0;
    for (int i = 0; i < lane->channels; i++)
        left += lane->channel[i].plan.count;
    while (left > 0) {
        int of = random_below(&lane->random, lane->channels);
        struct channel *channel = &lane->channel[of];
        struct receives *receives = &channel->receives;
        bool is_exact = posted[of] < receives->count && receives->each[posted[of]].class == EXACT;
        if (is_exact && receives->each[posted[of]].way < PROBED && random_below(&lane->random, 2))
            start_receive(lane, channel, posted[of]++);
        if (next[of] == channel->plan.count)
            continue;
        const struct message *message = &channel->plan.messages[next[of]++];
        if (message->from == channel->me)
            start_send(lane, channel, message);
        left--;
    }
}

static void complete(struct lane *lane) {
    static MPI_Status ignored[MOST_THREADS][2 * MOST_REQUESTS];
    MPI_Status *statuses = ignored[lane->number];
    MPI_Request keep[2 * MOST_REQUESTS];
    int done = 0, how = random_below(&lane->random, 4), indices[2 * MOST_REQUESTS];
    memcpy(keep, lane->requests, sizeof keep);
    if (how == 0) {
        MPI_OK(MPI_Waitall(lane->count, lane->requests, statuses));
        for (int i = 0; i < lane->count; i++)
            if (lane->statuses[i])
                *lane->statuses[i] = statuses[i];
        done = lane->count;
    }
    while (done < lane->count) {
        int some = 1;
        if (how == 1)
            MPI_OK(MPI_Waitany(lane->count, lane->requests, indices, statuses));
        else if (how == 2)
            MPI_OK(MPI_Waitsome(lane->count, lane->requests, &some, indices, statuses));
        else
            MPI_OK(MPI_Testsome(lane->count, lane->requests, &some, indices, statuses));
        for (int i = 0; i < some; i++)
            if (lane->statuses[indices[i]])
                *lane->statuses[indices[i]] = statuses[i];
        done += some;
    }
    for (int i = 0; i < lane->count; i++) {
        // The remaining requests are persistent.
        if (lane->requests[i] != MPI_REQUEST_NULL)
            MPI_OK(MPI_Request_free(&keep[i]));
        free(lane->sent[i]);
    }
    lane->count = 0;
}

static void round_of(struct lane *lane, int number) {
    int posted[COMMUNICATORS] = {0};
    for (int i = 0; i < lane->channels; i++) {
        struct channel *channel = &lane->channel[i];
        uint64_t seed = pattern_word(channel->seed, (uint64_t)number);
        make_plan(&channel->plan, seed, channel->participants, channel->first, lane->most);
        make_receives(&channel->receives, &channel->plan, channel->me, &lane->random);
    }
    start_sends(lane, posted);
    // All processes begin all their sends before any of them waits here, so that each probe finds its message.
    for (int i = 0; i < lane->channels; i++) {
        if (random_below(&lane->random, 4) == 0)
            cancel_one(&lane->channel[i]);
        while (posted[i] < lane->channel[i].receives.count)
            start_receive(lane, &lane->channel[i], posted[i]++);
    }
    complete(lane);
    for (int i = 0; i < lane->channels; i++) {
        struct channel *channel = &lane->channel[i];
        for (int receive = 0; receive < channel->receives.count; receive++) {
            compare(channel, receive);
            free(channel->arenas[receive]);
        }
        // Without it a receive with any source would take a message of the next round.
        MPI_OK(MPI_Barrier(channel->comm));
    }
}

static void *run_lane(void *number) {
    for (int i = 0; i < ROUNDS; i++)
        round_of(&lanes[(intptr_t)number], i);
    return NULL;
}

static void open_channel(struct lane *lane, MPI_Comm comm, uint64_t seed) {
    struct channel *channel = &lane->channel[lane->channels++];
    int is_inter, own, remote = 0;
    MPI_OK(MPI_Comm_rank(comm, &channel->me));
    MPI_OK(MPI_Comm_size(comm, &own));
    MPI_OK(MPI_Comm_test_inter(comm, &is_inter));
    channel->comm = comm;
    channel->seed = seed;
    channel->first = 0;
    channel->participants = own;
    if (!is_inter)
        return;
    // The group of the even ranks is the first.
    bool is_first = check.rank % 2 == 0;
    MPI_OK(MPI_Comm_remote_size(comm, &remote));
    channel->first = is_first ? own : remote;
    channel->participants = own + remote;
    channel->me += is_first ? 0 : channel->first;
}

static void open_lane(struct lane *lane, int number, uint64_t seed, int most) {
    MPI_Comm half, inter;
    uint64_t of_lane = pattern_word(seed, (uint64_t)number);
    memset(lane, 0, sizeof *lane);
    lane->number = number;
    lane->random.state = pattern_word(of_lane, (uint64_t)check.rank + 100);
    lane->most = most;
    open_channel(lane, check_dup(MPI_COMM_WORLD), of_lane + 1);
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, check.rank % 2, -check.rank, &half));
    open_channel(lane, half, of_lane + 2 + (uint64_t)(check.rank % 2));
    if (check.size < 2)
        return;
    // The leaders are the highest ranks of the halves, which are in reverse order.
    int leader = check.rank % 2 == (check.size - 1) % 2 ? check.size - 2 : check.size - 1;
    MPI_OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, leader, number, &inter));
    open_channel(lane, inter, of_lane + 4);
}

static void epoch(int threads, int seed, int most) {
    check_case("messages_of_%d_threads_by_seed_%d_are_matched_as_MPI_says", threads, seed);
    for (int i = 0; i < threads; i++)
        open_lane(&lanes[i], i, (uint64_t)seed, most);
    // The world itself, beside its duplicates.
    if (threads == 1)
        open_channel(&lanes[0], MPI_COMM_WORLD, (uint64_t)seed + 5);
    check_in_threads(threads, run_lane);
    for (int i = 0; i < threads; i++)
        for (int j = 0; j < lanes[i].channels; j++)
            if (lanes[i].channel[j].comm != MPI_COMM_WORLD)
                MPI_OK(MPI_Comm_free(&lanes[i].channel[j].comm));
}

int main(int argc, char **argv) {
    int seed = check_number(argc, argv, "--seed", 1, 1 << 30), threads = check_number(argc, argv, "--threads", 1, MOST_THREADS);
    check_start_with(threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &argc, &argv, 1);
    use_tags_of_mpi();
    int messages = check_number(argc, argv, "--messages", scaled(20000, 2000), 1 << 30);
    check_no_more(argc);
    if (check.size > MOST_PARTICIPANTS)
        check_refuse("traffic: at most %d ranks\n", MOST_PARTICIPANTS);
    lanes = calloc((size_t)threads, sizeof *lanes);
    size_t buffer_bytes = (size_t)64 << 20;
    void *buffer = check_alloc(buffer_bytes);
    MPI_OK(MPI_Buffer_attach(buffer, (int)buffer_bytes));
    block = check_block(BLOCK, STRIDE);
    for (long long done = 0; done < messages || check_again(); seed++) {
        long long here = 0, all = 0;
        epoch(threads, seed, 8 + seed % 3 * 40);
        for (int i = 0; i < threads; i++)
            here += lanes[i].exchanged;
        MPI_OK(MPI_Allreduce(&here, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
        done += all;
    }
    MPI_OK(MPI_Type_free(&block));
    MPI_OK(MPI_Buffer_detach(&buffer, &(int){0}));
    return check_finish();
}
