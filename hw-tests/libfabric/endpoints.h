// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs that test the provider's calls by libfabric's manual pages: up to three endpoints of one
// process, each with a vector of all addresses and a completion queue. A program: open_endpoints(), cases and checks
// (check.h), close_endpoints() and `return check_finish();`.
//
// Progress is manual: await() makes all endpoints progress, whichever it waits for. Only the main thread calls these
// functions, unless they say otherwise. A program that waits in vain does so until its caller ends it; its last line
// says where.
#pragma once

#include "check.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 };

struct endpoint {
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    fi_addr_t to[MOST]; // the address of each endpoint, this one included, in its vector
};

// What endpoints are like. Zeros: one domain, all capabilities, queues of the tagged format without a wait object.
struct setup {
    int endpoints;
    int domains;            // endpoint i is of domain i % domains
    uint64_t caps;          // what to ask for; 0: all that is offered
    int mr_mode;            // how memory regions may be registered; 0: one-sided operations are not offered
    uint64_t selective;     // FI_SELECTIVE_COMPLETION or 0
    uint64_t tx_flags, rx_flags; // default flags of operations
    bool one_queue;         // all endpoints report to the queue of the first
    struct fi_cq_attr queue;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domains[MOST];
static struct endpoint ends[MOST];
static int count;

static inline void open_fabric(struct setup setup) {
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("ibex");
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = setup.mr_mode;
    hints->caps = setup.caps;
    hints->tx_attr->op_flags = setup.tx_flags;
    hints->rx_attr->op_flags = setup.rx_flags;
    OK(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    for (int i = 0; i < (setup.domains ? setup.domains : 1); i++)
        OK(fi_domain(fabric, info, &domains[i], NULL));
}

static inline void open_queue(struct endpoint *end, struct fi_cq_attr attributes) {
    if (attributes.format == FI_CQ_FORMAT_UNSPEC)
        attributes.format = FI_CQ_FORMAT_TAGGED;
    OK(fi_cq_open(end->domain, &attributes, &end->cq, end));
}

static inline void open_vector(struct endpoint *end) {
    struct fi_av_attr attributes = {.type = FI_AV_TABLE};
    OK(fi_av_open(end->domain, &attributes, &end->av, NULL));
}

// Stores the address of an endpoint; returns its length.
static inline size_t name_of(const struct endpoint *end, char *name) {
    size_t length = FI_NAME_MAX;
    OK(fi_getname(&end->ep->fid, name, &length));
    return length;
}

// Inserts the address of each endpoint into the vector of each.
static inline void name_each_other(void) {
    char name[FI_NAME_MAX];
    for (int of = 0; of < count; of++) {
        name_of(&ends[of], name);
        for (int in = 0; in < count; in++)
            check_int("fi_av_insert", 1, fi_av_insert(ends[in].av, name, 1, &ends[in].to[of], 0, NULL));
    }
}

static inline void open_endpoints(struct setup setup) {
    check_case("open");
    open_fabric(setup);
    count = setup.endpoints;
    for (int i = 0; i < count; i++) {
        struct endpoint *end = &ends[i];
        end->domain = domains[setup.domains ? i % setup.domains : 0];
        open_vector(end);
        if (i > 0 && setup.one_queue)
            end->cq = ends[0].cq;
        else
            open_queue(end, setup.queue);
        OK(fi_endpoint(end->domain, info, &end->ep, end));
        OK(fi_ep_bind(end->ep, &end->av->fid, 0));
        OK(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV | setup.selective));
        OK(fi_enable(end->ep));
    }
    name_each_other();
}

static inline void close_endpoints(void) {
    check_case("close");
    for (int i = 0; i < count; i++)
        OK(fi_close(&ends[i].ep->fid));
    for (int i = 0; i < count; i++) {
        OK(fi_close(&ends[i].av->fid));
        if (i == 0 || ends[i].cq != ends[0].cq)
            OK(fi_close(&ends[i].cq->fid));
    }
    for (int i = 0; i < MOST; i++)
        if (domains[i])
            OK(fi_close(&domains[i]->fid));
    OK(fi_close(&fabric->fid));
    fi_freeinfo(info);
    memset(domains, 0, sizeof domains);
}

// Makes all endpoints progress. Reads nothing.
static inline void progress(void) {
    for (int i = 0; i < count; i++)
        (void)fi_cq_read(ends[i].cq, NULL, 0);
}

typedef struct fi_cq_tagged_entry entry;

// Waits for the next completion of an endpoint.
static inline entry await_from(const struct endpoint *end, fi_addr_t *source) {
    entry got;
    ssize_t code;
    while ((code = fi_cq_readfrom(end->cq, &got, 1, source)) == -FI_EAGAIN)
        progress();
    if (code != 1) {
        struct fi_cq_err_entry error = {0};
        (void)fi_cq_readerr(end->cq, &error, 0);
        check_fail("a completion: got %zd (%s)", code, fi_strerror(error.err));
        exit(1);
    }
    return got;
}

static inline entry await(const struct endpoint *end) { return await_from(end, NULL); }

// Waits for the next completion of an endpoint, which is to have this context.
static inline entry await_of(const struct endpoint *end, const char *what, const void *context) {
    entry got = await(end);
    check_pointer(what, context, got.op_context);
    return got;
}

// Waits for a failed operation of an endpoint.
static inline struct fi_cq_err_entry await_error(const struct endpoint *end) {
    entry got;
    struct fi_cq_err_entry error = {0};
    ssize_t code;
    while ((code = fi_cq_read(end->cq, &got, 1)) == -FI_EAGAIN)
        progress();
    check_int("a read of a queue with an error", -FI_EAVAIL, code);
    check_int("fi_cq_readerr", 1, fi_cq_readerr(end->cq, &error, 0));
    return error;
}

// Checks that no operation of an endpoint ends soon.
static inline void check_nothing(const struct endpoint *end) {
    entry got;
    for (int i = 0; i < 2000; i++) {
        progress();
        check_int("a read of an empty queue", -FI_EAGAIN, fi_cq_read(end->cq, &got, 1));
    }
}

// On return all short messages of one endpoint to another have arrived: messages do not overtake each other.
static inline void flush(const struct endpoint *from, const struct endpoint *to) {
    static char context;
    OK(fi_recv(to->ep, NULL, 0, NULL, to->to[from - ends], &context));
    OK(fi_inject(from->ep, NULL, 0, from->to[to - ends]));
    check_pointer("flush", &context, await(to).op_context);
}

static inline void fill(void *buffer, size_t length, unsigned seed) {
    unsigned char *at = buffer;
    for (size_t i = 0; i < length; i++)
        at[i] = (unsigned char)(seed * 31 + i + i / 251);
}

static inline void check_filled(const char *what, const void *buffer, size_t length, unsigned seed) {
    const unsigned char *at = buffer;
    for (size_t i = 0; i < length; i++)
        if (at[i] != (unsigned char)(seed * 31 + i + i / 251))
            return check_fail("%s: byte %zu of %zu differs", what, i, length);
}
