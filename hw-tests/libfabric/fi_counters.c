// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counters (fi_cntr(3), fi_ep_bind of fi_endpoint(3)): what counts as a success and what as an error, with and without
// completions, and arithmetic. No arguments.
#include "endpoints.h"

static struct fid_cntr *sends, *receives;
static char in[64], out[64];

static void open_counted(void) {
    check_case("open");
    open_fabric((struct setup){0});
    count = 2;
    struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP};
    OK(fi_cntr_open(domains[0], &attributes, &sends, NULL));
    attributes.wait_obj = FI_WAIT_UNSPEC;
    OK(fi_cntr_open(domains[0], &attributes, &receives, NULL));
    for (int i = 0; i < count; i++) {
        struct endpoint *end = &ends[i];
        end->domain = domains[0];
        open_vector(end);
        open_queue(end, (struct fi_cq_attr){0});
        OK(fi_endpoint(end->domain, info, &end->ep, end));
        OK(fi_ep_bind(end->ep, &end->av->fid, 0));
        OK(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
        if (i == 0) {
            OK(fi_ep_bind(end->ep, &sends->fid, FI_SEND));
            check_int("a second counter of sends", -FI_EINVAL, fi_ep_bind(end->ep, &receives->fid, FI_SEND));
            check_int("a counter of nothing", -FI_EINVAL, fi_ep_bind(end->ep, &receives->fid, 0));
        }
        OK(fi_enable(end->ep));
        // As Sandia OpenSHMEM does.
        if (i == 1)
            OK(fi_ep_bind(end->ep, &receives->fid, FI_RECV));
    }
    name_each_other();
}

static void reaches(const char *what, struct fid_cntr *counter, uint64_t value, uint64_t errors) {
    while (fi_cntr_read(counter) < value || fi_cntr_readerr(counter) < errors)
        progress();
    for (int i = 0; i < 500; i++)
        progress();
    check_int(what, (long long)value, (long long)fi_cntr_read(counter));
    check_int("errors", (long long)errors, (long long)fi_cntr_readerr(counter));
}

static void receive(size_t room, void *context) {
    OK(fi_trecv(ends[1].ep, in, room, NULL, FI_ADDR_UNSPEC, 1, 0, context));
}

int main(void) {
    open_counted();

    check_case("operations count once they have ended, whether or not they have completions");
    check_int("sends", 0, (long long)fi_cntr_read(sends));
    for (int i = 0; i < 3; i++)
        receive(sizeof in, in);
    check_int("receives", 0, (long long)fi_cntr_read(receives));
    OK(fi_tsend(ends[0].ep, out, 8, NULL, ends[0].to[1], 1, out));
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    struct iovec data = {out, 8};
    struct fi_msg_tagged message = {.msg_iov = &data, .iov_count = 1, .addr = ends[0].to[1], .tag = 1, .context = out};
    OK(fi_tsendmsg(ends[0].ep, &message, FI_COMPLETION));
    reaches("sends", sends, 3, 0);
    reaches("receives", receives, 3, 0);
    await_of(&ends[0], "the send with a completion", out);
    check_nothing(&ends[0]);
    check_nothing(&ends[1]);

    check_case("untagged messages count as well");
    OK(fi_recv(ends[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, in));
    OK(fi_inject(ends[0].ep, out, 8, ends[0].to[1]));
    reaches("sends", sends, 4, 0);
    reaches("receives", receives, 4, 0);

    check_case("a counter that is bound to an endpoint behind fi_enable wakes a thread that sleeps");
    receive(sizeof in, in);
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    OK(fi_cntr_wait(receives, 5, -1));
    reaches("sends", sends, 5, 0);
    OK(fi_cntr_set(sends, 4));
    OK(fi_cntr_set(receives, 4));

    check_case("an operation that fails counts as an error and not as a success");
    receive(4, in);
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    reaches("sends", sends, 5, 0);
    reaches("receives", receives, 4, 1);
    check_int("err", FI_ETRUNC, await_error(&ends[1]).err);
    receive(4, in);
    OK(fi_cancel(&ends[1].ep->fid, in));
    reaches("receives", receives, 4, 2);
    check_int("err", FI_ECANCELED, await_error(&ends[1]).err);

    check_case("a search counts neither as a receive nor as an error, and a receive of what it claimed does");
    struct fi_context context;
    struct iovec room = {in, sizeof in};
    struct fi_msg_tagged search = {
        .msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = &context};
    OK(fi_trecvmsg(ends[1].ep, &search, FI_PEEK));
    check_int("err", FI_ENOMSG, await_error(&ends[1]).err);
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    ssize_t code;
    do { // until the message is there
        OK(fi_trecvmsg(ends[1].ep, &search, FI_PEEK | FI_CLAIM | FI_COMPLETION));
        code = fi_cq_read(ends[1].cq, &(entry){0}, 1);
        if (code != 1)
            check_int("err", FI_ENOMSG, await_error(&ends[1]).err);
    } while (code != 1);
    reaches("receives", receives, 4, 2);
    OK(fi_trecvmsg(ends[1].ep, &search, FI_CLAIM));
    reaches("receives", receives, 5, 2);

    check_case("a counter is set and added to, and so are its errors");
    OK(fi_cntr_set(receives, 0));
    OK(fi_cntr_add(receives, 41));
    OK(fi_cntr_seterr(receives, 0));
    OK(fi_cntr_adderr(receives, 3));
    receive(8, in);
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    reaches("receives", receives, 42, 3);
    OK(fi_cntr_set(receives, UINT64_MAX));
    OK(fi_cntr_add(receives, 2));
    check_int("a sum beyond the largest number", 1, (long long)fi_cntr_read(receives));

    check_case("a counter in use is busy, and other kinds of counters are refused");
    check_int("fi_close", -FI_EBUSY, fi_close(&receives->fid));
    struct fid_cntr *other;
    struct fi_cntr_attr bytes = {.events = FI_CNTR_EVENTS_COMP + 1};
    check_int("events", -FI_ENOSYS, fi_cntr_open(domains[0], &bytes, &other, NULL));
    struct fi_cntr_attr flags = {.flags = 1};
    check_int("flags", -FI_EBADFLAGS, fi_cntr_open(domains[0], &flags, &other, NULL));
    for (int i = 0; i < count; i++)
        OK(fi_close(&ends[i].ep->fid));
    OK(fi_close(&sends->fid));
    OK(fi_close(&receives->fid));
    count = 0;
    for (int i = 0; i < 2; i++) {
        OK(fi_close(&ends[i].av->fid));
        OK(fi_close(&ends[i].cq->fid));
    }
    close_endpoints();
    return check_finish();
}
