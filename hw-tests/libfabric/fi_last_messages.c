// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A message whose send was reported, or that was injected, reaches its peer although the endpoint is closed and the
// process ends at once (fi_endpoint(3) discards only what is outstanding): before there is a connection, while flow
// control holds messages back, and right behind a long exchange. Children send, the parent receives once they have
// closed their endpoints or while they do. A peer that is not there ends the wait; one that makes no progress does not
// prolong it, once its adapter has the messages. No arguments.
#include "endpoints.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT = 64, INJECTED = 4096, FLOOD = 3000, LONG = 1 << 20 };

static char in[LONG], out[LONG];

// Of a child: the socket to its parent.
static int parent;

struct child {
    pid_t process;
    int socket;
};

static void give(int socket, const void *bytes, size_t length) {
    check_int("write", (long long)length, write(socket, bytes, length));
}

static void take(int socket, void *bytes, size_t length) {
    check_int("read", (long long)length, recv(socket, bytes, length, MSG_WAITALL));
}

// Inserts the address that comes by a socket; returns its index.
static fi_addr_t insert(int socket) {
    char name[FI_NAME_MAX];
    fi_addr_t index;
    take(socket, name, sizeof name);
    check_int("fi_av_insert", 1, fi_av_insert(ends[0].av, name, 1, &index, 0, NULL));
    return index;
}

static void tell_name(int socket) {
    char name[FI_NAME_MAX] = {0};
    name_of(&ends[0], name);
    give(socket, name, sizeof name);
}

// Waits until all these operations of a child are reported.
static void reported(int operations) {
    for (int i = 0; i < operations; i++)
        (void)await(&ends[0]);
}

static void inject_one(fi_addr_t to) {
    fill(out, SHORT, 0);
    OK(fi_tinject(ends[0].ep, out, SHORT, to, 0));
}

static void inject_many(fi_addr_t to) {
    for (unsigned i = 0; i < FLOOD; i++) {
        fill(out, INJECTED, i);
        ssize_t code;
        while ((code = fi_tinject(ends[0].ep, out, INJECTED, to, i)) == -FI_EAGAIN)
            progress();
        OK(code);
    }
}

static void send_some(fi_addr_t to) {
    for (unsigned i = 0; i < 8; i++) {
        fill(out + i * SHORT, SHORT, i);
        OK(fi_tsend(ends[0].ep, out + i * SHORT, SHORT, NULL, to, i, NULL));
    }
    reported(8);
}

static void answer_long(fi_addr_t to) {
    OK(fi_trecv(ends[0].ep, in, LONG, NULL, to, 0, 0, NULL));
    reported(1);
    check_filled("a long message to the child", in, LONG, 9);
    inject_one(to);
}

// Sends, once the parent has received one message and makes no progress any more.
static void send_to_idle(fi_addr_t to) {
    inject_one(to);
    while (recv(parent, in, 1, MSG_DONTWAIT) != 1)
        progress();
    send_some(to);
    fill(out, SHORT, 8);
    struct iovec piece = {.iov_base = out, .iov_len = SHORT};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = to, .tag = 8};
    OK(fi_tsendmsg(ends[0].ep, &message, FI_INJECT | FI_DELIVERY_COMPLETE));
}

// Starts a process that learns the parent's address, sends by `body`, closes its endpoint and ends.
static struct child start(void (*body)(fi_addr_t)) {
    int sockets[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    struct child child = {.socket = sockets[0], .process = fork()};
    if (child.process > 0) {
        close(sockets[1]);
        return child;
    }
    close(sockets[0]);
    parent = sockets[1];
    open_endpoints((struct setup){.endpoints = 1});
    tell_name(parent);
    fi_addr_t to = insert(parent);
    body(to);
    give(parent, "c", 1);
    close_endpoints();
    _exit(check.wrong != 0);
}

static void ended(struct child child) {
    int status;
    check_int("waitpid", child.process, waitpid(child.process, &status, 0));
    check_int("the child's status", 0, status);
    close(child.socket);
}

// Receives these messages of a child, in order.
static void receive(fi_addr_t from, unsigned messages, size_t length) {
    for (unsigned i = 0; i < messages; i++) {
        memset(in, 1, length);
        OK(fi_trecv(ends[0].ep, in, length, NULL, from, i, 0, &in[i]));
        await_of(&ends[0], "a message of the child", &in[i]);
        check_filled("its data", in, length, i);
    }
}

// The child's endpoint closes while the parent does nothing for a while, and then reads its queue.
static void case_of(const char *name, struct child child, unsigned messages, size_t length) {
    check_case("%s", name);
    fi_addr_t from = insert(child.socket);
    tell_name(child.socket);
    while (recv(child.socket, in, 1, MSG_DONTWAIT) != 1)
        progress();
    usleep(300 * 1000);
    receive(from, messages, length);
    ended(child);
}

int main(void) {
    // Before this process uses libfabric.
    struct child first = start(inject_one), flood = start(inject_many);
    struct child some = start(send_some), last = start(answer_long);
    setenv("FI_IBEX_CONNECT_TIMEOUT", "86400", 1); // a wait for the parent would not end
    struct child idle = start(send_to_idle);
    setenv("FI_IBEX_CONNECT_TIMEOUT", "2", 1);
    struct child gone = start(inject_one);
    open_endpoints((struct setup){.endpoints = 1});

    case_of("an injected message arrives that waits for its connection", first, 1, SHORT);
    case_of("sends that were reported arrive", some, 8, SHORT);
    case_of("injected messages arrive that wait for room at the receiver", flood, FLOOD, INJECTED);

    check_case("a message arrives that is injected behind a long one of the peer");
    fi_addr_t from = insert(last.socket);
    tell_name(last.socket);
    fill(out, LONG, 9);
    OK(fi_tsend(ends[0].ep, out, LONG, NULL, from, 0, out));
    await_of(&ends[0], "the long message", out);
    receive(from, 1, SHORT);
    ended(last);

    check_case("an endpoint closes while its peer makes no progress, and the messages are there later");
    from = insert(idle.socket);
    tell_name(idle.socket);
    receive(from, 1, SHORT);
    give(idle.socket, "i", 1);
    ended(idle);
    receive(from, 9, SHORT);

    check_case("an endpoint closes that has sent to a peer that is not there");
    (void)insert(gone.socket);
    char name[FI_NAME_MAX] = {0};
    name_of(&ends[0], name);
    close_endpoints();
    give(gone.socket, name, sizeof name);
    take(gone.socket, in, 1);
    ended(gone);
    return check_finish();
}
