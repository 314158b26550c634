// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A peer that is lost fails exactly the operations that need it, each once, with a reason; those with other peers go
// on. The program forks processes with an endpoint each: one that only ends, one that is killed in the middle of long
// messages in both directions, one that answers all the time, and one that takes the killed one's place. Waits are
// without limit: whoever runs the program ends it. Addresses that nobody has are asked by an endpoint of their own,
// which waits only a few seconds for an answer. With the argument `silent` only: an atomic operation with a process that
// makes no progress any more and is killed, which takes until the next probe shows that it is lost.

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ADDRESS = 64, SHORT = 8, LONG = 4 << 20, MESSAGES = 8, ECHO = 1, ANSWER = 2, FLOOD = 3, ANY = 4 };

#define OK(call) ok((call), #call, __LINE__)

static void ok(long code, const char *call, int line) {
    if (code == 0)
        return;
    printf("not ok line %d, %.80s: %ld (%s)\n", line, call, code, fi_strerror((int)-code));
    exit(1);
}

static void check(bool holds, const char *what) {
    if (holds)
        return;
    printf("not ok %s\n", what);
    exit(1);
}

// An operation. Its address is its context.
struct op {
    int ended; // how often
    int error;
    char reason[1000];
};

static struct end {
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
} me;

static void open_endpoint(void) {
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->fabric_attr->prov_name = strdup("ibex");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_DIRECTED_RECV | FI_ATOMIC;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
    struct fi_av_attr vector = {.type = FI_AV_TABLE};
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    OK(fi_cq_open(domain, &queue, &me.cq, NULL));
    OK(fi_av_open(domain, &vector, &me.av, NULL));
    OK(fi_endpoint(domain, info, &me.ep, NULL));
    OK(fi_ep_bind(me.ep, &me.cq->fid, FI_SEND | FI_RECV));
    OK(fi_ep_bind(me.ep, &me.av->fid, 0));
    OK(fi_enable(me.ep));
}

static void name(char *address) {
    size_t length = ADDRESS;
    OK(fi_getname(&me.ep->fid, address, &length));
}

static fi_addr_t insert(const char *address) {
    fi_addr_t to;
    check(fi_av_insert(me.av, address, 1, &to, 0, NULL) == 1, "an address is inserted");
    return to;
}

// Makes progress, and notes an operation that has ended.
static void progress(void) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    ssize_t got = fi_cq_read(me.cq, &entry, 1);
    if (got == 1) {
        ((struct op *)entry.op_context)->ended++;
    } else if (got == -FI_EAVAIL) {
        check(fi_cq_readerr(me.cq, &error, 0) == 1, "an error that is announced can be read");
        struct op *op = error.op_context;
        op->ended++;
        op->error = error.err;
        fi_cq_strerror(me.cq, error.prov_errno, error.err_data, op->reason, sizeof op->reason);
    } else {
        check(got == -FI_EAGAIN, "a queue without completions says so");
    }
}

static void await(struct op *op) {
    while (!op->ended)
        progress();
}

static void send_to(fi_addr_t to, const void *data, size_t length, uint64_t tag, struct op *op) {
    *op = (struct op){0};
    OK(fi_tsend(me.ep, data, length, NULL, to, tag, op));
}

static void receive_from(fi_addr_t from, void *data, size_t length, uint64_t tag, struct op *op) {
    *op = (struct op){0};
    OK(fi_trecv(me.ep, data, length, NULL, from, tag, 0, op));
}

static void check_failed(const struct op *op, const char *what, int first, int second) {
    bool is_right = op->ended == 1 && (op->error == first || op->error == second) && strstr(op->reason, "queue pair");
    if (is_right)
        return;
    printf("not ok %s: ended %d times, error %d (%s): %s\n", what, op->ended, op->error, fi_strerror(op->error),
           op->reason);
    exit(1);
}

// ---- the other processes --------------------------------------------------------------------------------------------

struct child {
    pid_t process;
    int socket;
    char address[ADDRESS];
};

// Answers each short message. Does not return.
static void answer(fi_addr_t parent) {
    for (;;) {
        uint64_t value;
        struct op op;
        receive_from(parent, &value, sizeof value, ECHO, &op);
        await(&op);
        if (op.error)
            exit(0); // the parent has ended
        send_to(parent, &value, sizeof value, ANSWER, &op);
        await(&op);
    }
}

// Sends and receives long messages, but not the last one, so that it is under way when this process is killed. Does not
// return.
static void flood(fi_addr_t parent) {
    char *in = malloc(LONG), *out = calloc(1, LONG);
    struct op receives, sends;
    int received = 1, sent = 1;
    receive_from(parent, in, LONG, FLOOD, &receives);
    send_to(parent, out, LONG, FLOOD, &sends);
    for (;;) {
        progress();
        if (receives.ended && received < MESSAGES - 1) {
            receive_from(parent, in, LONG, FLOOD, &receives);
            received++;
        }
        if (sends.ended && sent < MESSAGES - 1) {
            send_to(parent, out, LONG, FLOOD, &sends);
            sent++;
        }
    }
}

// Answers a short message, and makes no progress any more. Does not return.
static void fall_silent(fi_addr_t parent) {
    uint64_t value;
    struct op op;
    receive_from(parent, &value, sizeof value, ECHO, &op);
    await(&op);
    send_to(parent, &value, sizeof value, ANSWER, &op);
    await(&op);
    for (;;)
        pause();
}

// Starts a process with an endpoint, which ends at once if `run` is NULL, else runs it when it has met this one.
static struct child start(void (*run)(fi_addr_t)) {
    struct child child;
    int sockets[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    fflush(stdout);
    child.process = fork();
    if (child.process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char address[ADDRESS], parent[ADDRESS];
        open_endpoint();
        name(address);
        check(write(sockets[1], address, ADDRESS) == ADDRESS, "an address is passed on");
        if (!run)
            exit(0);
        check(read(sockets[1], parent, ADDRESS) == ADDRESS, "the address of the parent comes");
        run(insert(parent));
    }
    close(sockets[1]);
    child.socket = sockets[0];
    check(read(child.socket, child.address, ADDRESS) == ADDRESS, "the address of a process comes");
    return child;
}

// Gives a process the address of this one. Returns its index here.
static fi_addr_t meet(const struct child *child) {
    char mine[ADDRESS];
    name(mine);
    check(write(child->socket, mine, ADDRESS) == ADDRESS, "an address is passed on");
    return insert(child->address);
}

static void end(struct child *child) {
    kill(child->process, SIGKILL);
    waitpid(child->process, NULL, 0);
    close(child->socket);
}

// ---- the cases ------------------------------------------------------------------------------------------------------

static char *memory[2 * MESSAGES];

// Sends a value and waits for the answer.
static void play(fi_addr_t to) {
    static uint64_t last;
    uint64_t sent = ++last, got = 0;
    struct op sends, receives;
    receive_from(to, &got, sizeof got, ANSWER, &receives);
    send_to(to, &sent, sizeof sent, ECHO, &sends);
    await(&sends);
    await(&receives);
    check(!sends.error && !receives.error && got == sent, "a living peer answers with the value");
}

// All operations with an address that nobody has fail, short and long ones, and a receive that names it.
static void dead_address(const char *what, const char *address) {
    fi_addr_t to = insert(address);
    struct op ops[4], late[2];
    receive_from(to, memory[0], LONG, FLOOD, &ops[0]);
    send_to(to, memory[1], SHORT, FLOOD, &ops[1]);
    send_to(to, memory[2], LONG, FLOOD, &ops[2]);
    receive_from(to, memory[3], SHORT, ANY, &ops[3]);
    for (int op = 0; op < 4; op++)
        await(&ops[op]);
    for (int op = 0; op < 4; op++)
        check_failed(&ops[op], what, FI_ECONNREFUSED, FI_ETIMEDOUT);
    send_to(to, memory[1], SHORT, FLOOD, &late[0]);
    receive_from(to, memory[3], SHORT, ANY, &late[1]);
    await(&late[0]);
    await(&late[1]);
    for (int op = 0; op < 2; op++)
        check_failed(&late[op], "a later operation", FI_ECONNREFUSED, FI_ETIMEDOUT);
    OK(fi_av_remove(me.av, &to, 1, 0));
    printf("ok %s\n", what);
}

static void killed_peer(struct child *victim, struct child *next, fi_addr_t living) {
    fi_addr_t to = meet(victim);
    struct op sends[MESSAGES], receives[MESSAGES], any, short_one;
    uint64_t value = 0;
    receive_from(FI_ADDR_UNSPEC, &value, sizeof value, ANSWER | 1 << 8, &any);
    for (int message = 0; message < MESSAGES; message++) {
        receive_from(to, memory[message], LONG, FLOOD, &receives[message]);
        send_to(to, memory[MESSAGES + message], LONG, FLOOD, &sends[message]);
    }
    await(&sends[0]);
    await(&receives[0]);
    check(!sends[0].error && !receives[0].error, "messages pass before the peer dies");
    end(victim);
    send_to(to, &value, SHORT, FLOOD, &short_one);
    for (int message = 0; message < MESSAGES; message++)
        while (!sends[message].ended || !receives[message].ended)
            play(living);
    for (int message = 0; message < MESSAGES; message++) {
        struct op *both[] = {&sends[message], &receives[message]};
        for (int side = 0; side < 2; side++) {
            check(both[side]->ended == 1, "an operation ends once");
            if (both[side]->error)
                check_failed(both[side], "a long message with a killed peer", FI_ETIMEDOUT, FI_EIO);
        }
    }
    check(sends[MESSAGES - 1].error && receives[MESSAGES - 1].error, "messages that were under way fail");
    // A short message may have been handed to the adapter before it knew.
    await(&short_one);
    check(!any.ended, "a receive from any source stays posted");
    send_to(to, &value, SHORT, FLOOD, &short_one);
    await(&short_one);
    check_failed(&short_one, "a message to a lost peer", FI_ETIMEDOUT, FI_EIO);
    OK(fi_cancel(&me.ep->fid, &any));
    await(&any);
    check(any.error == FI_ECANCELED, "the receive from any source was posted");
    for (int round = 0; round < 100; round++)
        play(living);
    for (int message = 0; message < MESSAGES; message++)
        check(sends[message].ended == 1 && receives[message].ended == 1, "no operation ends again");
    printf("ok a killed peer fails its own operations\n");

    OK(fi_av_remove(me.av, &to, 1, 0));
    fi_addr_t other = meet(next);
    for (int round = 0; round < 100; round++) {
        play(other);
        play(living);
    }
    end(next);
    printf("ok a process takes the place of a lost one\n");
}

// An atomic operation waits for the answer of its target's processor, which does not come any more.
static void unanswered(struct child *silent) {
    fi_addr_t to = meet(silent);
    struct op adds = {0};
    uint64_t one = 1, old;
    play(to);
    OK(fi_fetch_atomic(me.ep, &one, 1, NULL, &old, NULL, to, 0, 0, FI_UINT64, FI_SUM, &adds));
    for (int round = 0; round < 10000; round++)
        progress();
    check(!adds.ended, "nobody does an atomic operation for a process that is silent");
    end(silent);
    await(&adds);
    check(adds.ended == 1 && (adds.error == FI_EIO || adds.error == FI_ETIMEDOUT), "it fails when the process is lost");
    printf("ok an atomic operation with a killed peer\n");
}

static void silent_peer(void) {
    struct child silent = start(fall_silent);
    open_endpoint();
    unanswered(&silent);
    printf("1 passed, 0 failed\n");
}

static void lost_peers(void) {
    struct child living = start(answer), ended = start(NULL), victim = start(flood), next = start(answer);
    waitpid(ended.process, NULL, 0);
    open_endpoint();
    fi_addr_t to = meet(&living);
    play(to);

    char garbage[ADDRESS];
    struct end first = me;
    setenv("FI_IBEX_CONNECT_TIMEOUT", "2", 1);
    open_endpoint();
    dead_address("the address of a process that has ended", ended.address);
    // Its instance, key and datagram queue pair are nobody's.
    memcpy(garbage, living.address, ADDRESS);
    for (int byte = 13; byte < 21; byte++)
        garbage[byte] ^= 0x55;
    for (int byte = 29; byte < 45; byte++)
        garbage[byte] ^= 0x33;
    garbage[6] ^= 0x7f;
    dead_address("an address that nobody has", garbage);
    me = first;

    killed_peer(&victim, &next, to);
    end(&living);
    printf("4 passed, 0 failed\n");
}

// The program forks before it uses libfabric.
int main(int arguments, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int each = 0; each < 2 * MESSAGES; each++)
        memory[each] = calloc(1, LONG);
    if (arguments > 1 && strcmp(words[1], "silent") == 0)
        silent_peer();
    else
        lost_peers();
    return 0;
}
