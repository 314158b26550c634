// SPDX-License-Identifier: MIT OR Apache-2.0
//
// FI_THREAD_SAFE: threads that send and receive by one endpoint and read one queue, at once. No arguments.
#include "endpoints.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 2, MESSAGES = 300, LENGTH = 9000 };

// Operations of each thread that have ended, whichever thread has read their completion.
static atomic_int ended[2][THREADS];
static atomic_int wrong;
static char in[2][THREADS][LENGTH], out[THREADS][LENGTH];

// Reads the queues of both endpoints, as all threads do, until so many operations of this one have ended.
static void read_until(int number, int done) {
    while (atomic_load(&ended[0][number]) < done || atomic_load(&ended[1][number]) < done)
        for (int at = 0; at < 2; at++) {
            entry got[4];
            ssize_t code = fi_cq_read(ends[at].cq, got, 4);
            if (code < 0 && code != -FI_EAGAIN)
                atomic_fetch_add(&wrong, 1);
            for (ssize_t i = 0; i < code; i++)
                atomic_fetch_add(&ended[at][(intptr_t)got[i].op_context], 1);
        }
}

static void *exchange(void *argument) {
    int number = (int)(intptr_t)argument;
    for (int message = 0; message < MESSAGES; message++) {
        size_t length = message % 10 == 9 ? LENGTH : (size_t)message % 200;
        bool is_late = message % 3 == 0;
        fill(out[number], length, (unsigned)message);
        for (int step = 0; step < 2; step++)
            for (int at = 0; at < 2; at++) {
                long code = step == is_late ? fi_trecv(ends[at].ep, in[at][number], length, NULL, ends[at].to[!at],
                                                       (uint64_t)number, 0, argument)
                                            : fi_tsend(ends[at].ep, out[number], length, NULL, ends[at].to[!at],
                                                       (uint64_t)number, argument);
                if (code != 0)
                    atomic_fetch_add(&wrong, 1);
            }
        read_until(number, 2 * (message + 1));
        for (int at = 0; at < 2; at++)
            if (memcmp(in[at][number], out[number], length) != 0)
                atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

// Endpoints come and go by the same queue and vector while a thread exchanges messages.
static void *come_and_go(void *argument) {
    (void)argument;
    for (int i = 0; i < 5; i++) {
        struct fid_ep *ep;
        char name[FI_NAME_MAX];
        size_t length = sizeof name;
        fi_addr_t at;
        int codes = fi_endpoint(domains[0], info, &ep, NULL);
        codes |= fi_ep_bind(ep, &ends[0].av->fid, 0) | fi_ep_bind(ep, &ends[0].cq->fid, FI_TRANSMIT | FI_RECV);
        codes |= fi_enable(ep) | fi_getname(&ep->fid, name, &length);
        if (fi_av_insert(ends[0].av, name, 1, &at, 0, NULL) != 1)
            codes = 1;
        codes |= fi_av_remove(ends[0].av, &at, 1, 0) | fi_close(&ep->fid);
        if (codes != 0)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

static void run(void *(*other)(void *), int threads) {
    memset(ended, 0, sizeof ended);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, other, (void *)(intptr_t)(threads - 1)));
    exchange((void *)0);
    OK(pthread_join(thread, NULL));
    check_int("calls that failed, and messages with wrong data", 0, atomic_load(&wrong));
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});
    check_case("two threads send and receive by each of two endpoints, and read both queues");
    run(exchange, THREADS);
    check_case("another thread opens and closes endpoints with the same queue and vector");
    run(come_and_go, 1);
    check_nothing(&ends[0]);
    check_nothing(&ends[1]);
    close_endpoints();
    return check_finish();
}
