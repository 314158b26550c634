// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One-sided operations that the target refuses: a wrong key, a range outside the region, a region that does not permit
// the access or is closed. Each ends with an error of its own, and touches no memory. Each with
// a peer in a process of its own, because the adapter then breaks the connection; then all of the endpoint itself.
#include "one_sided.h"
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 4096 };

static unsigned char target[3 * ROOM], local[3 * ROOM];

enum wrong { KEY, LONG_KEY, BEYOND, BEFORE, READ_ONLY, WRITE_ONLY, CLOSED, WRONG };
static const char *const names[] = {"a wrong key", "a key beyond 32 bits", "a range that ends outside the region",
                                    "a range that begins before the region", "a write to memory that peers only read",
                                    "a read of memory that peers only write", "a closed region"};

static void refused(struct endpoint *end, fi_addr_t to, enum wrong wrong, size_t length) {
    memset(target, 3, sizeof target);
    memset(local, 4, sizeof local);
    uint64_t access = (wrong == WRITE_ONLY ? 0 : FI_REMOTE_READ) | (wrong == READ_ONLY ? 0 : FI_REMOTE_WRITE);
    struct fid_mr *region = registered(b, target + ROOM, ROOM, access);
    uint64_t key = fi_mr_key(region), address = (uintptr_t)target + ROOM;
    if (wrong == CLOSED)
        OK(fi_close(&region->fid));
    key += wrong == KEY ? 0x7000 : wrong == LONG_KEY ? 1ull << 32 : 0;
    address += wrong == BEYOND ? ROOM - length + 1 : wrong == BEFORE ? (size_t)-1 : 0;
    forget();
    struct fi_context context;
    bool is_read = wrong == WRITE_ONLY;
    uint64_t errors = fi_cntr_readerr(is_read ? end->reads : end->writes);
    if (is_read)
        RETRIED(fi_read(end->ep, local, length, NULL, to, address, key, &context));
    else
        RETRIED(fi_write(end->ep, local, length, NULL, to, address, key, &context));
    await(end, 1);
    check_int("failures", 1, end->failed);
    struct fi_cq_err_entry *failure = &end->failures[0];
    check_int("error", FI_EACCES, failure->err);
    check_int("flags", FI_RMA | (is_read ? FI_READ : FI_WRITE), (long long)failure->flags);
    if (failure->op_context != &context)
        check_fail("context %p", failure->op_context);
    const char *text = fi_cq_strerror(end->cq, failure->prov_errno, failure->err_data, NULL, 0);
    if (!strstr(text, "the target refuses the access"))
        check_fail("the reason is: %s", text);
    check_int("errors", (long long)errors + 1, (long long)fi_cntr_readerr(is_read ? end->reads : end->writes));
    for (size_t i = 0; i < sizeof target; i++)
        if (target[i] != 3 || local[i] != 4) {
            check_fail("byte %zu was touched", i);
            break;
        }
    if (wrong != CLOSED)
        OK(fi_close(&region->fid));
}

static void works(struct endpoint *end, fi_addr_t to) {
    struct fid_mr *region = registered(b, target, ROOM, FI_REMOTE_WRITE);
    forget();
    RETRIED(fi_write(end->ep, local, ROOM, NULL, to, (uintptr_t)target, fi_mr_key(region), NULL));
    await(end, 1);
    check_int("failures", 0, end->failed);
    check_same("the target", local, target, ROOM);
    OK(fi_close(&region->fid));
}

int main(void) {
    for (int wrong = 0; wrong < WRONG; wrong++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            check_case("of a peer: %s", names[wrong]);
            open_endpoints();
            works(a, a->to[1]);
            refused(a, a->to[1], wrong, wrong % 2 ? 3000 : 8);
            _exit(check_finish());
        }
        int status = 1;
        waitpid(child, &status, 0);
        if (status != 0)
            return 1;
    }
    check_case("endpoints open");
    open_endpoints();
    for (int wrong = 0; wrong < WRONG; wrong++) {
        check_case("%s", names[wrong]);
        refused(b, b->to[1], wrong, 3000);
        works(b, b->to[1]);
    }
    close_endpoints();
    return check_finish();
}
