// SPDX-License-Identifier: MIT OR Apache-2.0
// Compares an adapter with the bare memory of the host, between the same two processes: a send and receive of 8 bytes
// with a ping-pong of two flags in shared memory, and an RDMA write of 1 MiB with process_vm_writev to the same memory.
// For emulated adapters (docs/softhca.md), which consist of these. Needs InfiniBand addressing (a LID).
// Build: cc -O2 -o host_memory_ratios host_memory_ratios.c -libverbs     Run: softhca run -- ./host_memory_ratios
//
// Each line of stdout is one JSON object. `value` is the median of a round's batches, `spread` their interquartile
// range. The four are measured in turn, round by round. Units: us = half a round trip; MB = 10^6 bytes. With --messages
// N it times nothing: N messages of each of several sizes up to 256 bytes go to and fro, inline and not, between two
// changes of the thread's name ("steady-begin", "steady-end"), which show a tracer where they begin and end.
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SMALL = 8,
    MOST_SMALL = 256,
    LARGE = 1 << 20,
    DEPTH = 64,         // receives posted ahead, and room for sends
    SIGNAL_EACH = 16,   // sends between two completions
    BATCHES = 21,
    LAPS = 400,         // round trips of a batch
    WRITES = 8,         // writes of a batch
    ROUNDS = 5,
    PATIENCE = 1 << 14, // polls in vain before the processor is offered: the peer may need this one
    PORT = 1,
    USAGE_EXIT = 2,
};

// Data that a process tells the other.
struct address {
    uint16_t lid;
    uint32_t qp_number, key;
    uint64_t memory;
    pid_t process;
};

// Processors fetch cache lines in pairs, so the flags of two processes are a pair apart.
struct flag {
    _Alignas(128) atomic_uint value;
};

static struct {
    struct flag ping[2], barrier[2];
    struct address address[2];
} *shared;

static int side; // 0 leads and measures, 1 answers
static pid_t parent;
static struct ibv_cq *send_cq, *receive_cq;
static struct ibv_qp *qp;
static struct ibv_mr *region;
static unsigned char *memory; // LARGE bytes for writes, then DEPTH slots for receives, then one for sends
static unsigned sends, receives, barriers;

static void fail(const char *what) {
    fprintf(stderr, "host_memory_ratios: process %d: %s: %s\n", side, what, strerror(errno));
    exit(1);
}

// ---- waiting --------------------------------------------------------------------------------------------------------

// Called in each turn of a loop that polls. Fails if the other process has gone.
static void waited(unsigned *polls) {
    if (++*polls % PATIENCE != 0)
        return;
    sched_yield();
    bool look = *polls % (PATIENCE << 8) == 0;
    if (look && (side == 0 ? waitpid(-1, NULL, WNOHANG) != 0 : getppid() != parent)) {
        errno = ESRCH;
        fail("the other process has ended");
    }
}

// Waits until the flag has at least that value: the other side may be one barrier ahead.
static void await_flag(struct flag *flag, unsigned value) {
    unsigned polls = 0;
    while (atomic_load_explicit(&flag->value, memory_order_acquire) < value)
        waited(&polls);
}

static void set_flag(struct flag *flag, unsigned value) {
    atomic_store_explicit(&flag->value, value, memory_order_release);
}

static void barrier(void) {
    set_flag(&shared->barrier[side], ++barriers);
    await_flag(&shared->barrier[1 - side], barriers);
}

static void await_completion(struct ibv_cq *cq) {
    struct ibv_wc completion;
    unsigned polls = 0;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &completion)) == 0)
        waited(&polls);
    if (found < 0 || completion.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "host_memory_ratios: process %d: a request failed: %s\n", side,
                found < 0 ? "the completion queue cannot be polled" : ibv_wc_status_str(completion.status));
        exit(1);
    }
}

// ---- the adapter ----------------------------------------------------------------------------------------------------

static struct ibv_context *open_device(const char *name) {
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; devices && i < count; i++)
        if (!name || strcmp(ibv_get_device_name(devices[i]), name) == 0) {
            struct ibv_context *context = ibv_open_device(devices[i]);
            if (!context)
                fail("cannot open the device");
            ibv_free_device_list(devices);
            return context;
        }
    errno = ENODEV;
    fail(name ? name : "there is no RDMA device; run it under `softhca run --`");
    return NULL;
}

static void modify(struct ibv_qp_attr attributes, int mask, const char *state) {
    if ((errno = ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE)) != 0)
        fail(state);
}

static void connect_to(const struct address *peer, enum ibv_mtu mtu) {
    modify((struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
           IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "cannot initialise the queue pair");
    modify((struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = mtu,
                                .dest_qp_num = peer->qp_number,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 12,
                                .ah_attr = {.dlid = peer->lid, .port_num = PORT}},
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
           "cannot make the queue pair ready to receive");
    modify((struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1},
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
           "cannot make the queue pair ready to send");
}

static void post_receive(void) {
    struct ibv_sge where = {.addr = (uintptr_t)memory + LARGE + receives++ % DEPTH * MOST_SMALL,
                            .length = MOST_SMALL,
                            .lkey = region->lkey};
    struct ibv_recv_wr request = {.sg_list = &where, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(qp, &request, &bad)) != 0)
        fail("cannot post a receive");
}

static void open_adapter(const char *name) {
    struct ibv_context *context = open_device(name);
    struct ibv_port_attr port;
    if ((errno = ibv_query_port(context, PORT, &port)) != 0)
        fail("cannot query the port");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    send_cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
    receive_cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
    if (!pd || !send_cq || !receive_cq)
        fail("cannot create the completion queues");
    struct ibv_qp_init_attr wanted = {
        .send_cq = send_cq,
        .recv_cq = receive_cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = MOST_SMALL},
        .qp_type = IBV_QPT_RC};
    if (!(qp = ibv_create_qp(pd, &wanted)))
        fail("cannot create the queue pair");
    size_t bytes = LARGE + (DEPTH + 1) * MOST_SMALL;
    if (posix_memalign((void **)&memory, 4096, bytes) != 0)
        fail("no memory");
    memset(memory, side + 1, bytes);
    if (!(region = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)))
        fail("cannot register memory");
    shared->address[side] = (struct address){.lid = port.lid,
                                             .qp_number = qp->qp_num,
                                             .key = region->rkey,
                                             .memory = (uintptr_t)memory,
                                             .process = getpid()};
    barrier();
    connect_to(&shared->address[1 - side], port.active_mtu);
    for (int i = 0; i < DEPTH; i++)
        post_receive();
    barrier();
}

static void post_send(int bytes, bool in_line) {
    struct ibv_sge what = {.addr = (uintptr_t)memory + LARGE + DEPTH * MOST_SMALL,
                           .length = (uint32_t)bytes,
                           .lkey = region->lkey};
    bool signaled = ++sends % SIGNAL_EACH == 0;
    struct ibv_send_wr request = {.sg_list = &what,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = (in_line ? IBV_SEND_INLINE : 0) | (signaled ? IBV_SEND_SIGNALED : 0)};
    struct ibv_send_wr *bad;
    if ((errno = ibv_post_send(qp, &request, &bad)) != 0)
        fail("cannot post a send");
    if (signaled)
        await_completion(send_cq);
}

static void receive(void) {
    await_completion(receive_cq);
    post_receive();
}

// ---- the compared operations ----------------------------------------------------------------------------------------

static void flag_round_trip(void) {
    static unsigned turn;
    turn++;
    if (side == 0) {
        set_flag(&shared->ping[0], turn);
        await_flag(&shared->ping[1], turn);
    } else {
        await_flag(&shared->ping[0], turn);
        set_flag(&shared->ping[1], turn);
    }
}

static void message_round_trip(int bytes, bool in_line) {
    if (side == 0) {
        post_send(bytes, in_line);
        receive();
    } else {
        receive();
        post_send(bytes, in_line);
    }
}

static void verbs_round_trip(void) { message_round_trip(SMALL, true); }

static void copy(void) {
    if (side != 0)
        return;
    const struct address *peer = &shared->address[1];
    struct iovec from = {memory, LARGE}, to = {(void *)(uintptr_t)peer->memory, LARGE};
    if (process_vm_writev(peer->process, &from, 1, &to, 1, 0) != LARGE)
        fail("process_vm_writev");
}

static void rdma_write(void) {
    if (side != 0)
        return;
    const struct address *peer = &shared->address[1];
    struct ibv_sge what = {.addr = (uintptr_t)memory, .length = LARGE, .lkey = region->lkey};
    struct ibv_send_wr request = {.sg_list = &what,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = {.remote_addr = peer->memory, .rkey = peer->key}};
    struct ibv_send_wr *bad;
    if ((errno = ibv_post_send(qp, &request, &bad)) != 0)
        fail("cannot post a write");
    await_completion(send_cq);
}

static const struct measured {
    const char *test, *transport, *unit;
    int bytes, count; // count: turns of a batch
    void (*turn)(void);
} all[] = {
    {"host_latency", "memory", "us", SMALL, LAPS, flag_round_trip},
    {"host_latency", "raw", "us", SMALL, LAPS, verbs_round_trip},
    {"host_bandwidth", "memory", "MB/s", LARGE, WRITES, copy},
    {"host_bandwidth", "raw", "MB/s", LARGE, WRITES, rdma_write},
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const struct measured *what) {
    double values[BATCHES];
    barrier();
    for (int batch = -1; batch < BATCHES; batch++) { // the first is not counted
        double start = now();
        for (int i = 0; i < what->count; i++)
            what->turn();
        double seconds = (now() - start) / what->count;
        if (batch >= 0)
            values[batch] = what->unit[0] == 'u' ? seconds * 1e6 / 2 : what->bytes / seconds / 1e6;
    }
    barrier();
    if (side != 0)
        return;
    qsort(values, BATCHES, sizeof *values, compare_doubles);
    printf("{\"test\":\"%s\",\"transport\":\"%s\",\"bytes\":%d,\"unit\":\"%s\",\"value\":%.6g,\"spread\":%.6g}\n",
           what->test, what->transport, what->bytes, what->unit, values[BATCHES / 2],
           values[BATCHES * 3 / 4] - values[BATCHES / 4]);
    fflush(stdout);
}

static void exchange(long messages) {
    static const int sizes[] = {1, SMALL, 64, 128, MOST_SMALL};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
        for (long m = 0; m < messages; m++)
            message_round_trip(sizes[i / 2], i % 2 == 0);
}

static void steady(long messages) {
    exchange(SIGNAL_EACH); // for what the first messages alone set up
    barrier();
    prctl(PR_SET_NAME, "steady-begin");
    barrier();
    exchange(messages);
    barrier();
    prctl(PR_SET_NAME, "steady-end");
    barrier();
    if (side == 0)
        printf("exchanged %zu messages\n", 2 * 10 * (size_t)messages);
}

// ---- two processes, each on a processor of its own ------------------------------------------------------------------

// Processors of the two processes; negative: the first two that are allowed.
static int processors[2] = {-1, -1};

static void bind_to_own_processor(void) {
    cpu_set_t allowed, own;
    int chosen = processors[side];
    if (chosen < 0) {
        if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
            return;
        for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &allowed) && found++ == side)
                chosen = cpu;
    }
    CPU_ZERO(&own);
    CPU_SET(chosen, &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0)
        fail("cannot take a processor");
}

static void usage(void) {
    fprintf(stderr, "usage: host_memory_ratios [--device NAME] [--processors A,B] [--messages N]\n");
    exit(USAGE_EXIT);
}

int main(int argc, char **argv) {
    static const struct option known[] = {{"device", required_argument, NULL, 'd'},
                                          {"processors", required_argument, NULL, 'p'},
                                          {"messages", required_argument, NULL, 'm'},
                                          {NULL, 0, NULL, 0}};
    const char *device = NULL;
    long messages = 0;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        if (option == 'd')
            device = optarg;
        else if (option == 'p' && sscanf(optarg, "%d,%d", &processors[0], &processors[1]) == 2)
            continue;
        else if (option == 'm' && (messages = strtol(optarg, NULL, 10)) > 0)
            continue;
        else
            usage();
    if (optind != argc)
        usage();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("no shared memory");
    parent = getpid();
    pid_t child = fork(); // before anything of libibverbs exists
    if (child < 0)
        fail("cannot fork");
    side = child == 0;
    bind_to_own_processor();
    open_adapter(device);
    for (long round = 0; !messages && round < ROUNDS; round++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            measure(&all[i]);
    if (messages)
        steady(messages);
    if (side != 0)
        return 0;
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("the other process failed");
    return 0;
}
