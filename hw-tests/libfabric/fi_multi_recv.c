// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Buffers for several messages (FI_MULTI_RECV of fi_msg(3)): where messages lie, the entry that gives a buffer back,
// the least room (FI_OPT_MIN_MULTI_RECV), and the order of buffers and other receives. No arguments.
#include "endpoints.h"

static char buffers[3][1024], out[1024], plain[1024];

static ssize_t post(struct endpoint *end, char *buffer, size_t length, uint64_t flags) {
    struct iovec room = {buffer, length};
    struct fi_msg message = {.msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buffer};
    return fi_recvmsg(end->ep, &message, FI_MULTI_RECV | flags);
}

static void send_bytes(struct endpoint *from, struct endpoint *to, size_t length, unsigned seed) {
    fill(out, length, seed);
    OK(fi_inject(from->ep, out, length, from->to[to - ends]));
}

// The next completion: a message at `at` in a buffer; whether the buffer is given back with it.
static void takes(char *buffer, size_t at, size_t length, unsigned seed, bool is_last) {
    entry got = await(&ends[1]);
    check_pointer("the buffer", buffer, got.op_context);
    check_pointer("the place of the message", buffer + at, got.buf);
    check_int("length", (long long)length, (long long)got.len);
    check_int("flags", (long long)(FI_MSG | FI_RECV | (is_last ? FI_MULTI_RECV : 0)), (long long)got.flags);
    check_filled("data", buffer + at, length, seed);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 3});
    size_t least = 100, length = sizeof least;
    OK(fi_setopt(&ends[1].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, length));

    check_case("messages are packed into a buffer until less than the least room is left");
    OK(post(&ends[1], buffers[0], 1000, 0));
    send_bytes(&ends[0], &ends[1], 400, 1);
    takes(buffers[0], 0, 400, 1, false);
    send_bytes(&ends[2], &ends[1], 0, 2);
    takes(buffers[0], 400, 0, 2, false);
    send_bytes(&ends[0], &ends[1], 500, 3);
    takes(buffers[0], 400, 500, 3, false);
    send_bytes(&ends[0], &ends[1], 1, 4);
    takes(buffers[0], 900, 1, 4, true);
    check_nothing(&ends[1]);

    check_case("a message that fills a buffer gives it back");
    OK(post(&ends[1], buffers[0], 300, 0));
    send_bytes(&ends[0], &ends[1], 300, 5);
    takes(buffers[0], 0, 300, 5, true);

    check_case("unexpected messages go into a buffer in their order");
    for (unsigned seed = 1; seed <= 5; seed++)
        send_bytes(&ends[0], &ends[1], 200, seed);
    // Untagged, so they are before any receive of flush(): a tagged message tells that they are there.
    OK(fi_trecv(ends[1].ep, plain, 1, NULL, FI_ADDR_UNSPEC, 1, 0, plain));
    OK(fi_tinject(ends[0].ep, NULL, 0, ends[0].to[1], 1));
    await_of(&ends[1], "the tagged message", plain);
    OK(post(&ends[1], buffers[0], 790, 0));
    for (unsigned seed = 1; seed <= 3; seed++)
        takes(buffers[0], 200 * (seed - 1), 200, seed, false);
    struct fi_cq_err_entry error = await_error(&ends[1]);
    check_int("a message longer than the rest", FI_ETRUNC, error.err);
    check_int("overflow", 10, (long long)error.olen);
    check_int("length", 190, (long long)error.len);
    check_int("the buffer is given back", FI_MULTI_RECV, (long long)(error.flags & FI_MULTI_RECV));
    check_filled("data", buffers[0] + 600, 190, 4);
    OK(post(&ends[1], buffers[1], 250, 0));
    takes(buffers[1], 0, 200, 5, true);

    check_case("a buffer is used up before a receive that was posted after it");
    OK(post(&ends[1], buffers[0], 1000, 0));
    OK(post(&ends[1], buffers[1], 1000, 0));
    OK(fi_recv(ends[1].ep, plain, sizeof plain, NULL, FI_ADDR_UNSPEC, plain));
    for (unsigned seed = 1; seed <= 5; seed++)
        send_bytes(&ends[0], &ends[1], 400, seed);
    for (unsigned seed = 1; seed <= 2; seed++)
        takes(buffers[0], 400 * (seed - 1), 400, seed, false);
    error = await_error(&ends[1]);
    check_pointer("the buffer", buffers[0], error.op_context);
    check_int("length", 200, (long long)error.len);
    takes(buffers[1], 0, 400, 4, false);
    takes(buffers[1], 400, 400, 5, false);
    send_bytes(&ends[0], &ends[1], 200, 6);
    takes(buffers[1], 800, 200, 6, true);
    send_bytes(&ends[0], &ends[1], 10, 7);
    await_of(&ends[1], "the receive behind the buffers", plain);
    check_filled("data", plain, 10, 7);

    check_case("a cancelled buffer is given back, and those behind it take its place");
    OK(post(&ends[1], buffers[0], 1000, 0));
    OK(post(&ends[1], buffers[1], 1000, 0));
    send_bytes(&ends[0], &ends[1], 400, 1);
    takes(buffers[0], 0, 400, 1, false);
    OK(fi_cancel(&ends[1].ep->fid, buffers[0]));
    error = await_error(&ends[1]);
    check_int("err", FI_ECANCELED, error.err);
    check_pointer("context", buffers[0], error.op_context);
    check_int("flags", FI_MSG | FI_RECV | FI_MULTI_RECV, (long long)error.flags);
    send_bytes(&ends[0], &ends[1], 950, 2);
    takes(buffers[1], 0, 950, 2, true);
    check_int("another cancel", -FI_ENOENT, fi_cancel(&ends[1].ep->fid, buffers[0]));

    check_case("a directed buffer takes messages of its source");
    struct iovec room = {buffers[0], 300};
    struct fi_msg message = {.msg_iov = &room, .iov_count = 1, .addr = ends[1].to[2], .context = buffers[0]};
    OK(fi_recvmsg(ends[1].ep, &message, FI_MULTI_RECV));
    OK(post(&ends[1], buffers[1], 300, 0));
    send_bytes(&ends[0], &ends[1], 250, 1);
    takes(buffers[1], 0, 250, 1, true);
    send_bytes(&ends[2], &ends[1], 250, 2);
    takes(buffers[0], 0, 250, 2, true);

    check_case("messages of an endpoint to itself go into a buffer");
    OK(post(&ends[1], buffers[0], 500, 0));
    send_bytes(&ends[1], &ends[1], 450, 3);
    takes(buffers[0], 0, 450, 3, true);

    check_case("a buffer for several tagged messages, or in pieces, is refused");
    struct iovec rooms[2] = {{buffers[0], 500}, {buffers[1], 500}};
    struct fi_msg pieces = {.msg_iov = rooms, .iov_count = 2, .addr = FI_ADDR_UNSPEC};
    check_int("in pieces", -FI_EINVAL, fi_recvmsg(ends[1].ep, &pieces, FI_MULTI_RECV));
    struct fi_msg_tagged tagged = {.msg_iov = rooms, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    check_int("tagged", -FI_EBADFLAGS, fi_trecvmsg(ends[1].ep, &tagged, FI_MULTI_RECV));
    close_endpoints();

    // With the flag as the default of receives, and completions for those who ask for one.
    open_endpoints((struct setup){.endpoints = 2, .selective = FI_SELECTIVE_COMPLETION, .rx_flags = FI_MULTI_RECV});
    check_case("the entry that gives a buffer back is written even if others are not");
    OK(fi_setopt(&ends[1].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, length));
    OK(fi_recv(ends[1].ep, buffers[0], 1000, NULL, FI_ADDR_UNSPEC, buffers[0]));
    for (unsigned seed = 1; seed <= 2; seed++)
        send_bytes(&ends[0], &ends[1], 475, seed);
    takes(buffers[0], 475, 475, 2, true);
    check_filled("data", buffers[0], 475, 1);

    check_case("the default flag FI_MULTI_RECV is for untagged receives");
    OK(fi_trecv(ends[1].ep, plain, sizeof plain, NULL, FI_ADDR_UNSPEC, 1, 0, plain));
    struct iovec piece = {plain, sizeof plain};
    struct fi_msg_tagged reported = {
        .msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = out};
    OK(fi_trecvmsg(ends[1].ep, &reported, FI_COMPLETION));
    for (int i = 0; i < 2; i++)
        OK(fi_tinject(ends[0].ep, NULL, 0, ends[0].to[1], 1));
    await_of(&ends[1], "the second receive", out);
    check_nothing(&ends[1]);

    close_endpoints();
    return check_finish();
}
