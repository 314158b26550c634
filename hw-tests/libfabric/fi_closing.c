// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Closing (fi_endpoint(3), fi_cq(3), fi_av(3), fi_domain(3)): objects in use are busy, an endpoint closes with
// operations outstanding, and the others go on. No arguments.
#include "endpoints.h"

static char in[1 << 16], out[1 << 16];

static void busy(const char *what, struct fid *fid) { check_int(what, -FI_EBUSY, fi_close(fid)); }

static void passes(int from, int to, size_t length) {
    fill(out, length, 5);
    OK(fi_trecv(ends[to].ep, in, length, NULL, FI_ADDR_UNSPEC, 9, 0, in));
    OK(fi_tsend(ends[from].ep, out, length, NULL, ends[from].to[to], 9, out));
    if (ends[from].cq != ends[to].cq) {
        await_of(&ends[from], "the send", out);
        await_of(&ends[to], "the receive", in);
    } else {
        const void *first = await(&ends[to]).op_context, *second = await(&ends[to]).op_context;
        check_true("both end", (first == in && second == out) || (first == out && second == in));
    }
    check_filled("data", in, length, 5);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});
    check_case("what an endpoint uses is busy until it is closed");
    passes(0, 1, 8);
    for (int i = 0; i < 2; i++) {
        busy("a queue", &ends[i].cq->fid);
        busy("a vector", &ends[i].av->fid);
    }
    busy("a domain", &domains[0]->fid);
    busy("a fabric", &fabric->fid);
    passes(1, 0, 8);

    check_case("an endpoint closes with operations outstanding, which touch no memory later and report nothing");
    memset(in, 1, sizeof in);
    OK(fi_trecv(ends[1].ep, in, 100, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    OK(fi_recv(ends[1].ep, in, 100, NULL, FI_ADDR_UNSPEC, in));
    OK(fi_tsend(ends[1].ep, out, sizeof out, NULL, ends[1].to[0], 1, out));
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 7)); // unexpected
    for (int i = 0; i < 100; i++)
        progress();
    OK(fi_close(&ends[1].ep->fid));
    check_int("a read of the queue", -FI_EAGAIN, fi_cq_read(ends[1].cq, NULL, 0));
    for (size_t i = 0; i < 100; i++)
        check_int("a byte of the receive", 1, in[i]);
    busy("a domain with a vector and a queue", &domains[0]->fid);

    check_case("another endpoint takes over the queue and the vector of a closed one");
    OK(fi_endpoint(domains[0], info, &ends[1].ep, NULL));
    OK(fi_ep_bind(ends[1].ep, &ends[1].av->fid, 0));
    OK(fi_ep_bind(ends[1].ep, &ends[1].cq->fid, FI_TRANSMIT | FI_RECV));
    OK(fi_enable(ends[1].ep));
    name_each_other();
    passes(0, 1, 8);
    passes(1, 0, sizeof in);

    check_case("an endpoint that was not enabled, or only bound, closes");
    struct fid_ep *ep;
    OK(fi_endpoint(domains[0], info, &ep, NULL));
    OK(fi_close(&ep->fid));
    OK(fi_endpoint(domains[0], info, &ep, NULL));
    OK(fi_ep_bind(ep, &ends[1].cq->fid, FI_TRANSMIT | FI_RECV));
    busy("a queue", &ends[1].cq->fid);
    OK(fi_close(&ep->fid));
    passes(1, 0, 8);
    close_endpoints();

    open_endpoints((struct setup){.endpoints = 3, .one_queue = true});
    check_case("a queue with unread entries of a closed endpoint serves the other endpoints");
    OK(fi_trecv(ends[2].ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &in[1]));
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[2], 1));
    while (fi_cq_read(ends[0].cq, NULL, 0) != 0)
        ;
    OK(fi_close(&ends[2].ep->fid));
    // The entry may be there or not.
    if (fi_cq_read(ends[0].cq, NULL, 0) == 0)
        await_of(&ends[0], "the receive of the closed endpoint", &in[1]);
    count = 2;
    passes(0, 1, sizeof in);
    passes(1, 0, sizeof in);
    OK(fi_close(&ends[2].av->fid));

    check_case("endpoints come and go, and messages arrive");
    struct fid_av *av = ends[1].av;
    for (int round = 0; round < 5; round++) {
        OK(fi_close(&ends[1].ep->fid));
        OK(fi_endpoint(domains[0], info, &ends[1].ep, NULL));
        OK(fi_ep_bind(ends[1].ep, &av->fid, 0));
        OK(fi_ep_bind(ends[1].ep, &ends[1].cq->fid, FI_TRANSMIT | FI_RECV));
        OK(fi_enable(ends[1].ep));
        OK(fi_av_remove(ends[0].av, &ends[0].to[1], 1, 0));
        OK(fi_av_remove(ends[1].av, &ends[1].to[0], 1, 0));
        OK(fi_av_remove(ends[1].av, &ends[1].to[1], 1, 0));
        OK(fi_av_remove(ends[0].av, &ends[0].to[0], 1, 0));
        name_each_other();
        passes(0, 1, 8);
        passes(1, 0, sizeof in);
    }
    close_endpoints();
    return check_finish();
}
