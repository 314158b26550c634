// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Completion queues (fi_cq(3)): formats, several entries at a time, progress by a read of none, sources of messages,
// and several endpoints, of one or of two domains, with one queue. No arguments.
#include "endpoints.h"

enum { MESSAGES = 40 };
static char in[MESSAGES], out[8] = "message", contexts[MESSAGES];

// Posts receives of endpoint 1 and waits until they have their messages, without reading their completions.
static void fill_queue(int number) {
    for (int i = 0; i < number; i++)
        OK(fi_trecv(ends[1].ep, &in[i], 1, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, &contexts[i]));
    for (int i = 0; i < number; i++) {
        in[i] = 0;
        OK(fi_tinjectdata(ends[0].ep, out, 1, 100, ends[0].to[1], (uint64_t)i));
    }
    // Reads of no entry progress, also while entries are there.
    for (int i = 0; i < number; i++)
        while (!((volatile char *)in)[i])
            progress();
}

static void format(const char *name, enum fi_cq_format format, size_t size, size_t members) {
    open_endpoints((struct setup){.endpoints = 2, .queue = {.format = format, .size = 1}});
    check_case("an entry of the format %s has its members", name);
    fill_queue(2);
    uint64_t got[3 * sizeof(entry) / sizeof(uint64_t)] = {0};
    ssize_t code;
    while ((code = fi_cq_read(ends[1].cq, got, 2)) == -FI_EAGAIN)
        progress();
    check_int("number", 2, code);
    for (uint64_t i = 0; i < 2; i++) {
        const uint64_t wanted[] = {(uintptr_t)&contexts[i], FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA, 1, 0, 100, i};
        check_int("members", 0, memcmp((char *)got + i * size, wanted, members * sizeof(uint64_t)));
    }
    check_int("behind them", 0, (long long)got[2 * size / sizeof(uint64_t)]);
    close_endpoints();
}

static void several(void) {
    open_endpoints((struct setup){.endpoints = 2, .queue = {.size = 4}});
    check_case("a queue holds more entries than its least size, and gives as many as there is room for, in order");
    fill_queue(MESSAGES);
    entry got[MESSAGES + 1];
    int read = 0;
    for (size_t room = 1; read < MESSAGES; room++) {
        ssize_t code = fi_cq_read(ends[1].cq, got, room);
        check_int("number", (long long)(room < (size_t)(MESSAGES - read) ? room : (size_t)(MESSAGES - read)), code);
        for (int i = 0; i < code; i++)
            check_pointer("order", &contexts[read + i], got[i].op_context);
        if (code <= 0)
            break;
        read += (int)code;
    }
    check_int("an empty queue", -FI_EAGAIN, fi_cq_read(ends[1].cq, got, MESSAGES));
    check_int("no entry of an empty queue", -FI_EAGAIN, fi_cq_read(ends[1].cq, NULL, 0));
    fill_queue(1);
    check_int("no entry of a queue with some", 0, fi_cq_read(ends[1].cq, NULL, 0));
    await_of(&ends[1], "the entry is still there", &contexts[0]);
    close_endpoints();
}

// Messages from each endpoint to each, all completions in one queue.
static void shared(int of_domains) {
    open_endpoints((struct setup){.endpoints = 3, .domains = of_domains, .one_queue = of_domains == 1});
    check_case("endpoints of %d domain(s) send to each other, and completions name the source", of_domains);
    for (int to = 0; to < 3; to++)
        for (int from = 0; from < 3; from++) {
            uint64_t tag = (uint64_t)(to * 3 + from);
            OK(fi_trecv(ends[to].ep, &in[tag], 1, NULL, FI_ADDR_UNSPEC, tag, 0, &contexts[tag]));
            OK(fi_tsend(ends[from].ep, out, 1, NULL, ends[from].to[to], tag, out));
        }
    int received = 0, sent = 0;
    for (int at = 0; received < 9 || sent < 9; at = (at + 1) % 3) {
        entry got;
        fi_addr_t source = 77;
        ssize_t code = fi_cq_readfrom(ends[at].cq, &got, 1, &source);
        if (code == -FI_EAGAIN)
            continue;
        check_int("fi_cq_readfrom", 1, code);
        if (got.op_context == out) {
            check_int("the source of a send", (long long)FI_ADDR_NOTAVAIL, (long long)source);
            check_int("flags of a send", FI_TAGGED | FI_SEND, (long long)got.flags);
            sent++;
            continue;
        }
        check_int("source", (long long)ends[got.tag / 3].to[got.tag % 3], (long long)source);
        check_pointer("context", &contexts[got.tag], got.op_context);
        received++;
    }
    check_nothing(&ends[0]);
    close_endpoints();
}

// A connected endpoint whose address the receiver removes, inserts again and removes.
static void unknown_sources(void) {
    open_endpoints((struct setup){.endpoints = 2});
    check_case("the source of a message is not available while its address is not in the vector");
    flush(&ends[0], &ends[1]);
    OK(fi_av_remove(ends[1].av, &ends[1].to[0], 1, 0));
    for (int round = 0; round < 3; round++) {
        OK(fi_trecv(ends[1].ep, in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, contexts));
        OK(fi_tinject(ends[0].ep, out, 1, ends[0].to[1], 1));
        fi_addr_t source = 77;
        await_from(&ends[1], &source);
        check_int("source", (long long)(round == 1 ? ends[1].to[0] : FI_ADDR_NOTAVAIL), (long long)source);
        char name[FI_NAME_MAX];
        name_of(&ends[0], name);
        if (round == 0)
            check_int("fi_av_insert", 1, fi_av_insert(ends[1].av, name, 1, &ends[1].to[0], 0, NULL));
        else
            OK(round == 1 ? fi_av_remove(ends[1].av, &ends[1].to[0], 1, 0) : 0);
    }
    close_endpoints();
}

int main(void) {
    format("FI_CQ_FORMAT_CONTEXT", FI_CQ_FORMAT_CONTEXT, sizeof(struct fi_cq_entry), 1);
    format("FI_CQ_FORMAT_MSG", FI_CQ_FORMAT_MSG, sizeof(struct fi_cq_msg_entry), 3);
    format("FI_CQ_FORMAT_DATA", FI_CQ_FORMAT_DATA, sizeof(struct fi_cq_data_entry), 5);
    format("FI_CQ_FORMAT_TAGGED", FI_CQ_FORMAT_TAGGED, sizeof(struct fi_cq_tagged_entry), 6);
    several();
    shared(1);
    shared(2);
    unknown_sources();
    return check_finish();
}
