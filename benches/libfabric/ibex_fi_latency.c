// SPDX-License-Identifier: MIT OR Apache-2.0
// Latency of tagged messages by libfabric's calls, between two processes of this host.
// Build: cc -O2 -o ibex_fi_latency ibex_fi_latency.c -lfabric
// Run: FI_PROVIDER=ibex ./ibex_fi_latency 100000 8 [PROCESSOR PROCESSOR]
//
// Prints one JSON object. `value` is the median of half a round trip, `spread` the interquartile range. Each receive is
// posted before the message is on its way; messages that can be injected are (fi_tinject), as in fabtests'
// fi_rdm_tagged_pingpong. As in perftest, the processor's counter is read once in each round trip.
#define _GNU_SOURCE
#include "side.h"

#include <sched.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { MESSAGES_BEFORE = 1000, QUARTERS = 4 };

static struct side me;
static struct fi_info *info;

static void bind_to(const char *processor) {
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(atoi(processor), &processors);
    if (sched_setaffinity(0, sizeof processors, &processors) != 0) {
        perror("sched_setaffinity");
        exit(1);
    }
}

// Messages that are sent before those that are measured.
static int before(int messages) { return messages < MESSAGES_BEFORE ? messages : MESSAGES_BEFORE; }

static void await(struct fid_cq *queue) {
    struct fi_cq_tagged_entry entry;
    ssize_t count;
    do
        count = fi_cq_read(queue, &entry, 1);
    while (count == -FI_EAGAIN);
    check("fi_cq_read", count);
}

static void post(void) {
    check("fi_trecv", fi_trecv(me.ep, received, bytes, NULL, me.peer, TAG, 0, NULL));
}

// Tries a call again as long as it cannot be done now.
#define REPEATED(call)                                                                                                 \
    do {                                                                                                               \
        ssize_t result;                                                                                                \
        while ((result = (call)) == -FI_EAGAIN)                                                                        \
            fi_cq_read(me.receives, NULL, 0);                                                                          \
        check(#call, result);                                                                                          \
    } while (0)

static void send_one(void) {
    if (bytes <= info->tx_attr->inject_size) {
        REPEATED(fi_tinject(me.ep, sent, bytes, me.peer, TAG));
        return;
    }
    REPEATED(fi_tsend(me.ep, sent, bytes, NULL, me.peer, TAG, NULL));
    await(me.sends);
}

static void answer(int messages) {
    for (int i = 0; i < messages; i++) {
        await(me.receives);
        post();
        send_one();
    }
}

// Notes the counter before each round trip and after the last.
static void measure(int messages, uint64_t *counter) {
    for (int i = 0; i < messages; i++) {
        counter[i] = __rdtsc();
        send_one();
        await(me.receives);
        post();
    }
    counter[messages] = __rdtsc();
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

static void report(int messages) {
    uint64_t *counter = malloc(((size_t)messages + 1) * sizeof *counter);
    measure(before(messages), counter);
    double begin = microseconds();
    measure(messages, counter);
    double per_tick = (microseconds() - begin) / (double)(counter[messages] - counter[0]);
    for (int i = 0; i < messages; i++)
        counter[i] = counter[i + 1] - counter[i];
    qsort(counter, (size_t)messages, sizeof *counter, ascending);
    double quartile[QUARTERS];
    for (int i = 1; i < QUARTERS; i++)
        quartile[i] = (double)counter[(size_t)messages * (size_t)i / QUARTERS] * per_tick / 2;
    printf("{\"test\":\"libfabric_latency\",\"transport\":\"ibex\",\"bytes\":%zu,\"unit\":\"us\",\"value\":%.4f,"
           "\"spread\":%.4f}\n",
           bytes, quartile[2], quartile[3] - quartile[1]);
    free(counter);
}

static void exchange(int to, int from) {
    char peer[FI_NAME_MAX];
    if (write(to, me.name, sizeof me.name) != sizeof me.name || read(from, peer, sizeof peer) != sizeof peer) {
        fputs("ibex_fi_latency: the other process has ended\n", stderr);
        exit(1);
    }
    insert(&me, peer);
}

int main(int argc, char **argv) {
    int messages = arguments(argc, argv, "ibex_fi_latency MESSAGES BYTES [PROCESSOR PROCESSOR]");
    int pipes[2][2];
    if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0) {
        perror("pipe");
        return 1;
    }
    pid_t child = fork();
    int side = child == 0;
    if (argc == 5)
        bind_to(argv[3 + side]);
    info = getinfo();
    open_side(&me, info);
    exchange(pipes[side][1], pipes[1 - side][0]);
    post();
    if (side == 1) {
        answer(before(messages) + messages);
        // What was injected last may not have left.
        check("fi_close", fi_close(&me.ep->fid));
        return 0;
    }
    report(messages);
    int status;
    return waitpid(child, &status, 0) != child || status != 0;
}
