// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a message consists of (fi_msg(3), fi_tagged(3)): data in several pieces up to the limit, none at all, and remote
// CQ data, by each call. No arguments.
#include "endpoints.h"

enum { MOST_PIECES = 64, SIZE = 1 << 16 };
static char in[SIZE], out[SIZE], received, sent;

// Cuts memory into pieces of different lengths, empty ones among them; returns the length of all.
static size_t cut(char *memory, struct iovec *pieces, size_t number, size_t step) {
    size_t at = 0;
    for (size_t i = 0; i < number; i++) {
        pieces[i] = (struct iovec){memory + at, i % 3 == 1 ? 0 : step + i};
        at += pieces[i].iov_len;
    }
    return at;
}

static void arrives(size_t length, uint64_t kind, bool has_data) {
    await_of(&ends[0], "the send", &sent);
    entry got = await_of(&ends[1], "the receive", &received);
    check_int("flags", (long long)(kind | FI_RECV | (has_data ? FI_REMOTE_CQ_DATA : 0)), (long long)got.flags);
    check_int("length", (long long)length, (long long)got.len);
    if (has_data)
        check_int("remote CQ data", (long long)0xfedcba9876543210, (long long)got.data);
    check_filled("data", in, length, (unsigned)length);
}

static void in_pieces(size_t number, size_t step) {
    struct iovec from[MOST_PIECES], to[MOST_PIECES];
    size_t length = cut(out, from, number, step);
    fill(out, length, (unsigned)length);
    memset(in, 0, sizeof in);
    cut(in, to, number, step);
    OK(fi_recvv(ends[1].ep, to, NULL, number, FI_ADDR_UNSPEC, &received));
    OK(fi_sendv(ends[0].ep, from, NULL, number, ends[0].to[1], &sent));
    arrives(length, FI_MSG, false);
    // Of another shape than the receive.
    memset(in, 0, sizeof in);
    OK(fi_trecv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, 5, 0, &received));
    OK(fi_tsendv(ends[0].ep, from, NULL, number, ends[0].to[1], 5, &sent));
    arrives(length, FI_TAGGED, false);
    memset(in, 0, sizeof in);
    OK(fi_trecvv(ends[1].ep, to, NULL, number, FI_ADDR_UNSPEC, 5, 0, &received));
    OK(fi_tsend(ends[0].ep, out, length, NULL, ends[0].to[1], 5, &sent));
    arrives(length, FI_TAGGED, false);
    // Injected pieces are free at once.
    if (length > info->tx_attr->inject_size)
        return;
    memset(in, 0, sizeof in);
    struct fi_msg_tagged message = {
        .msg_iov = from, .iov_count = number, .addr = ends[0].to[1], .tag = 5, .context = &sent};
    OK(fi_trecv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, 5, 0, &received));
    OK(fi_tsendmsg(ends[0].ep, &message, FI_INJECT));
    memset(out, 0, sizeof out);
    arrives(length, FI_TAGGED, false);
}

static void with_data(size_t length) {
    const uint64_t data = 0xfedcba9876543210;
    fill(out, length, (unsigned)length);
    OK(fi_recv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, &received));
    OK(fi_senddata(ends[0].ep, out, length, NULL, data, ends[0].to[1], &sent));
    arrives(length, FI_MSG, true);
    OK(fi_trecv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, UINT64_MAX, 0, &received));
    OK(fi_tsenddata(ends[0].ep, out, length, NULL, data, ends[0].to[1], UINT64_MAX, &sent));
    arrives(length, FI_TAGGED, true);
    struct iovec piece = {out, length};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = ends[0].to[1], .context = &sent, .data = data};
    OK(fi_recv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, &received));
    OK(fi_sendmsg(ends[0].ep, &message, FI_REMOTE_CQ_DATA));
    arrives(length, FI_MSG, true);
    // Without the flag the field is not sent.
    OK(fi_recv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, &received));
    OK(fi_sendmsg(ends[0].ep, &message, 0));
    arrives(length, FI_MSG, false);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});
    size_t limit = info->tx_attr->iov_limit;
    check_int("the limits of sends and of receives", (long long)limit, (long long)info->rx_attr->iov_limit);
    check_true("this program can make as many pieces", limit > 1 && limit < MOST_PIECES);

    check_case("messages of one piece to the limit arrive, whichever pieces receive them");
    for (size_t number = 1; number <= limit; number++) {
        in_pieces(number, 10);
        in_pieces(number, 700);
        in_pieces(number, 5000);
    }

    check_case("more pieces than the limit are refused");
    struct iovec pieces[MOST_PIECES];
    cut(out, pieces, limit + 1, 1);
    struct fi_msg message = {.msg_iov = pieces, .iov_count = limit + 1, .addr = ends[0].to[1], .context = &sent};
    check_int("fi_sendv", -FI_EINVAL, fi_sendv(ends[0].ep, pieces, NULL, limit + 1, ends[0].to[1], &sent));
    check_int("fi_tsendv", -FI_EINVAL, fi_tsendv(ends[0].ep, pieces, NULL, limit + 1, ends[0].to[1], 5, &sent));
    check_int("fi_sendmsg", -FI_EINVAL, fi_sendmsg(ends[0].ep, &message, 0));
    check_int("fi_recvv", -FI_EINVAL, fi_recvv(ends[1].ep, pieces, NULL, limit + 1, FI_ADDR_UNSPEC, &sent));
    check_int("fi_recvmsg", -FI_EINVAL, fi_recvmsg(ends[1].ep, &message, 0));

    check_case("a message of no bytes needs neither memory nor pieces");
    OK(fi_recvv(ends[1].ep, NULL, NULL, 0, FI_ADDR_UNSPEC, &received));
    OK(fi_sendv(ends[0].ep, NULL, NULL, 0, ends[0].to[1], &sent));
    arrives(0, FI_MSG, false);
    OK(fi_trecv(ends[1].ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 5, 0, &received));
    OK(fi_tsend(ends[0].ep, NULL, 0, NULL, ends[0].to[1], 5, &sent));
    arrives(0, FI_TAGGED, false);
    struct fi_msg_tagged empty = {.addr = ends[0].to[1], .tag = 5, .context = &sent};
    OK(fi_trecv(ends[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, 5, 0, &received));
    OK(fi_tsendmsg(ends[0].ep, &empty, FI_INJECT));
    arrives(0, FI_TAGGED, false);
    OK(fi_recv(ends[1].ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &received));
    OK(fi_inject(ends[0].ep, NULL, 0, ends[0].to[1]));
    await_of(&ends[1], "the receive", &received);

    check_case("remote CQ data arrive with messages of each length");
    const size_t lengths[] = {0, 1, 100, 5000, SIZE};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        with_data(lengths[i]);
    check_case("remote CQ data are injected");
    OK(fi_recv(ends[1].ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &received));
    OK(fi_injectdata(ends[0].ep, NULL, 0, UINT64_MAX, ends[0].to[1]));
    check_int("remote CQ data", -1, (long long)await(&ends[1]).data);

    close_endpoints();
    return check_finish();
}
