// SPDX-License-Identifier: MIT OR Apache-2.0
// Small tagged messages by libfabric's calls between two endpoints of this process, for an instruction counter.
// Build: cc -O2 -o ibex_fi_instructions ibex_fi_instructions.c -lfabric
// Run: FI_PROVIDER=ibex valgrind --tool=callgrind --toggle-collect=counted_send --toggle-collect=counted_recv
//          ./ibex_fi_instructions 1000 8
// Each endpoint has a domain of its own, which one thread at a time enters (FI_THREAD_DOMAIN), as an MPI's has. A
// counted message is one fi_tsend, one fi_trecv and one fi_cq_read for each, and has arrived when it is looked for. So
// the count is the same in each run. The first messages (connections, caches, first use of a code path), and the
// answers, go through functions of other names, which are not counted.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 16, TAG = 7, MESSAGES_BEFORE = 500, USAGE_EXIT = 2 };

struct side {
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *sends, *receives;
    struct fid_av *av;
    fi_addr_t peer;
    char name[FI_NAME_MAX];
};

static struct side sides[2];
static size_t bytes;
static char sent[MOST_BYTES], received[MOST_BYTES];

static void check(const char *what, long code) {
    if (code < 0) {
        fprintf(stderr, "ibex_fi_instructions: %s: %s\n", what, fi_strerror((int)-code));
        exit(1);
    }
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

// Reads a completion. Until there is one, the peer progresses, whose queue has none.
static void await(struct fid_cq *queue, struct side *peer) {
    struct fi_cq_tagged_entry entry;
    ssize_t count;
    while ((count = fi_cq_read(queue, &entry, 1)) == -FI_EAGAIN)
        fi_cq_read(peer->receives, NULL, 0);
    check("fi_cq_read", count);
}

static inline void send_one(struct side *of, struct side *to) {
    check("fi_tsend", fi_tsend(of->ep, sent, bytes, NULL, of->peer, TAG, NULL));
    await(of->sends, to);
}

static inline void receive_one(struct side *of, struct side *from) {
    check("fi_trecv", fi_trecv(of->ep, received, bytes, NULL, of->peer, TAG, 0, NULL));
    await(of->receives, from);
}

// Functions of their own, which a counter turns on; what they call is counted, too.
__attribute__((noinline)) void counted_send(void) { send_one(&sides[0], &sides[1]); }

__attribute__((noinline)) void counted_recv(void) { receive_one(&sides[1], &sides[0]); }

static void answer(void) {
    send_one(&sides[1], &sides[0]);
    receive_one(&sides[0], &sides[1]);
}

int main(int argc, char **argv) {
    int messages = argc == 3 ? atoi(argv[1]) : 0;
    bytes = argc == 3 ? (size_t)atoi(argv[2]) : MOST_BYTES + 1;
    if (messages <= 0 || bytes > MOST_BYTES) {
        fprintf(stderr, "usage: ibex_fi_instructions MESSAGES BYTES (at most %d)\n", MOST_BYTES);
        return USAGE_EXIT;
    }
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->caps = FI_TAGGED;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup("ibex");
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    for (int side = 0; side < 2; side++)
        open_side(&sides[side], info);
    for (int side = 0; side < 2; side++)
        check("fi_av_insert", fi_av_insert(sides[side].av, sides[1 - side].name, 1, &sides[side].peer, 0, NULL));
    for (int i = 0; i < MESSAGES_BEFORE; i++) {
        send_one(&sides[0], &sides[1]);
        receive_one(&sides[1], &sides[0]);
        answer();
    }
    for (int i = 0; i < messages; i++) {
        counted_send();
        counted_recv();
        answer();
    }
    return 0;
}
