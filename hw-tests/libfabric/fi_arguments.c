// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Calls with wrong arguments, or at the wrong time: each returns an error number and changes nothing. No arguments.
#include "endpoints.h"

static char in[64], out[64];

static void opening(void) {
    check_case("objects are not opened with attributes that are wrong or not there");
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_domain *domain;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED + 1};
    check_int("a queue's format", -FI_EINVAL, fi_cq_open(domains[0], &queue, &cq, NULL));
    queue = (struct fi_cq_attr){.wait_obj = FI_WAIT_SET};
    check_int("a queue's wait object", -FI_ENOSYS, fi_cq_open(domains[0], &queue, &cq, NULL));
    queue = (struct fi_cq_attr){.flags = FI_FENCE};
    check_int("a queue's flags", -FI_EBADFLAGS, fi_cq_open(domains[0], &queue, &cq, NULL));
    check_int("a queue without a place", -FI_EINVAL, fi_cq_open(domains[0], NULL, NULL, NULL));
    struct fi_av_attr vector = {.type = FI_AV_TABLE + 1};
    check_int("a vector's type", -FI_EINVAL, fi_av_open(domains[0], &vector, &av, NULL));
    vector = (struct fi_av_attr){.flags = FI_FENCE};
    check_int("a vector's flags", -FI_EBADFLAGS, fi_av_open(domains[0], &vector, &av, NULL));
    vector = (struct fi_av_attr){.flags = FI_EVENT};
    check_int("a vector with events", -FI_ENOSYS, fi_av_open(domains[0], &vector, &av, NULL));
    check_int("a vector without attributes", -FI_EINVAL, fi_av_open(domains[0], NULL, &av, NULL));
    check_int("an endpoint without an info", -FI_EINVAL, fi_endpoint(domains[0], NULL, &ep, NULL));
    check_int("a domain without an info", -FI_EINVAL, fi_domain(fabric, NULL, &domain, NULL));
    info->ep_attr->type = FI_EP_MSG;
    check_true("an endpoint of another type", fi_endpoint(domains[0], info, &ep, NULL) < 0);
    info->ep_attr->type = FI_EP_RDM;
}

// Enables an endpoint with these capabilities, bound to a vector, and to a queue if there are flags.
static int enabled(uint64_t caps, uint64_t flags) {
    struct fid_ep *ep;
    struct fi_info *asked = fi_dupinfo(info);
    asked->caps = caps;
    OK(fi_endpoint(domains[0], asked, &ep, NULL));
    fi_freeinfo(asked);
    OK(fi_ep_bind(ep, &ends[0].av->fid, 0));
    if (flags)
        OK(fi_ep_bind(ep, &ends[0].cq->fid, flags));
    int code = fi_enable(ep);
    OK(fi_close(&ep->fid));
    return code;
}

static void queues(void) {
    check_case("an endpoint needs a queue for what it starts, and one for what it receives");
    check_int("sends", 0, enabled(FI_TAGGED | FI_SEND, FI_TRANSMIT));
    check_int("sends, without it", -FI_ENOCQ, enabled(FI_TAGGED | FI_SEND, FI_RECV));
    check_int("receives", 0, enabled(FI_MSG | FI_RECV, FI_RECV));
    check_int("receives, without it", -FI_ENOCQ, enabled(FI_MSG | FI_RECV, FI_TRANSMIT));
    check_int("one-sided operations", 0, enabled(FI_RMA, FI_TRANSMIT));
    check_int("reads, without it", -FI_ENOCQ, enabled(FI_MSG | FI_RECV | FI_RMA | FI_READ, FI_RECV));
    check_int("atomic operations, without it", -FI_ENOCQ, enabled(FI_ATOMIC, FI_RECV));
    check_int("none: it is only a target", 0, enabled(FI_RMA | FI_REMOTE_WRITE, 0));
}

static void enabling(void) {
    check_case("an endpoint does nothing until it is bound to what it needs and enabled");
    struct fid_ep *ep;
    size_t length = FI_NAME_MAX;
    OK(fi_endpoint(domains[0], info, &ep, NULL));
    check_int("fi_send", -FI_EOPBADSTATE, fi_send(ep, out, 8, NULL, 0, NULL));
    check_int("fi_recv", -FI_EOPBADSTATE, fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL));
    check_int("fi_getname", -FI_EOPBADSTATE, fi_getname(&ep->fid, in, &length));
    check_int("fi_cancel", -FI_EOPBADSTATE, fi_cancel(&ep->fid, in));
    check_int("fi_enable without a queue", -FI_ENOCQ, fi_enable(ep));
    struct fid_cq *cq = ends[0].cq;
    check_int("a queue for nothing", -FI_EINVAL, fi_ep_bind(ep, &cq->fid, 0));
    check_int("a queue with a wrong flag", -FI_EINVAL, fi_ep_bind(ep, &cq->fid, FI_SEND | FI_MORE));
    OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT));
    check_int("a second queue of sends", -FI_EINVAL, fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    check_int("the queue of receives is not bound by that", -FI_ENOCQ, fi_enable(ep));
    OK(fi_ep_bind(ep, &cq->fid, FI_RECV));
    check_int("fi_enable without a vector", -FI_ENOAV, fi_enable(ep));
    check_int("a domain", -FI_EINVAL, fi_ep_bind(ep, &domains[0]->fid, 0));
    OK(fi_ep_bind(ep, &ends[0].av->fid, 0));
    check_int("a second vector", -FI_EINVAL, fi_ep_bind(ep, &ends[1].av->fid, 0));
    OK(fi_enable(ep));
    check_int("fi_enable again", -FI_EOPBADSTATE, fi_enable(ep));
    check_int("fi_ep_bind", -FI_EOPBADSTATE, fi_ep_bind(ep, &cq->fid, FI_RECV));
    OK(fi_close(&ep->fid));
}

static void transfers(void) {
    struct fid_ep *ep = ends[0].ep;
    fi_addr_t to = ends[0].to[1];
    check_case("transfers without data, or with flags or addresses that are none, are refused");
    check_int("fi_send of no memory", -FI_EINVAL, fi_send(ep, NULL, 8, NULL, to, NULL));
    check_int("fi_tsend of no memory", -FI_EINVAL, fi_tsend(ep, NULL, 8, NULL, to, 1, NULL));
    check_int("fi_inject of no memory", -FI_EINVAL, fi_inject(ep, NULL, 8, to));
    check_int("fi_recv into no memory", -FI_EINVAL, fi_recv(ep, NULL, 8, NULL, FI_ADDR_UNSPEC, NULL));
    check_int("fi_trecv into no memory", -FI_EINVAL, fi_trecv(ep, NULL, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
    struct iovec none = {NULL, 8}, some = {in, 8};
    check_int("fi_sendv of no pieces", -FI_EINVAL, fi_sendv(ep, NULL, NULL, 1, to, NULL));
    check_int("fi_sendv of no memory", -FI_EINVAL, fi_sendv(ep, &none, NULL, 1, to, NULL));
    check_int("fi_recvv into no pieces", -FI_EINVAL, fi_recvv(ep, NULL, NULL, 2, FI_ADDR_UNSPEC, NULL));
    check_int("fi_sendmsg of nothing", -FI_EINVAL, fi_sendmsg(ep, NULL, 0));
    check_int("fi_trecvmsg of nothing", -FI_EINVAL, fi_trecvmsg(ep, NULL, 0));
    struct fi_msg message = {.msg_iov = &some, .iov_count = 1, .addr = to};
    struct fi_msg_tagged tagged = {.msg_iov = &some, .iov_count = 1, .addr = to};
    check_int("flags of fi_sendmsg", -FI_EBADFLAGS, fi_sendmsg(ep, &message, FI_PEEK));
    check_int("flags of fi_tsendmsg", -FI_EBADFLAGS, fi_tsendmsg(ep, &tagged, 1ull << 63));
    check_int("flags of fi_recvmsg", -FI_EBADFLAGS, fi_recvmsg(ep, &message, FI_INJECT));
    check_int("flags of fi_trecvmsg", -FI_EBADFLAGS, fi_trecvmsg(ep, &tagged, FI_DELIVERY_COMPLETE));
    const fi_addr_t nobody[] = {FI_ADDR_UNSPEC, 1000, 1ull << 40};
    for (int i = 0; i < 3; i++) {
        check_int("fi_send to nobody", -FI_EINVAL, fi_send(ep, out, 8, NULL, nobody[i], NULL));
        check_int("fi_tinject to nobody", -FI_EINVAL, fi_tinject(ep, out, 8, nobody[i], 1));
        if (i > 0)
            check_int("fi_trecv of nobody", -FI_EINVAL, fi_trecv(ep, in, 8, NULL, nobody[i], 1, 0, NULL));
    }
    check_int("FI_RMA is not offered", 0, (long long)(info->caps & FI_RMA));

    check_case("receives may be asked to complete once this process has their data");
    tagged = (struct fi_msg_tagged){.msg_iov = &some, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in};
    OK(fi_trecvmsg(ends[1].ep, &tagged, FI_TRANSMIT_COMPLETE));
    OK(fi_tinject(ep, out, 8, to, 0));
    await_of(&ends[1], "the receive", in);
    check_nothing(&ends[0]);
    check_nothing(&ends[1]);
}

static void others(void) {
    check_case("queues, options and commands refuse what they do not know");
    entry got;
    OK(fi_tinject(ends[1].ep, out, 8, ends[1].to[1], 3));
    OK(fi_trecv(ends[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, in));
    check_int("fi_cq_read into no memory", -FI_EINVAL, fi_cq_read(ends[1].cq, NULL, 1));
    await_of(&ends[1], "the receive", in);
    check_int("fi_cq_readerr into no memory", -FI_EINVAL, fi_cq_readerr(ends[1].cq, NULL, 0));
    check_int("fi_cq_sread without a wait object", -FI_EINVAL, fi_cq_sread(ends[1].cq, &got, 1, NULL, 0));
    check_int("fi_cq_signal without a wait object", -FI_EINVAL, fi_cq_signal(ends[1].cq));
    struct fid *queue = &ends[1].cq->fid, *vector = &ends[1].av->fid;
    check_int("fi_trywait without a wait object", -FI_EINVAL, fi_trywait(fabric, &queue, 1));
    check_int("fi_trywait of a vector", -FI_EINVAL, fi_trywait(fabric, &vector, 1));
    size_t value = 64, length = sizeof value;
    struct fid *fid = &ends[0].ep->fid;
    check_int("an option", -FI_ENOPROTOOPT, fi_setopt(fid, FI_OPT_ENDPOINT, 99, &value, length));
    check_int("a level", -FI_ENOPROTOOPT, fi_setopt(fid, 99, FI_OPT_MIN_MULTI_RECV, &value, length));
    check_int("a value", -FI_EINVAL, fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, length));
    check_int("a length", -FI_EINVAL, fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 1));
    length = 1;
    int code = fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length);
    check_int("room for an option", -FI_ETOOSMALL, code);
    check_int("its length", sizeof value, (long long)length);
    check_int("a command of endpoints", -FI_ENOSYS, fi_control(fid, 99, NULL));
    check_int("a command of queues", -FI_ENOSYS, fi_control(&ends[0].cq->fid, 99, NULL));
    check_int("the wait object of a queue that has none", -FI_ENOSYS, fi_control(&ends[0].cq->fid, FI_GETWAIT, &value));
    check_true("the text of no error", strlen(fi_cq_strerror(ends[0].cq, 99, NULL, NULL, 0)) > 0);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});
    opening();
    queues();
    enabling();
    transfers();
    others();
    close_endpoints();
    return check_finish();
}
