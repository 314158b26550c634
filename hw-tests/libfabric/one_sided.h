// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs of one-sided operations: three endpoints of one process, `a` in a domain of its own, `b` and
// `c` in another, where `b`'s memory is registered. Progress is manual: await() reads the queues of all endpoints. A
// program that waits in vain does so until its caller ends it.
#pragma once

#include "check.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef CAPABILITIES
#define CAPABILITIES (FI_RMA | FI_TAGGED | FI_FENCE | FI_SOURCE)
#endif
#ifndef MR_MODE
#define MR_MODE (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#endif

enum { ENDPOINTS = 3, KEPT = 256 };

struct endpoint {
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *reads, *writes;
    struct fid_ep *ep;
    fi_addr_t to[ENDPOINTS];
    struct fi_cq_tagged_entry entries[KEPT]; // that await() has read
    int count;
    struct fi_cq_err_entry failures[KEPT];
    int failed;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domains[2];
static struct endpoint ends[ENDPOINTS], *const a = &ends[0], *const b = &ends[1], *const c = &ends[2];

// Bind more to an endpoint, and close that.
static void (*before_enabling)(struct endpoint *), (*after_closing)(struct endpoint *);

static inline struct fi_info *hints_for(uint64_t caps, int mr_mode) {
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("ibex");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = caps;
    hints->domain_attr->mr_mode = mr_mode;
    return hints;
}

static inline void open_endpoint(struct endpoint *end, struct fid_domain *domain) {
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
    end->domain = domain;
    OK(fi_endpoint(domain, info, &end->ep, NULL));
    OK(fi_av_open(domain, &(struct fi_av_attr){.type = FI_AV_TABLE}, &end->av, NULL));
    OK(fi_cq_open(domain, &queue, &end->cq, NULL));
    OK(fi_cntr_open(domain, NULL, &end->reads, NULL));
    OK(fi_cntr_open(domain, NULL, &end->writes, NULL));
    OK(fi_ep_bind(end->ep, &end->av->fid, 0));
    OK(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    OK(fi_ep_bind(end->ep, &end->reads->fid, FI_READ));
    OK(fi_ep_bind(end->ep, &end->writes->fid, FI_WRITE));
    if (before_enabling)
        before_enabling(end);
    OK(fi_enable(end->ep));
}

static inline void open_endpoints(void) {
    struct fi_info *hints = hints_for(CAPABILITIES, MR_MODE);
    hints->tx_attr->op_flags = FI_COMPLETION;
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    for (int i = 0; i < 2; i++)
        OK(fi_domain(fabric, info, &domains[i], NULL));
    for (int i = 0; i < ENDPOINTS; i++)
        open_endpoint(&ends[i], domains[i > 0]);
    for (int of = 0; of < ENDPOINTS; of++) {
        char name[64];
        size_t length = sizeof name;
        OK(fi_getname(&ends[of].ep->fid, name, &length));
        for (int i = 0; i < ENDPOINTS; i++)
            check_int("inserted", 1, fi_av_insert(ends[i].av, name, 1, &ends[i].to[of], 0, NULL));
    }
}

static inline void close_endpoints(void) {
    for (int i = 0; i < ENDPOINTS; i++) {
        OK(fi_close(&ends[i].ep->fid));
        if (after_closing)
            after_closing(&ends[i]);
        OK(fi_close(&ends[i].cq->fid));
        OK(fi_close(&ends[i].reads->fid));
        OK(fi_close(&ends[i].writes->fid));
        OK(fi_close(&ends[i].av->fid));
    }
    OK(fi_close(&domains[0]->fid));
    OK(fi_close(&domains[1]->fid));
    OK(fi_close(&fabric->fid));
    fi_freeinfo(info);
}

// Reads all queues once.
static inline void progress(void) {
    for (int i = 0; i < ENDPOINTS; i++) {
        struct endpoint *end = &ends[i];
        long got = fi_cq_read(end->cq, &end->entries[end->count % KEPT], 1);
        if (got == 1)
            end->count++;
        else if (got == -FI_EAVAIL) {
            check_int("a failure is read", 1, fi_cq_readerr(end->cq, &end->failures[end->failed % KEPT], 0));
            end->failed++;
        } else if (got != -FI_EAGAIN)
            check_fail("fi_cq_read: %ld (%s)", got, fi_strerror((int)-got));
    }
}

// Waits until an endpoint has read `count` entries, failures included, since forget().
static inline void await(struct endpoint *end, int count) {
    while (end->count + end->failed < count)
        progress();
}

static inline void forget(void) {
    for (int i = 0; i < ENDPOINTS; i++)
        ends[i].count = ends[i].failed = 0;
}

// Repeats a call that has no room yet.
#define RETRIED(call)                                                                                                  \
    do {                                                                                                               \
        long code;                                                                                                     \
        while ((code = (call)) == -FI_EAGAIN)                                                                          \
            progress();                                                                                                \
        check_ok(code, #call, __LINE__);                                                                               \
    } while (0)

static inline struct fid_mr *registered(struct endpoint *end, void *memory, size_t length, uint64_t access) {
    struct fid_mr *region;
    OK(fi_mr_reg(end->domain, memory, length, access, 0, 0, 0, &region, NULL));
    return region;
}

static uint64_t seed = 88172645463325252u;

static inline uint64_t below(uint64_t bound) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % bound;
}

static inline void fill(unsigned char *memory, size_t length) {
    for (size_t i = 0; i < length; i++)
        memory[i] = (unsigned char)below(256);
}

static inline void check_same(const char *what, const void *expected, const void *got, size_t length) {
    const unsigned char *want = expected, *have = got;
    for (size_t i = 0; i < length; i++)
        if (want[i] != have[i]) {
            check_fail("%s: byte %zu of %zu is %#x, not %#x", what, i, length, have[i], want[i]);
            return;
        }
}
