// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The messages of a round of random traffic on one communicator, and the receive that must get each of them: the
// reference with which traffic.c compares MPI. Every rank makes the same plan from the same seed. A participant is a
// process of the communicator; in an intercommunicator they are numbered group after group, and messages cross.
//
// Receives are posted class by class, the narrower before the wider (enum class). So each message finds a receive,
// whichever sender comes first, and MPI's rules leave only open which sender's message a receive from any source gets.
// resolve() takes that from the statuses, and predicts the rest.
#pragma once

#include "check.h"

enum { ANY = -1, MOST_MESSAGES = 96, MOST_PARTICIPANTS = 64, TAGS = 4, BLOCK = 7, STRIDE = 11 };

// Tags of all widths; the last is near the MPI's bound, for which Open MPI has 31 bits (use_tags_of_mpi).
static int tag_values[TAGS] = {0, 1, 70000, 0x7ffffff0};

static void use_tags_of_mpi(void) {
    int *bound, has_bound;
    MPI_OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &has_bound));
    if (has_bound && *bound < tag_values[TAGS - 1]) {
        tag_values[TAGS - 1] = *bound;
    }
}

enum mode { STANDARD, SYNCHRONOUS, BUFFERED, MODES };

struct message {
    int from, to; // numbers of participants
    int tag, bytes;
    enum mode mode;
    bool has_gaps, is_persistent; // at the sender
    uint64_t seed;                // seed of its pattern
    bool taken;                   // by a receive that resolve() has handled
};

struct plan {
    int count;
    struct message messages[MOST_MESSAGES]; // each sender sends its own in this order
};

// In the order in which they are posted, the narrowest first.
enum class { EXACT, OF_SOURCE, OF_TAG, OF_ALL };

enum way { POSTED, PERSISTENT, PROBED, MATCHED, WAYS };

struct receive {
    enum class class;
    enum way way;
    int source, tag; // a participant, a value of tag_values, or ANY
    int capacity;    // bytes
    bool has_gaps;
};

struct receives {
    int count;
    struct receive each[MOST_MESSAGES];
};

// Mostly short; sometimes around the limits of the protocols; with gaps always a whole number of blocks.
static inline int random_bytes(struct random *random, bool has_gaps) {
    static const int near[] = {0, 1, 8, 64, 256, 320, 4096, 12288, 16384, 32768, 65536, 262144};
    int bytes = random_below(random, 3) ? random_below(random, 600)
                                        : near[random_below(random, sizeof near / sizeof *near)] +
                                              random_below(random, 33);
    return has_gaps ? bytes - bytes % BLOCK : bytes;
}

// `first`: number of participants of the first group of an intercommunicator; 0 if there is one group.
static inline void make_plan(struct plan *plan, uint64_t seed, int participants, int first, int most) {
    struct random random = {seed};
    plan->count = random_below(&random, (most < MOST_MESSAGES ? most : MOST_MESSAGES) + 1);
    for (int i = 0; i < plan->count; i++) {
        struct message *message = &plan->messages[i];
        int from = random_below(&random, participants), to = random_below(&random, participants);
        if (first > 0)
            to = from < first ? first + to % (participants - first) : to % first;
        bool has_gaps = random_below(&random, 4) == 0;
        int bytes = random_bytes(&random, has_gaps);
        enum mode mode = (enum mode)random_below(&random, MODES);
        *message = (struct message){
            .from = from,
            .to = to,
            .tag = tag_values[random_below(&random, TAGS)],
            .bytes = bytes,
            .mode = mode == BUFFERED && bytes > 4096 ? STANDARD : mode,
            .has_gaps = has_gaps,
            .is_persistent = mode != BUFFERED && random_below(&random, 5) == 0,
            .seed = random_word(&random),
        };
    }
}

static inline bool fits(const struct receive *receive, const struct message *message) {
    return (receive->source == ANY || receive->source == message->from) &&
           (receive->tag == ANY || receive->tag == message->tag);
}

// The first message to `me` that no receive has taken and this one may get; else NULL.
static inline struct message *first_fitting(struct plan *plan, int me, const struct receive *receive) {
    for (int i = 0; i < plan->count; i++) {
        struct message *message = &plan->messages[i];
        if (message->to == me && !message->taken && fits(receive, message))
            return message;
    }
    return NULL;
}

static inline void take_none(struct plan *plan) {
    for (int i = 0; i < plan->count; i++)
        plan->messages[i].taken = false;
}

// Gives each receive room for its message, or for the longest one that it may get.
static inline void give_room(struct receives *receives, struct plan *plan, int me, struct random *random) {
    take_none(plan);
    for (int i = 0; i < receives->count; i++) {
        struct receive *receive = &receives->each[i];
        struct message *expected = receive->source == ANY ? NULL : first_fitting(plan, me, receive);
        int bytes = expected ? expected->bytes : 0;
        if (expected)
            expected->taken = true;
        for (int j = 0; !expected && j < plan->count; j++) {
            struct message *message = &plan->messages[j];
            if (message->to == me && fits(receive, message) && message->bytes > bytes)
                bytes = message->bytes;
        }
        bytes += random_below(random, 40);
        receive->capacity = bytes + (BLOCK - bytes % BLOCK) % BLOCK;
    }
    take_none(plan);
}

// As many receives as messages to `me`, in the order in which they are to be posted.
static inline void make_receives(struct receives *receives, struct plan *plan, int me, struct random *random) {
    int share = random_below(random, 5); // number of messages out of four that wider classes get
    receives->count = 0;
    take_none(plan);
    for (enum class class = EXACT; class <= OF_ALL; class ++) {
        int begin = receives->count;
        for (int i = 0; i < plan->count; i++) {
            struct message *message = &plan->messages[i];
            // If a message is taken already, this class leaves another one of the same source or tag.
            if (message->to != me || message->taken || (class != OF_ALL && random_below(random, 4) < share))
                continue;
            struct receive *receive = &receives->each[receives->count++];
            *receive = (struct receive){
                .class = class,
                .way = (enum way)random_below(random, WAYS),
                .source = class == EXACT || class == OF_SOURCE ? message->from : ANY,
                .tag = class == EXACT || class == OF_TAG ? message->tag : ANY,
                .has_gaps = random_below(random, 4) == 0,
            };
            // One message of that kind is gone; which one only matters if the source is known.
            first_fitting(plan, me, receive)->taken = true;
        }
        // Posted receives come first: a probe may have to wait for messages that this class cannot know.
        for (int i = begin; i < receives->count; i++)
            for (int j = i; j > begin && receives->each[j].way < receives->each[j - 1].way; j--) {
                struct receive swap = receives->each[j];
                receives->each[j] = receives->each[j - 1];
                receives->each[j - 1] = swap;
            }
    }
    give_room(receives, plan, me, random);
}

// The message that a receive must have got, by the sender that its status names; NULL if that sender has none for it.
// To be called once for each receive, in the order of posting.
static inline struct message *resolve(struct plan *plan, int me, const struct receive *receive, int source) {
    struct receive of_source = *receive;
    if (receive->source == ANY)
        of_source.source = source;
    struct message *message = of_source.source == source ? first_fitting(plan, me, &of_source) : NULL;
    if (message)
        message->taken = true;
    return message;
}
