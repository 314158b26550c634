// SPDX-License-Identifier: MIT OR Apache-2.0
// A side of a measurement by libfabric's calls: an endpoint of the provider that FI_PROVIDER names, with queues for its
// sends and its receives, in a domain of its own, which one thread at a time enters (FI_THREAD_DOMAIN), as an MPI's has.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 16, TAG = 7, USAGE_EXIT = 2 };

struct side {
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *sends, *receives;
    struct fid_av *av;
    fi_addr_t peer;
    char name[FI_NAME_MAX];
};

static size_t bytes; // of a message
static char sent[MOST_BYTES], received[MOST_BYTES];

static void check(const char *what, long code) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-code));
        exit(1);
    }
}

// Reads the two arguments that each program begins with, and returns the number of messages.
static int arguments(int argc, char **argv, const char *usage) {
    int messages = argc >= 3 ? atoi(argv[1]) : 0;
    bytes = argc >= 3 ? (size_t)atoi(argv[2]) : 0;
    if (messages <= 0 || bytes > MOST_BYTES) {
        fprintf(stderr, "usage: %s (at most %d bytes)\n", usage, MOST_BYTES);
        exit(USAGE_EXIT);
    }
    return messages;
}

static struct fi_info *getinfo(void) {
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->caps = FI_TAGGED;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup("ibex");
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    return info;
}

static void open_side(struct side *of, struct fi_info *info) {
    check("fi_fabric", fi_fabric(info->fabric_attr, &of->fabric, NULL));
    check("fi_domain", fi_domain(of->fabric, info, &of->domain, NULL));
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
    check("fi_cq_open", fi_cq_open(of->domain, &queue, &of->sends, NULL));
    check("fi_cq_open", fi_cq_open(of->domain, &queue, &of->receives, NULL));
    struct fi_av_attr vector = {.type = FI_AV_TABLE};
    check("fi_av_open", fi_av_open(of->domain, &vector, &of->av, NULL));
    check("fi_endpoint", fi_endpoint(of->domain, info, &of->ep, NULL));
    check("fi_ep_bind", fi_ep_bind(of->ep, &of->av->fid, 0));
    check("fi_ep_bind", fi_ep_bind(of->ep, &of->sends->fid, FI_TRANSMIT));
    check("fi_ep_bind", fi_ep_bind(of->ep, &of->receives->fid, FI_RECV));
    check("fi_enable", fi_enable(of->ep));
    size_t length = sizeof of->name;
    check("fi_getname", fi_getname(&of->ep->fid, of->name, &length));
}

static void insert(struct side *of, const char *peer) {
    check("fi_av_insert", fi_av_insert(of->av, peer, 1, &of->peer, 0, NULL));
}
