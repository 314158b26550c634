// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which completions are written: selective ones (FI_SELECTIVE_COMPLETION of fi_endpoint(3)), those of injected messages
// (fi_msg(3)), and the longest message that can be injected. No arguments.
#include "endpoints.h"

#include <unistd.h>

static char in[8][8192], out[8192];

static ssize_t sends(size_t length, uint64_t flags) {
    struct iovec data = {out, length};
    struct fi_msg_tagged message = {
        .msg_iov = &data, .iov_count = 1, .addr = ends[0].to[1], .tag = 1, .context = out};
    return fi_tsendmsg(ends[0].ep, &message, flags);
}

static void receives(int number, uint64_t flags) {
    struct iovec room = {in[number], sizeof in[number]};
    struct fi_msg_tagged message = {
        .msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = in[number]};
    OK(fi_trecvmsg(ends[1].ep, &message, flags));
}

// Of four sends and receives, those that ask for a completion get one.
static void selects(void) {
    check_case("a queue that is bound for it gets the completions that are asked for");
    for (int number = 0; number < 4; number++)
        receives(number, number % 2 ? FI_COMPLETION : 0);
    for (int number = 0; number < 4; number++)
        OK(sends(8, number / 2 ? FI_COMPLETION : 0));
    for (int number = 0; number < 2; number++)
        await_of(&ends[0], "a send", out);
    for (int number = 1; number < 4; number += 2)
        await_of(&ends[1], "a receive", in[number]);
    check_nothing(&ends[0]);
    check_nothing(&ends[1]);
}

// The sender reads no queue. Another endpoint, that of a peer's process, does.
static void connects(void) {
    enum { MOST_SENDS = 20000 };
    check_case("messages that a program only sends get a connection");
    int sent = 0;
    entry got;
    receives(0, FI_COMPLETION);
    do {
        OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
        usleep(100);
    } while (++sent < MOST_SENDS && fi_cq_read(ends[1].cq, &got, 1) != 1);
    check_true("the first message has arrived", sent < MOST_SENDS);
    for (int i = 1; i < sent; i++) {
        receives(0, FI_COMPLETION);
        await_of(&ends[1], "a receive", in[0]);
    }
}

int main(void) {
    struct setup selective = {.endpoints = 2, .selective = FI_SELECTIVE_COMPLETION};
    open_endpoints(selective);
    connects();
    selects();
    check_case("without default flags a call that takes none gets no completion");
    OK(fi_trecv(ends[1].ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, in[0]));
    receives(1, FI_COMPLETION);
    for (int number = 0; number < 2; number++)
        OK(fi_tsend(ends[0].ep, out, 8, NULL, ends[0].to[1], 1, out));
    await_of(&ends[1], "the second receive", in[1]);
    check_nothing(&ends[0]);
    check_nothing(&ends[1]);
    check_case("a failure is reported, asked for or not");
    struct iovec room = {in[0], 4};
    struct fi_msg_tagged shorter = {.msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in[0]};
    shorter.tag = 1;
    OK(fi_trecvmsg(ends[1].ep, &shorter, 0));
    OK(sends(8, 0));
    struct fi_cq_err_entry error = await_error(&ends[1]);
    check_int("err", FI_ETRUNC, error.err);
    check_pointer("context", in[0], error.op_context);
    close_endpoints();

    selective.tx_flags = selective.rx_flags = FI_COMPLETION;
    open_endpoints(selective);
    connects();
    selects();
    check_case("default flags ask for completions of calls that take none");
    OK(fi_trecv(ends[1].ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, in[0]));
    OK(fi_tsend(ends[0].ep, out, 8, NULL, ends[0].to[1], 1, out));
    await_of(&ends[0], "the send", out);
    await_of(&ends[1], "the receive", in[0]);
    check_case("an injected message has no completion, whatever the default flags");
    receives(0, FI_COMPLETION);
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    await_of(&ends[1], "the receive", in[0]);
    check_nothing(&ends[0]);
    close_endpoints();

    open_endpoints((struct setup){.endpoints = 2});
    size_t limit = info->tx_attr->inject_size;
    check_true("the longest injected message fits this program", limit > 0 && limit < sizeof out);
    static const char *const kinds[] = {"to another endpoint", "to the endpoint itself"};
    for (int to = 1; to >= 0; to--) {
        check_case("messages up to the limit are injected %s, from memory that is free at once", kinds[!to]);
        size_t lengths[] = {0, 1, 8, 200, limit - 1, limit};
        for (int flagged = 0; flagged < 2; flagged++)
            for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
                OK(fi_trecv(ends[to].ep, in[0], sizeof in[0], NULL, FI_ADDR_UNSPEC, 1, 0, in[0]));
                fill(out, lengths[i], 3);
                struct iovec data = {out, lengths[i]};
                struct fi_msg_tagged message = {
                    .msg_iov = &data, .iov_count = 1, .addr = ends[0].to[to], .tag = 1, .context = out};
                if (flagged)
                    OK(fi_tsendmsg(ends[0].ep, &message, FI_INJECT));
                else
                    OK(fi_tinjectdata(ends[0].ep, out, lengths[i], 9, ends[0].to[to], 1));
                memset(out, 1, sizeof out);
                if (flagged && to == 1)
                    await_of(&ends[0], "the send with FI_INJECT", out);
                // An endpoint's messages to itself end both operations in one queue.
                for (int left = flagged && to == 0 ? 2 : 1; left > 0; left--) {
                    entry got = await(&ends[to]);
                    if (got.op_context != out)
                        check_int("length", (long long)lengths[i], (long long)got.len);
                }
                check_filled("data", in[0], lengths[i], 3);
            }
    }
    check_nothing(&ends[0]);

    for (int to = 1; to >= 0; to--) {
        check_case("a message %s is delivered once it is stored, and matched when it is received", kinds[!to]);
        struct iovec data = {out, 5000};
        struct fi_msg_tagged message = {.msg_iov = &data, .iov_count = 1, .addr = ends[0].to[to], .tag = 2};
        fill(out, 5000, 4);
        message.context = &in[1];
        OK(fi_tsendmsg(ends[0].ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
        await_of(&ends[0], "the send that is delivered", &in[1]);
        message.context = &in[2];
        OK(fi_tsendmsg(ends[0].ep, &message, FI_COMPLETION | FI_MATCH_COMPLETE));
        check_nothing(&ends[0]);
        for (int i = 3; i < 5; i++) {
            OK(fi_trecv(ends[to].ep, in[i], sizeof in[i], NULL, FI_ADDR_UNSPEC, 2, 0, in[i]));
            if (to == 1)
                await_of(&ends[1], "a receive", in[i]);
        }
        for (int left = to == 1 ? 1 : 3, i = 0; i < left; i++) {
            entry got = await(&ends[0]);
            bool is_receive = to == 0 && (got.op_context == in[3] || got.op_context == in[4]);
            check_true("what ends", got.op_context == &in[2] || is_receive);
        }
        check_filled("data", in[3], 5000, 4);
        check_filled("data", in[4], 5000, 4);
    }
    check_nothing(&ends[0]);

    check_case("a message above the limit is not injected");
    check_int("fi_tinject", -FI_EMSGSIZE, fi_tinject(ends[0].ep, out, limit + 1, ends[0].to[1], 1));
    check_int("fi_inject", -FI_EMSGSIZE, fi_inject(ends[0].ep, out, limit + 1, ends[0].to[1]));
    check_int("fi_injectdata", -FI_EMSGSIZE, fi_injectdata(ends[0].ep, out, limit + 1, 5, ends[0].to[1]));
    check_int("FI_INJECT", -FI_EMSGSIZE, sends(limit + 1, FI_INJECT));
    OK(fi_trecv(ends[1].ep, in[0], sizeof in[0], NULL, FI_ADDR_UNSPEC, 1, 0, in[0]));
    check_nothing(&ends[0]);
    check_nothing(&ends[1]);
    close_endpoints();
    return check_finish();
}
