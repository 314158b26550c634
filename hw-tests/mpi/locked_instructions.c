// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: it watches the code of libibex.so.
//
// Checks whether a message of 8 bytes executes a locked instruction in libibex: one with a LOCK prefix, or an exchange
// with memory. Below MPI_THREAD_MULTIPLE there must be fewer than messages: none but for the look after connections,
// which comes once in thousands of polls. A process beside rank 0 single-steps it (ptrace), and looks at the
// instructions within the library. Runs with 2 or more ranks, on x86-64.
//
// usage: locked_instructions [--threads]      (--threads: asks for MPI_THREAD_MULTIPLE: one for each message, or more)
#include "check.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, WARM = 500, SHOWN = 4 };

struct report {
    long instructions, locked;
    unsigned long shown[SHOWN]; // offsets in the library
};

static volatile int is_over; // written by the traced process, read by the tracer in its memory
static int ask[2], answer[2];

static bool library(pid_t process, unsigned long *start, unsigned long *end, unsigned long *offset) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE *maps = fopen(path, "r");
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps))
        found = strstr(line, "libibex.so") && sscanf(line, "%lx-%lx r-xp %lx", start, end, offset) == 3;
    if (maps)
        fclose(maps);
    return found;
}

static bool is_prefix(unsigned char byte) {
    static const unsigned char prefixes[] = {0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0xf0};
    return memchr(prefixes, byte, sizeof prefixes) != NULL;
}

static bool is_locked(const unsigned char *code) {
    bool lock = false;
    int at = 0;
    for (; at < 8 && is_prefix(code[at]); at++)
        lock = lock || code[at] == 0xf0;
    if ((code[at] & 0xf0) == 0x40)
        at++;
    bool exchange = code[at] == 0x86 || code[at] == 0x87;
    return lock || (exchange && code[at + 1] >> 6 != 3);
}

// Single-steps the parent from its request until it sets `is_over`.
static int trace(pid_t parent) {
    struct report report = {0};
    char byte;
    int status;
    unsigned long start = 0, end = 0, offset = 0;
    if (read(ask[0], &byte, 1) != 1)
        return 0; // not asked
    bool is_traced = library(parent, &start, &end, &offset) && ptrace(PTRACE_SEIZE, parent, 0, 0) == 0 &&
                     ptrace(PTRACE_INTERRUPT, parent, 0, 0) == 0 && waitpid(parent, &status, 0) == parent;
    if (write(answer[1], &byte, 1) != 1 || !is_traced)
        return write(answer[1], &report, sizeof report) < 0;
    while (!(int)ptrace(PTRACE_PEEKDATA, parent, &is_over, 0)) {
        struct user_regs_struct registers;
        ptrace(PTRACE_GETREGS, parent, 0, &registers);
        if (registers.rip >= start && registers.rip < end) {
            long words[2];
            for (int i = 0; i < 2; i++)
                words[i] = ptrace(PTRACE_PEEKDATA, parent, registers.rip + 8UL * (unsigned)i, 0);
            report.instructions++;
            if (is_locked((unsigned char *)words) && report.locked++ < SHOWN)
                report.shown[report.locked - 1] = registers.rip - start + offset;
        }
        if (ptrace(PTRACE_SINGLESTEP, parent, 0, 0) != 0 || waitpid(parent, &status, 0) != parent || !WIFSTOPPED(status))
            return 1;
    }
    ptrace(PTRACE_DETACH, parent, 0, 0);
    return write(answer[1], &report, sizeof report) < 0;
}

static void rounds(int count, bool asks) {
    long long word = 0;
    char byte = 0;
    for (int i = 0; i < count && check.rank < 2; i++) {
        if (check.rank == 1) {
            MPI_OK(MPI_Recv(&word, 8, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Send(&word, 8, MPI_BYTE, 0, 7, MPI_COMM_WORLD));
            continue;
        }
        // The tracer answers once it has stopped this process.
        if (asks && i == 0 && (write(ask[1], &byte, 1) != 1 || read(answer[0], &byte, 1) != 1))
            check_fail("the tracer does not answer");
        word = i;
        MPI_OK(MPI_Send(&word, 8, MPI_BYTE, 1, 7, MPI_COMM_WORLD));
        MPI_OK(MPI_Recv(&word, 8, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        check_int("word", i, word);
    }
}

int main(int argc, char **argv) {
    bool threads = check_flag(argc, argv, "--threads");
    struct report report = {0};
    pid_t parent = getpid();
    if (pipe(ask) != 0 || pipe(answer) != 0)
        return 1;
    pid_t tracer = fork(); // before MPI has registered memory
    if (tracer == 0) {
        close(ask[1]);
        _exit(trace(parent));
    }
    close(ask[0]);
    prctl(PR_SET_PTRACER, tracer, 0, 0, 0);
    check_start_with(threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &argc, &argv, 2);
    check_no_more(argc);
    rounds(WARM, false);
    check_case(threads ? "short_messages_lock_where_several_threads_may_call" : "no_short_message_executes_a_locked_instruction");
    int traced = scaled(ROUNDS, 10);
    rounds(traced, true);
    if (check.rank == 0) {
        is_over = 1;
        if (read(answer[0], &report, sizeof report) != (ssize_t)sizeof report)
            check_fail("the tracer does not report");
        printf("# %ld instructions, %ld locked\n", report.instructions, report.locked);
        check_true("instructions of libibex were seen", report.instructions > traced * 100);
        if (threads)
            check_true("each message executes locked instructions", report.locked >= traced);
        for (int i = 0; !threads && report.locked >= traced && i < SHOWN; i++)
            check_fail("a locked instruction at %#lx of libibex.so", report.shown[i]);
    }
    close(ask[1]);
    int code = check_finish();
    waitpid(tracer, NULL, 0);
    return code;
}
