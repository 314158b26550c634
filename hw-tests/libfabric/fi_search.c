// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Searches of the messages that have arrived (fi_tagged(3)): FI_PEEK, FI_CLAIM and FI_DISCARD. No arguments.
#include "endpoints.h"

static char in[1 << 17], out[1 << 17];
static struct fi_context contexts[4];

static ssize_t search(uint64_t flags, uint64_t tag, uint64_t ignore, struct fi_context *context) {
    struct iovec room = {in, sizeof in};
    struct fi_msg_tagged message = {
        .msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = tag, .ignore = ignore, .context = context};
    return fi_trecvmsg(ends[1].ep, &message, flags);
}

static void finds_nothing(uint64_t flags, uint64_t tag) {
    OK(search(flags, tag, 0, &contexts[3]));
    struct fi_cq_err_entry error = await_error(&ends[1]);
    check_int("err", FI_ENOMSG, error.err);
    check_pointer("context", &contexts[3], error.op_context);
}

static void sent(uint64_t tag, size_t length, unsigned seed) {
    fill(out, length, seed);
    OK(fi_tsenddata(ends[0].ep, out, length, NULL, 1000 + seed, ends[0].to[1], tag, out));
    await_of(&ends[0], "the send", out);
    flush(&ends[0], &ends[1]);
}

// The next completion says what was found, and whose it is.
static void found(struct fi_context *context, uint64_t tag, size_t length, unsigned seed) {
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    entry got = await_from(&ends[1], &source);
    check_pointer("context", context, got.op_context);
    check_int("flags", FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA, (long long)got.flags);
    check_int("tag", (long long)tag, (long long)got.tag);
    check_int("length", (long long)length, (long long)got.len);
    check_int("remote CQ data", 1000 + seed, (long long)got.data);
    check_int("source", (long long)ends[1].to[0], (long long)source);
}

static void received(struct fi_context *context, uint64_t tag, size_t length, unsigned seed) {
    found(context, tag, length, seed);
    check_filled("data", in, length, seed);
}

// A message that is not all there before it is received: its send ends once it is.
static void claims_long_message(void) {
    check_case("a long message is claimed, and then received");
    size_t length = sizeof out;
    fill(out, length, 9);
    OK(fi_tsenddata(ends[0].ep, out, length, NULL, 1009, ends[0].to[1], 5, out));
    do {
        OK(search(FI_PEEK, 5, 0, &contexts[0]));
        struct fi_cq_err_entry error;
        if (fi_cq_read(ends[1].cq, &(entry){0}, 1) == 1)
            break;
        check_int("fi_cq_readerr", 1, fi_cq_readerr(ends[1].cq, &error, 0));
        check_int("err", FI_ENOMSG, error.err);
        progress();
    } while (true);
    OK(search(FI_PEEK | FI_CLAIM, 5, 0, &contexts[0]));
    found(&contexts[0], 5, length, 9);
    OK(search(FI_CLAIM, 5, 0, &contexts[0]));
    received(&contexts[0], 5, length, 9);
    await_of(&ends[0], "the send", out);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});

    check_case("a search without a message fails with FI_ENOMSG");
    finds_nothing(FI_PEEK, 5);
    finds_nothing(FI_PEEK | FI_CLAIM, 5);
    finds_nothing(FI_PEEK | FI_DISCARD, 5);
    check_nothing(&ends[1]);

    check_case("a search finds a message as often as it is asked, and writes no data");
    sent(5, 100, 1);
    memset(in, 7, sizeof in);
    for (int i = 0; i < 2; i++) {
        OK(search(FI_PEEK, 0, UINT64_MAX, &contexts[i]));
        found(&contexts[i], 5, 100, 1);
    }
    finds_nothing(FI_PEEK, 6);
    for (int i = 0; i < 100; i++)
        check_int("a byte of the buffer", 7, in[i]);
    OK(search(0, 5, 0, &contexts[2]));
    received(&contexts[2], 5, 100, 1);
    finds_nothing(FI_PEEK, 5);

    check_case("a claimed message is for no other receive or search, and its claim receives it");
    sent(5, 100, 2);
    sent(5, 200, 3);
    OK(search(FI_PEEK | FI_CLAIM, 5, 0, &contexts[0]));
    found(&contexts[0], 5, 100, 2);
    OK(search(FI_PEEK, 5, 0, &contexts[1]));
    found(&contexts[1], 5, 200, 3);
    OK(search(0, 5, 0, &contexts[2]));
    received(&contexts[2], 5, 200, 3);
    finds_nothing(FI_PEEK, 5);
    OK(search(FI_CLAIM, 5, 0, &contexts[0]));
    received(&contexts[0], 5, 100, 2);

    check_case("a claim without a message that was claimed is invalid");
    check_int("claim", -FI_EINVAL, search(FI_CLAIM, 5, 0, &contexts[0]));
    check_int("claim to discard", -FI_EINVAL, search(FI_CLAIM | FI_DISCARD, 5, 0, &contexts[1]));
    check_int("discard", -FI_EINVAL, search(FI_DISCARD, 5, 0, &contexts[1]));

    check_case("a search discards the message that it finds");
    sent(5, 100, 4);
    sent(5, 50, 5);
    OK(search(FI_PEEK | FI_DISCARD, 5, 0, &contexts[0]));
    found(&contexts[0], 5, 100, 4);
    OK(search(0, 5, 0, &contexts[1]));
    received(&contexts[1], 5, 50, 5);
    finds_nothing(FI_PEEK, 5);

    check_case("a claimed message is discarded");
    sent(5, 100, 6);
    OK(search(FI_PEEK | FI_CLAIM, 5, 0, &contexts[0]));
    found(&contexts[0], 5, 100, 6);
    OK(search(FI_CLAIM | FI_DISCARD, 5, 0, &contexts[0]));
    found(&contexts[0], 5, 100, 6);
    finds_nothing(FI_PEEK, 5);
    check_nothing(&ends[1]);

    claims_long_message();

    check_case("the sender of a discarded long message is done with it");
    fill(out, sizeof out, 1);
    OK(fi_tsend(ends[0].ep, out, sizeof out, NULL, ends[0].to[1], 6, out));
    ssize_t code;
    do {
        OK(search(FI_PEEK | FI_DISCARD, 6, 0, &contexts[0]));
        code = fi_cq_read(ends[1].cq, &(entry){0}, 1);
        if (code != 1)
            check_int("fi_cq_readerr", 1, fi_cq_readerr(ends[1].cq, &(struct fi_cq_err_entry){0}, 0));
        progress();
    } while (code != 1);
    await_of(&ends[0], "the send", out);

    check_case("an endpoint finds, claims and discards its messages to itself");
    for (int discards = 0; discards < 2; discards++) {
        fill(out, 300, 2);
        OK(fi_tsend(ends[1].ep, out, 300, NULL, ends[1].to[1], 8, out));
        OK(search(FI_PEEK | FI_CLAIM, 8, 0, &contexts[0]));
        bool is_sent = false, is_found = false;
        while (!is_sent || !is_found) {
            entry got = await(&ends[1]);
            is_sent |= got.op_context == out;
            is_found |= got.op_context == &contexts[0];
            check_int("length", got.op_context == out ? 0 : 300, (long long)got.len);
            if (is_found && !is_sent)
                break;
        }
        OK(search(FI_CLAIM | (discards ? FI_DISCARD : 0), 8, 0, &contexts[0]));
        for (bool is_received = false; !is_received || !is_sent;) {
            entry got = await(&ends[1]);
            is_sent |= got.op_context == out;
            is_received |= got.op_context == &contexts[0];
        }
        if (!discards)
            check_filled("data", in, 300, 2);
    }
    check_nothing(&ends[1]);

    close_endpoints();
    return check_finish();
}
