// SPDX-License-Identifier: MIT OR Apache-2.0
// Small tagged messages by libfabric's calls between two endpoints of this process, for an instruction counter.
// Build: cc -O2 -o ibex_fi_instructions ibex_fi_instructions.c -lfabric
// Run: FI_PROVIDER=ibex valgrind --tool=callgrind --toggle-collect=counted_send --toggle-collect=counted_recv
//          ./ibex_fi_instructions 1000 8
// A counted message is one fi_tsend, one fi_trecv and one fi_cq_read for each, and has arrived when it is looked for. So
// the count is the same in each run. The first messages (connections, caches, first use of a code path), and the
// answers, go through functions of other names, which are not counted.
#include "side.h"

enum { MESSAGES_BEFORE = 500 };

static struct side sides[2];

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
    int messages = arguments(argc, argv, "ibex_fi_instructions MESSAGES BYTES");
    struct fi_info *info = getinfo();
    for (int side = 0; side < 2; side++)
        open_side(&sides[side], info);
    for (int side = 0; side < 2; side++)
        insert(&sides[side], sides[1 - side].name);
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
