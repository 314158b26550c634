// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Compares events with the requests that the emulated adapters executed (docs/softhca.md, "The trace"): each event with
// an adapter's stamp has a completion of this process with its time, kind and size; each executed operation has its
// event.
#pragma once

#include "seen.h"

// enum ibv_wc_opcode
enum { SEND = 0, RDMA_WRITE = 1, RDMA_READ = 2, COMP_SWAP = 3, FETCH_ADD = 4, RECV = 128 };

// Length of ibex's longest header, by which a message may exceed its data.
enum { MOST_OF_HEADER = 64 };

struct completion {
    char device[48];
    unsigned queue_pair, opcode, status;
    uint64_t bytes, ticks;
    bool matched;
};

static inline int trace_by_time(const void *left, const void *right) {
    const struct completion *a = left, *b = right;
    return (a->ticks > b->ticks) - (a->ticks < b->ticks);
}

// The completions of one device, sorted by time, by the queue pairs that events showed as connected.
static inline struct completion *trace_read(struct tool *tool, const char *device, int *count) {
    char path[512], line[256];
    const char *folder = getenv("SOFTHCA_FABRIC");
    snprintf(path, sizeof path, "%s/trace", folder ? folder : "");
    FILE *file = fopen(path, "r");
    *count = 0;
    if (!file) {
        check_fail("the trace %s: expected a file, got none (trace = true)", path);
        return NULL;
    }
    enum { NUMBERS = 1 << 24 };
    unsigned char *mine = check_alloc(NUMBERS / 8);
    for (int i = 0; i < seen_count(tool); i++)
        if (tool->all[i].kind == CONNECTED) {
            unsigned number = tool->all[i].data.connection.queue_pair % NUMBERS;
            mine[number / 8] |= (unsigned char)(1 << number % 8);
        }
    struct completion *all = NULL, one = {.matched = false};
    int room = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%47s %u %u %u %lu %lu", one.device, &one.queue_pair, &one.opcode, &one.status, &one.bytes,
                   &one.ticks) != 6) {
            check_fail("a line of the trace: expected six words, got %s", line);
            break;
        }
        unsigned number = one.queue_pair % NUMBERS;
        if (strcmp(one.device, device) != 0 || !(mine[number / 8] >> number % 8 & 1))
            continue;
        if (*count == room) {
            room = room ? 2 * room : 4096;
            all = realloc(all, (size_t)room * sizeof *all);
        }
        all[(*count)++] = one;
    }
    fclose(file);
    free(mine);
    if (all)
        qsort(all, (size_t)*count, sizeof *all, trace_by_time);
    return all;
}

static inline bool trace_is_of(const struct completion *completion, const struct seen *seen) {
    uint64_t bytes = completion->bytes;
    if (completion->status != 0)
        return false;
    switch (seen->kind) {
    case PUT_COMPLETE:
        return completion->opcode == RDMA_WRITE && bytes == seen->data.operation.bytes;
    case GET_COMPLETE:
        return completion->opcode == RDMA_READ && bytes == seen->data.operation.bytes;
    case ATOMIC_COMPLETE:
        return completion->opcode == (seen->data.atomic.kind ? COMP_SWAP : FETCH_ADD) && seen->data.atomic.bytes == 8;
    case BEGIN:
    case CONTINUE:
    case END: {
        const struct transfer *piece = &seen->data.transfer;
        // A message of one piece has all its bytes in its begin, and the same completion ends it.
        bool in_one = seen->kind == END && piece->bytes == 0;
        uint64_t carried = in_one ? piece->total : piece->bytes;
        if (completion->opcode == RDMA_READ)
            return bytes == carried;
        // For the sender of a read both come with the answer.
        if (!piece->direction && seen->kind == BEGIN)
            return completion->opcode == RECV && bytes <= MOST_OF_HEADER;
        if (!piece->direction)
            return seen->kind == END && (completion->opcode == SEND || bytes <= MOST_OF_HEADER);
        return completion->opcode == RECV && bytes >= carried && bytes - carried <= MOST_OF_HEADER;
    }
    case ARRIVED:
        return completion->opcode == RECV && bytes >= seen->data.arrival.bytes && bytes - seen->data.arrival.bytes <= MOST_OF_HEADER;
    default:
        return false;
    }
}

// Whether an event is the end of an operation, and so the only one of its completion.
static inline bool trace_is_operation(const struct seen *seen) {
    return seen->kind == PUT_COMPLETE || seen->kind == GET_COMPLETE || seen->kind == ATOMIC_COMPLETE;
}

// Marks the completion of an event, if there is one `away` from its timestamp. A message of one piece is three events
// of one completion.
static inline bool trace_match(struct completion *all, int count, const struct seen *seen, uint64_t away) {
    struct completion key = {.ticks = (uint64_t)seen->timestamp - away};
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (all[middle].ticks < key.ticks)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && all[low].ticks == key.ticks; low++) {
        bool operation = trace_is_operation(seen);
        if ((operation && all[low].matched) || !trace_is_of(&all[low], seen))
            continue;
        all[low].matched |= operation;
        return true;
    }
    return false;
}

static inline int trace_unmatched(struct completion *all, int count, struct tool *tool, int source, uint64_t away,
                                  const struct seen **first) {
    int unmatched = 0;
    for (int i = 0; i < count; i++)
        all[i].matched = false;
    for (int i = 0; i < seen_count(tool); i++)
        if (tool->all[i].source == source && !trace_match(all, count, &tool->all[i], away) && unmatched++ == 0)
            *first = &tool->all[i];
    return unmatched;
}

// Compares all events of one port's source; `excused`: how many operations may have the host's stamp. Returns how many
// completions were operations. All stamps differ from the truth by the same constant: a multiple of the clock's range.
static inline int trace_judge_source(struct tool *tool, int index, const struct source *source, int *excused) {
    char device[64];
    snprintf(device, sizeof device, "%s", source->name);
    device[strcspn(device, ":")] = 0;
    int count, events = 0, best = -1, operations = 0, unseen = 0;
    struct completion *all = trace_read(tool, device, &count);
    uint64_t mask = source->bits >= 64 ? UINT64_MAX : (UINT64_C(1) << source->bits) - 1, right = 0, last = UINT64_MAX;
    const struct seen *first = NULL, *wrong = NULL;
    for (int i = 0; i < seen_count(tool); i++)
        if (tool->all[i].source == index && events++ == 0)
            first = &tool->all[i];
    for (int i = 0; first && i < count && best != 0; i++) {
        uint64_t away = (uint64_t)first->timestamp - all[i].ticks;
        if ((away & mask) != 0 || !trace_is_of(&all[i], first) || away == last)
            continue;
        int unmatched = trace_unmatched(all, count, tool, index, last = away, &wrong);
        if (best < 0 || unmatched < best) {
            best = unmatched;
            right = away;
        }
    }
    best = events ? trace_unmatched(all, count, tool, index, right, &wrong) : 0;
    if (best)
        check_fail("events of %s that are no completion: expected 0 of %d, got %d (the first: %s at %lld)", source->name, events,
                   best, seen_names[wrong->kind], (long long)wrong->timestamp);
    const struct completion *missed = NULL;
    for (int i = 0; i < count; i++) {
        // A write of no bytes is ibex's own: it asks the peer for an acknowledgement.
        bool is_operation = all[i].opcode >= RDMA_WRITE && all[i].opcode <= FETCH_ADD && all[i].bytes > 0;
        operations += is_operation;
        if (is_operation && !all[i].matched && unseen++ == 0)
            missed = &all[i];
    }
    // A late event was dropped, and counted; one with the host's stamp does not name its port.
    int late = (int)counted_of(&seen_dropped, index);
    unseen -= unseen < late ? unseen : late;
    if (unseen > *excused)
        check_fail("operations of %s that were executed and not seen: expected at most %d (%d late), got %d of %d (the first: opcode "
                   "%u, %lu bytes, queue pair %u, at %lu)",
                   source->name, *excused, late, unseen, operations, missed->opcode, missed->bytes, missed->queue_pair, missed->ticks);
    printf("# rank %d %s: %d events, %d operations executed, %d of them with the host's stamp, %d events late\n", check.rank,
           source->name, events, operations, unseen, late);
    *excused -= unseen < *excused ? unseen : *excused;
    free(all);
    return operations;
}

// Compares all; `exact`: no event may be lost, nor have the host's stamp if there was one of the adapter.
static inline void trace_judge(struct tool *tool, bool exact) {
    int sources = 0, operations = 0, by_host = 0, of_adapter = 0;
    check_int("MPI_T_source_get_num", MPI_SUCCESS, MPI_T_source_get_num(&sources));
    bool is_host[256];
    for (int index = 0; index < sources && index < 256; index++)
        is_host[index] = seen_source(index).is_host;
    int stamped = 0;
    for (int i = 0; i < seen_count(tool); i++) {
        bool operation = trace_is_operation(&tool->all[i]);
        stamped += !is_host[tool->all[i].source];
        by_host += operation && is_host[tool->all[i].source];
        of_adapter += operation;
    }
    // Events with the host's stamp that waited in a thread that ended are dropped.
    int dropped = 0;
    for (int index = 0; index < sources && index < 256; index++)
        dropped += is_host[index] ? (int)counted_of(&seen_dropped, index) : 0;
    int excused = by_host + dropped;
    for (int index = 0; index < sources; index++) {
        struct source source = seen_source(index);
        if (!source.is_host)
            operations += trace_judge_source(tool, index, &source, &excused);
    }
    check_true("operations with the host's stamp were executed", excused <= dropped);
    check_true("operations were executed", operations > 0);
    if (exact) {
        check_int("events dropped", 0, seen_all_dropped());
        check_int("operations with the host's stamp", 0, by_host);
    }
    check_true("some have the adapter's stamp", stamped > 0 && (of_adapter == 0 || by_host < of_adapter));
}
