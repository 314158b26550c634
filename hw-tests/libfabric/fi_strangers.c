// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Senders that the receiver has not inserted (fi_cq(3), fi_av(3)): their messages come from FI_ADDR_NOTAVAIL, receives
// of other addresses do not take them, and once the address is inserted they come from its index. Endpoint 1 is a
// server that knows endpoint 2 and learns the address of endpoint 0 from a message. No arguments.
#include "endpoints.h"

enum { LONG = 1 << 18 };

static char in[LONG], out[LONG];

// Endpoint `from` sends, endpoint 1 receives from any source; returns the source.
static fi_addr_t source_of(int from, size_t length) {
    fi_addr_t source = 77;
    fill(out, length, (unsigned)length);
    OK(fi_trecv(ends[1].ep, in, length, NULL, FI_ADDR_UNSPEC, 5, 0, in));
    OK(fi_tsend(ends[from].ep, out, length, NULL, ends[from].to[1], 5, out));
    check_pointer("the receive", in, await_from(&ends[1], &source).op_context);
    await_of(&ends[from], "the send", out);
    check_filled("data", in, length, (unsigned)length);
    return source;
}

static void comes_from(const char *what, fi_addr_t expected, fi_addr_t got) {
    check_int(what, (long long)expected, (long long)got);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 3});
    OK(fi_av_remove(ends[1].av, &ends[1].to[0], 1, 0));

    check_case("messages of each length come from nowhere");
    static const size_t lengths[] = {0, 8, 5000, 40000, LONG};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        comes_from("the source", FI_ADDR_NOTAVAIL, source_of(0, lengths[i]));
    comes_from("the source of a message of a known sender", ends[1].to[2], source_of(2, 8));

    check_case("a receive of another address does not take them");
    fi_addr_t source;
    OK(fi_trecv(ends[1].ep, in, 8, NULL, ends[1].to[2], 6, 0, &in[0]));
    OK(fi_trecv(ends[1].ep, in + 8, 8, NULL, FI_ADDR_UNSPEC, 6, 0, &in[1]));
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 6));
    check_pointer("the receive of any source", &in[1], await_from(&ends[1], &source).op_context);
    comes_from("its source", FI_ADDR_NOTAVAIL, source);
    OK(fi_tinject(ends[2].ep, out, 8, ends[2].to[1], 6));
    check_pointer("the receive of one source", &in[0], await_from(&ends[1], &source).op_context);
    comes_from("its source", ends[1].to[2], source);

    check_case("a search finds one, and nothing by another address");
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 7));
    struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = 7, .context = &in[2]};
    entry found = {0};
    while (!found.op_context) {
        OK(fi_trecvmsg(ends[1].ep, &peek, FI_PEEK));
        ssize_t code;
        while ((code = fi_cq_readfrom(ends[1].cq, &found, 1, &source)) == -FI_EAGAIN)
            progress();
        if (code < 0)
            check_int("fi_cq_readerr", 1, fi_cq_readerr(ends[1].cq, &(struct fi_cq_err_entry){0}, 0));
    }
    comes_from("the source of what was found", FI_ADDR_NOTAVAIL, source);
    peek.addr = ends[1].to[2];
    OK(fi_trecvmsg(ends[1].ep, &peek, FI_PEEK));
    check_int("a search by another address", FI_ENOMSG, await_error(&ends[1]).err);
    OK(fi_trecv(ends[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, 7, 0, in));
    await_of(&ends[1], "the message", in);

    check_case("a server inserts the address that a message brings, and answers");
    size_t length = name_of(&ends[0], out);
    OK(fi_recv(ends[1].ep, in, FI_NAME_MAX, NULL, FI_ADDR_UNSPEC, in));
    OK(fi_inject(ends[0].ep, out, length, ends[0].to[1]));
    check_pointer("the request", in, await_from(&ends[1], &source).op_context);
    comes_from("its source", FI_ADDR_NOTAVAIL, source);
    check_int("fi_av_insert", 1, fi_av_insert(ends[1].av, in, 1, &ends[1].to[0], 0, NULL));
    OK(fi_recv(ends[0].ep, out, 8, NULL, ends[0].to[1], out));
    OK(fi_inject(ends[1].ep, in, 8, ends[1].to[0]));
    await_of(&ends[0], "the answer", out);

    check_case("its messages come from the index from then on");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        comes_from("the source", ends[1].to[0], source_of(0, lengths[i]));
    OK(fi_trecv(ends[1].ep, in, 8, NULL, ends[1].to[0], 6, 0, in));
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 6));
    await_of(&ends[1], "a receive of this address", in);
    close_endpoints();
    return check_finish();
}
