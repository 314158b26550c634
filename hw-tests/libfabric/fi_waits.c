// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Threads that sleep until an operation has ended: fi_cq_sread and fi_cq_signal (fi_cq(3)), descriptors with fi_trywait
// (fi_poll(3)), fi_cntr_wait (fi_cntr(3)); or until there is an event: fi_eq_sread (fi_eq(3)). Most messages are for a
// sleeping thread that alone makes its endpoint progress. No arguments.
#include "endpoints.h"
#include <poll.h>
#include <pthread.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MESSAGES = 200 };
static char in[MESSAGES], out[1 << 17], long_in[1 << 17];
static atomic_int asleep, received, wrong;

static void receive(int number) {
    OK(fi_trecv(ends[1].ep, &in[number], 1, NULL, FI_ADDR_UNSPEC, (uint64_t)number, 0, &in[number]));
}

static void send_to_1(int number) {
    OK(fi_tinject(ends[0].ep, out, 1, ends[0].to[1], (uint64_t)number));
}

static void expect(bool holds) {
    if (!holds)
        atomic_fetch_add(&wrong, 1);
}

// Makes endpoint 0 progress, and no other.
static void progress_of_0(void) { (void)fi_cq_read(ends[0].cq, NULL, 0); }

// Sleeps, once for each message that endpoint 1 receives, until all threads together have got MESSAGES.
static void *sleeps(void *argument) {
    (void)argument;
    while (atomic_load(&received) < MESSAGES) {
        entry got;
        atomic_fetch_add(&asleep, 1);
        ssize_t code = fi_cq_sread(ends[1].cq, &got, 1, NULL, -1);
        atomic_fetch_sub(&asleep, 1);
        expect(code == 1 || code == -FI_EAGAIN);
        if (code == 1 && atomic_fetch_add(&received, 1) == MESSAGES - 1)
            OK(fi_cq_signal(ends[1].cq)); // the others need not sleep any more
    }
    return NULL;
}

static void wakes(int threads) {
    check_case("%d thread(s) sleep in fi_cq_sread and get all messages", threads);
    atomic_store(&received, 0);
    for (int number = 0; number < MESSAGES; number++)
        receive(number);
    pthread_t thread[2];
    for (int i = 0; i < threads; i++)
        OK(pthread_create(&thread[i], NULL, sleeps, NULL));
    for (int number = 0; number < MESSAGES; number++) {
        // Some at once, some after a pause, so that threads fall asleep at every moment.
        if (number % 20 == 0)
            usleep(3000);
        send_to_1(number);
        progress_of_0();
    }
    while (atomic_load(&received) < MESSAGES)
        progress_of_0();
    for (int i = 0; i < threads; i++)
        OK(pthread_join(thread[i], NULL));
    check_int("unexpected codes", 0, atomic_load(&wrong));
}

static void *sleeps_until_signalled(void *argument) {
    entry got;
    atomic_fetch_add(&asleep, 1);
    expect(fi_cq_sread(ends[1].cq, &got, 1, NULL, -1) == -FI_EAGAIN);
    return argument;
}

static void signals(void) {
    check_case("fi_cq_signal wakes each thread that sleeps");
    pthread_t thread[2];
    atomic_store(&asleep, 0);
    for (int i = 0; i < 2; i++)
        OK(pthread_create(&thread[i], NULL, sleeps_until_signalled, NULL));
    while (atomic_load(&asleep) < 2)
        ;
    usleep(20000);
    OK(fi_cq_signal(ends[1].cq));
    for (int i = 0; i < 2; i++)
        OK(pthread_join(thread[i], NULL));
    check_int("unexpected codes", 0, atomic_load(&wrong));
    check_case("a signal before fi_cq_sread is not lost");
    entry got;
    OK(fi_cq_signal(ends[1].cq));
    check_int("fi_cq_sread", -FI_EAGAIN, fi_cq_sread(ends[1].cq, &got, 1, NULL, -1));
    check_int("fi_cq_sread", -FI_EAGAIN, fi_cq_sread(ends[1].cq, &got, 1, NULL, 0));
}

static void times_out(void) {
    check_case("a read that may sleep returns at its time-out, with a completion, or with an error");
    entry got;
    fi_addr_t source = 77;
    check_int("no time", -FI_EAGAIN, fi_cq_sread(ends[1].cq, &got, 1, NULL, 0));
    check_int("some time", -FI_EAGAIN, fi_cq_sread(ends[1].cq, &got, 1, NULL, 30));
    receive(0);
    send_to_1(0);
    check_int("fi_cq_sreadfrom", 1, fi_cq_sreadfrom(ends[1].cq, &got, 1, &source, NULL, -1));
    check_int("source", (long long)ends[1].to[0], (long long)source);
    receive(1);
    OK(fi_cancel(&ends[1].ep->fid, &in[1]));
    check_int("an error", -FI_EAVAIL, fi_cq_sread(ends[1].cq, &got, 1, NULL, -1));
    check_int("its reason", FI_ECANCELED, await_error(&ends[1]).err);
}

// A long message needs several steps of both endpoints: the sleeping thread makes those of endpoint 1.
static void *sleeps_for_one(void *argument) {
    entry got;
    expect(fi_cq_sread(ends[1].cq, &got, 1, NULL, -1) == 1 && got.op_context == argument);
    return NULL;
}

static void long_message(void) {
    check_case("a sleeping thread receives a long message");
    pthread_t thread;
    fill(out, sizeof out, 4);
    OK(fi_trecv(ends[1].ep, long_in, sizeof long_in, NULL, FI_ADDR_UNSPEC, 9, 0, long_in));
    OK(pthread_create(&thread, NULL, sleeps_for_one, long_in));
    usleep(20000);
    OK(fi_tsend(ends[0].ep, out, sizeof out, NULL, ends[0].to[1], 9, out));
    entry got;
    check_int("the sender sleeps as well", 1, fi_cq_sread(ends[0].cq, &got, 1, NULL, -1));
    OK(pthread_join(thread, NULL));
    check_filled("data", long_in, sizeof long_in, 4);

    check_case("a message of an endpoint to itself wakes a sleeping thread");
    OK(fi_trecv(ends[1].ep, long_in, 8, NULL, FI_ADDR_UNSPEC, 9, 0, long_in));
    OK(pthread_create(&thread, NULL, sleeps_for_one, long_in));
    usleep(20000);
    OK(fi_tinject(ends[1].ep, out, 8, ends[1].to[1], 9));
    OK(pthread_join(thread, NULL));
    check_int("unexpected codes", 0, atomic_load(&wrong));
}

static void *sleeps_for_data(void *argument) {
    entry got;
    expect(fi_cq_sread(ends[1].cq, &got, 1, NULL, -1) == 1 && got.flags & FI_REMOTE_WRITE && got.data == 7);
    return argument;
}

static void one_sided(void) {
    check_case("a thread sleeps until its reads and writes have ended, or a peer's remote CQ data are there");
    struct fid_mr *region;
    OK(fi_mr_reg(domains[0], long_in, sizeof long_in, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &region, NULL));
    uint64_t there = (uintptr_t)long_in, key = fi_mr_key(region);
    entry got;
    for (int round = 0; round < MESSAGES; round++) {
        // The first with itself, then in a request, by a slot, and registered.
        fi_addr_t to = ends[0].to[round % 4 > 0];
        size_t length = round % 4 < 2 ? 8 : round % 4 == 2 ? 5000 : sizeof out;
        fill(out, length, (unsigned)round);
        OK(fi_write(ends[0].ep, out, length, NULL, to, there, key, out));
        check_int("a write", 1, fi_cq_sread(ends[0].cq, &got, 1, NULL, -1));
        memset(out, 0, length);
        OK(fi_read(ends[0].ep, out, length, NULL, to, there, key, out));
        check_int("a read", 1, fi_cq_sread(ends[0].cq, &got, 1, NULL, -1));
        check_filled("data", out, length, (unsigned)round);
    }
    pthread_t thread;
    OK(pthread_create(&thread, NULL, sleeps_for_data, NULL));
    usleep(20000);
    OK(fi_writedata(ends[0].ep, out, sizeof out, NULL, 7, ends[0].to[1], there, key, out));
    check_int("a write with data", 1, fi_cq_sread(ends[0].cq, &got, 1, NULL, -1));
    OK(pthread_join(thread, NULL));
    check_int("unexpected codes", 0, atomic_load(&wrong));
    OK(fi_close(&region->fid));
    OK(fi_write(ends[0].ep, out, 8, NULL, ends[0].to[1], there, key, out));
    check_int("a refused write", -FI_EAVAIL, fi_cq_sread(ends[0].cq, &got, 1, NULL, -1));
    check_int("its reason", FI_EACCES, await_error(&ends[0]).err);
}

static void descriptor(void) {
    check_case("a descriptor becomes readable once there is something to read");
    int fd = -1;
    enum fi_wait_obj kind = FI_WAIT_NONE;
    OK(fi_control(&ends[1].cq->fid, FI_GETWAIT, &fd));
    OK(fi_control(&ends[1].cq->fid, FI_GETWAITOBJ, &kind));
    check_int("kind", FI_WAIT_FD, kind);
    check_true("descriptor", fd >= 0);
    struct fid *fids[] = {&ends[1].cq->fid};
    receive(0);
    send_to_1(0);
    while (fi_trywait(fabric, fids, 1) == 0)
        ; // until the completion is in the queue
    check_int("fi_trywait of a queue with entries", -FI_EAGAIN, fi_trywait(fabric, fids, 1));
    await_of(&ends[1], "the receive", &in[0]);

    for (int number = 0; number < MESSAGES; number++)
        receive(number);
    int sent = 0;
    for (int got = 0; got < MESSAGES;) {
        if (sent < MESSAGES && sent <= got)
            send_to_1(sent++);
        if (fi_trywait(fabric, fids, 1) == 0) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            progress_of_0();
            check_int("poll", 1, poll(&ready, 1, -1));
        }
        entry entry;
        ssize_t code;
        while ((code = fi_cq_read(ends[1].cq, &entry, 1)) == 1)
            check_pointer("order", &in[got++], entry.op_context);
        check_int("an empty queue", -FI_EAGAIN, code);
    }
}

static struct fid_cntr *counter;

static void *counts(void *argument) {
    expect(fi_cntr_wait(counter, 10, -1) == 0 && fi_cntr_read(counter) >= 10);
    expect(fi_cntr_wait(counter, 1000, -1) == -FI_EAVAIL && fi_cntr_readerr(counter) == 1);
    return argument;
}

static void waits_for_counter(void) {
    check_case("fi_cntr_wait returns at the threshold, at an error, and at its time-out");
    check_int("reached", 0, fi_cntr_wait(counter, 0, 0));
    check_int("no time", -FI_ETIMEDOUT, fi_cntr_wait(counter, 1, 0));
    check_int("some time", -FI_ETIMEDOUT, fi_cntr_wait(counter, 1, 30));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, counts, NULL));
    for (int number = 0; number < 10; number++) {
        receive(number);
        usleep(2000);
        send_to_1(number);
        progress_of_0();
    }
    while (fi_cntr_read(counter) < 10)
        progress_of_0();
    receive(0);
    usleep(20000);
    OK(fi_cancel(&ends[1].ep->fid, &in[0]));
    OK(pthread_join(thread, NULL));
    check_int("unexpected codes", 0, atomic_load(&wrong));
    check_int("its reason", FI_ECANCELED, await_error(&ends[1]).err);
    struct fid *fids[] = {&counter->fid, &ends[1].cq->fid};
    fi_cntr_read(counter);
    OK(fi_trywait(fabric, fids, 2));
    OK(fi_cntr_add(counter, 1));
    check_int("fi_trywait of a counter that has changed", -FI_EAGAIN, fi_trywait(fabric, fids, 2));
    fi_cntr_read(counter);
    OK(fi_trywait(fabric, fids, 2));
    OK(fi_cntr_set(counter, 2000));
    check_int("set", 0, fi_cntr_wait(counter, 2000, -1));

    check_case("fi_cntr_wait returns when writes have ended");
    struct fid_mr *region;
    OK(fi_mr_reg(domains[0], long_in, sizeof long_in, FI_REMOTE_WRITE, 0, 0, 0, &region, NULL));
    for (uint64_t write = 1; write <= 10; write++) {
        OK(fi_inject_write(ends[1].ep, out, 8, ends[1].to[write % 2], (uintptr_t)long_in, fi_mr_key(region)));
        check_int("a write", 0, fi_cntr_wait(counter, 2000 + write, -1));
    }
    OK(fi_close(&region->fid));
}

static struct fid_eq *events;

static struct fid_eq *event_queue(enum fi_wait_obj kind) {
    struct fi_eq_attr attributes = {.flags = FI_WRITE, .wait_obj = kind};
    struct fid_eq *queue;
    OK(fi_eq_open(fabric, &attributes, &queue, NULL));
    return queue;
}

static void write_event(int number) {
    struct fi_eq_entry event = {.fid = &events->fid, .context = &in[number]};
    expect(fi_eq_write(events, FI_NOTIFY, &event, sizeof event, 0) == sizeof event);
}

static void *sleeps_for_events(void *argument) {
    for (int number = 0; number < MESSAGES; number++) {
        struct fi_eq_entry event = {0};
        uint32_t kind = 0;
        expect(fi_eq_sread(events, &kind, &event, sizeof event, -1, FI_PEEK) == sizeof event);
        expect(fi_eq_sread(events, &kind, &event, sizeof event, -1, 0) == sizeof event);
        expect(kind == FI_NOTIFY && event.context == &in[number]);
    }
    return argument;
}

static void waits_for_events(void) {
    check_case("fi_eq_sread returns with an event, and at its time-out");
    struct fi_eq_entry event;
    uint32_t kind;
    events = event_queue(FI_WAIT_UNSPEC);
    check_int("no time", -FI_EAGAIN, fi_eq_sread(events, &kind, &event, sizeof event, 0, 0));
    check_int("some time", -FI_EAGAIN, fi_eq_sread(events, &kind, &event, sizeof event, 30, 0));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, sleeps_for_events, NULL));
    for (int number = 0; number < MESSAGES; number++) {
        if (number % 20 == 0)
            usleep(3000);
        write_event(number);
    }
    OK(pthread_join(thread, NULL));
    check_int("unexpected codes", 0, atomic_load(&wrong));
    OK(fi_close(&events->fid));

    check_case("the descriptor of an event queue becomes readable once there is an event");
    events = event_queue(FI_WAIT_FD);
    int fd = -1;
    OK(fi_control(&events->fid, FI_GETWAIT, &fd));
    struct fid *fids[] = {&events->fid};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    OK(fi_trywait(fabric, fids, 1));
    write_event(0);
    check_int("poll", 1, poll(&ready, 1, 0));
    check_int("fi_trywait of a queue with events", -FI_EAGAIN, fi_trywait(fabric, fids, 1));
    check_int("fi_eq_read", sizeof event, fi_eq_read(events, &kind, &event, sizeof event, 0));
    OK(fi_trywait(fabric, fids, 1));
    OK(fi_close(&events->fid));

    check_case("no thread sleeps on an event queue without a wait object");
    events = event_queue(FI_WAIT_NONE);
    check_int("fi_eq_sread", -FI_EINVAL, fi_eq_sread(events, &kind, &event, sizeof event, 0, 0));
    check_int("fi_trywait", -FI_EINVAL, fi_trywait(fabric, fids, 1));
    OK(fi_close(&events->fid));
}

static void open_sleeping(void) {
    int mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    open_endpoints((struct setup){.endpoints = 2, .mr_mode = mode, .queue = {.wait_obj = FI_WAIT_FD}});
}

// Endpoint 1 with a counter of its receives and writes.
static void open_counted(enum fi_wait_obj kind) {
    open_sleeping();
    struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = kind};
    OK(fi_cntr_open(domains[0], &attributes, &counter, NULL));
    OK(fi_close(&ends[1].ep->fid));
    OK(fi_endpoint(domains[0], info, &ends[1].ep, NULL));
    OK(fi_ep_bind(ends[1].ep, &ends[1].av->fid, 0));
    OK(fi_ep_bind(ends[1].ep, &ends[1].cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    OK(fi_ep_bind(ends[1].ep, &counter->fid, FI_RECV | FI_WRITE));
    OK(fi_enable(ends[1].ep));
    name_each_other();
}

static void close_counted(void) {
    OK(fi_close(&ends[1].ep->fid));
    OK(fi_close(&counter->fid));
    OK(fi_endpoint(domains[0], info, &ends[1].ep, NULL));
    close_endpoints();
}

int main(void) {
    open_sleeping();
    wakes(1);
    wakes(2);
    signals();
    times_out();
    long_message();
    descriptor();
    one_sided();
    waits_for_events();
    close_endpoints();

    open_counted(FI_WAIT_UNSPEC);
    waits_for_counter();
    close_counted();

    open_counted(FI_WAIT_NONE);
    check_case("a counter without a wait object is not waited for");
    check_int("fi_cntr_wait", -FI_EINVAL, fi_cntr_wait(counter, 0, 0));
    check_int("fi_trywait", -FI_EINVAL, fi_trywait(fabric, (struct fid *[]){&counter->fid}, 1));
    close_counted();
    return check_finish();
}
