// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Messages of each length at which a protocol could change, one byte less and more included, expected and unexpected;
// and long ones in both directions at once, which complete once delivered. No arguments.
#include "endpoints.h"

enum { LONGEST = 8 << 20, AT_ONCE = 4 };
static char *in[2][AT_ONCE], *out[2][AT_ONCE];

static void one(size_t length, bool is_late) {
    fill(out[0][0], length, (unsigned)length);
    memset(in[1][0], 1, length + 1);
    for (int step = 0; step < 2; step++)
        if (step == is_late) {
            OK(fi_trecv(ends[1].ep, in[1][0], length, NULL, ends[1].to[0], 1, 0, in));
        } else {
            OK(fi_tsend(ends[0].ep, out[0][0], length, NULL, ends[0].to[1], 1, out));
            for (int i = 0; i < 50; i++)
                progress();
        }
    entry got = await_of(&ends[1], "the receive", in);
    check_int("length", (long long)length, (long long)got.len);
    await_of(&ends[0], "the send", out);
    check_filled("data", in[1][0], length, (unsigned)length);
    check_int("the byte behind", 1, in[1][0][length]);
}

static void send_delivered(int from, int number, size_t length) {
    struct iovec data = {out[from][number], length};
    struct fi_msg_tagged message = {.msg_iov = &data,
                                    .iov_count = 1,
                                    .addr = ends[from].to[!from],
                                    .tag = (uint64_t)number,
                                    .context = out[from][number]};
    OK(fi_tsendmsg(ends[from].ep, &message, number % 2 ? FI_DELIVERY_COMPLETE : FI_TRANSMIT_COMPLETE));
}

// Each endpoint sends several long messages to the other, and receives as many, half of them before they are sent.
static void both_ways(size_t length) {
    check_case("messages of %zu bytes pass each other", length);
    for (int at = 0; at < 2; at++)
        for (int number = 0; number < AT_ONCE; number++)
            fill(out[at][number], length, (unsigned)(at * AT_ONCE + number));
    for (int early = 1; early >= 0; early--)
        for (int at = 0; at < 2; at++)
            for (int number = 0; number < AT_ONCE; number++) {
                if (early)
                    send_delivered(at, number, length);
                if (early == number % 2) {
                    memset(in[at][number], 0, length);
                    OK(fi_trecv(ends[at].ep, in[at][number], length, NULL, FI_ADDR_UNSPEC, (uint64_t)number, 0,
                                in[at][number]));
                }
            }
    for (int at = 0; at < 2; at++)
        for (int left = 2 * AT_ONCE; left > 0; left--) {
            entry got = await(&ends[at]);
            if (got.flags & FI_RECV) {
                check_int("length", (long long)length, (long long)got.len);
                check_filled("data", got.op_context, length, (unsigned)((uint64_t)!at * AT_ONCE + got.tag));
            }
        }
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});
    for (int at = 0; at < 2; at++)
        for (int number = 0; number < AT_ONCE; number++) {
            in[at][number] = calloc(1, LONGEST + 1);
            out[at][number] = calloc(1, LONGEST + 1);
        }

    check_case("messages of lengths around each limit arrive, expected and unexpected");
    const size_t inject = info->tx_attr->inject_size;
    const size_t limits[] = {1, 64, 128, 200, 256, 512, 1024, inject, 8192, 16 << 10, 32 << 10, 64 << 10};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (size_t length = limits[i] - 1; length <= limits[i] + 1; length++) {
            one(length, false);
            one(length, true);
        }
    check_case("messages of each length near the longest whole one arrive");
    for (size_t length = (16 << 10) - 100; length < (16 << 10) + 4; length++)
        one(length, length % 2);

    both_ways(3000);
    both_ways(100000);
    both_ways(1 << 20);
    both_ways(LONGEST);
    close_endpoints();
    return check_finish();
}
