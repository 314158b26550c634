// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which receive takes which message (fi_tagged(3), fi_msg(3)): tags of 64 bits, ignored bits, the order of receives and
// of messages, directed receives. No arguments.
#include "endpoints.h"

static int in[8], out[8] = {10, 11, 12, 13, 14, 15, 16, 17};
static char contexts[8];

static void receive(int at, int number, fi_addr_t from, uint64_t tag, uint64_t ignore) {
    OK(fi_trecv(ends[at].ep, &in[number], sizeof in[number], NULL, from, tag, ignore, &contexts[number]));
}

static void send_to(int from, int to, int number, uint64_t tag) {
    OK(fi_tinject(ends[from].ep, &out[number], sizeof out[number], ends[from].to[to], tag));
}

// The next completion of endpoint 1 is of receive `receive`, and has the message `message`.
static void takes(int receive, int message, uint64_t tag) {
    entry got = await_of(&ends[1], "the receive", &contexts[receive]);
    check_int("tag", (long long)tag, (long long)got.tag);
    check_int("flags", FI_TAGGED | FI_RECV, (long long)got.flags);
    check_int("length", sizeof(int), (long long)got.len);
    check_int("data", out[message], in[receive]);
}

// Receives that are posted once four messages have arrived, each of which several of them could take.
static void takes_unexpected(void) {
    const uint64_t high = 1ull << 63;
    check_case("a receive takes the first of the unexpected messages that it matches");
    send_to(0, 1, 0, 5);
    send_to(0, 1, 1, high | 5);
    send_to(0, 1, 2, high | 0x77);
    send_to(0, 1, 3, high | 5);
    flush(&ends[0], &ends[1]);
    receive(1, 0, FI_ADDR_UNSPEC, high | 5, 0);
    receive(1, 1, FI_ADDR_UNSPEC, 0, UINT64_MAX);
    receive(1, 2, FI_ADDR_UNSPEC, high | 5, 0xff);
    receive(1, 3, FI_ADDR_UNSPEC, 5, high);
    takes(0, 1, high | 5);
    takes(1, 0, 5);
    takes(2, 2, high | 0x77);
    takes(3, 3, high | 5);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 3});

    takes_unexpected();

    check_case("a receive that ignores no bit takes all 64 bits of its tag");
    receive(1, 0, FI_ADDR_UNSPEC, 0x8000000080000001, 0);
    for (int bit = 0; bit < 4; bit++)
        send_to(0, 1, 1 + bit, 0x8000000080000001 ^ 1ull << (bit * 21));
    flush(&ends[0], &ends[1]);
    check_nothing(&ends[1]);
    send_to(0, 1, 0, 0x8000000080000001);
    takes(0, 0, 0x8000000080000001);
    for (int bit = 0; bit < 4; bit++)
        receive(1, bit, FI_ADDR_UNSPEC, 0x8000000080000001 ^ 1ull << (bit * 21), 0);
    for (int bit = 0; bit < 4; bit++)
        takes(bit, 1 + bit, 0x8000000080000001 ^ 1ull << (bit * 21));

    check_case("posted receives are searched in posting order");
    receive(1, 0, FI_ADDR_UNSPEC, 7, 0);
    receive(1, 1, FI_ADDR_UNSPEC, 0, UINT64_MAX);
    receive(1, 2, FI_ADDR_UNSPEC, 7, 0);
    send_to(0, 1, 4, 8);
    takes(1, 4, 8);
    send_to(0, 1, 5, 7);
    takes(0, 5, 7);
    send_to(0, 1, 6, 7);
    takes(2, 6, 7);

    check_case("bits that are ignored may be set in the receive's tag");
    receive(1, 0, FI_ADDR_UNSPEC, 0xabc0ff, 0xff);
    send_to(0, 1, 1, 0xabc001);
    takes(0, 1, 0xabc001);

    check_case("a directed receive takes messages of its source only");
    receive(1, 0, ends[1].to[2], 9, 0);
    receive(1, 1, ends[1].to[0], 9, 0);
    send_to(0, 1, 0, 9);
    takes(1, 0, 9);
    send_to(2, 1, 2, 9);
    takes(0, 2, 9);

    check_case("a directed receive takes an unexpected message of its source only");
    send_to(0, 1, 0, 9);
    send_to(2, 1, 2, 9);
    flush(&ends[0], &ends[1]);
    flush(&ends[2], &ends[1]);
    receive(1, 0, ends[1].to[2], 9, 0);
    takes(0, 2, 9);
    receive(1, 1, FI_ADDR_UNSPEC, 9, 0);
    takes(1, 0, 9);

    check_case("an endpoint's messages to itself match alike");
    receive(1, 0, ends[1].to[1], 0, UINT64_MAX);
    receive(1, 1, ends[1].to[0], 0, UINT64_MAX);
    send_to(1, 1, 3, 1ull << 40);
    takes(0, 3, 1ull << 40);
    send_to(0, 1, 4, 2);
    takes(1, 4, 2);

    check_case("a tagged message is for no untagged receive, and the reverse");
    OK(fi_recv(ends[1].ep, &in[0], sizeof in[0], NULL, FI_ADDR_UNSPEC, &contexts[0]));
    receive(1, 1, FI_ADDR_UNSPEC, 0, UINT64_MAX);
    send_to(0, 1, 1, 0);
    takes(1, 1, 0);
    OK(fi_inject(ends[0].ep, &out[2], sizeof out[2], ends[0].to[1]));
    entry got = await_of(&ends[1], "the untagged receive", &contexts[0]);
    check_int("flags", FI_MSG | FI_RECV, (long long)got.flags);
    check_int("data", out[2], in[0]);

    check_case("untagged messages of a source are received in order, and directed receives take theirs");
    OK(fi_recv(ends[1].ep, &in[0], sizeof in[0], NULL, ends[1].to[2], &contexts[0]));
    for (int number = 1; number < 4; number++)
        OK(fi_inject(ends[0].ep, &out[number], sizeof out[number], ends[0].to[1]));
    for (int number = 1; number < 4; number++) {
        OK(fi_recv(ends[1].ep, &in[number], sizeof in[number], NULL, FI_ADDR_UNSPEC, &contexts[number]));
        await_of(&ends[1], "the untagged receive", &contexts[number]);
        check_int("data", out[number], in[number]);
    }
    OK(fi_inject(ends[2].ep, &out[5], sizeof out[5], ends[2].to[1]));
    await_of(&ends[1], "the directed receive", &contexts[0]);
    check_int("data", out[5], in[0]);

    close_endpoints();
    return check_finish();
}
