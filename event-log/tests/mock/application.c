/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An application for the logger's tests, on the mock of ibex. Its first argument names its task. */
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <signal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void mock_raise(int type, int source, unsigned long operation, int value);
void mock_lose(int type, MPI_Count count);
void mock_keep(int count);
const char *mock_levels(void);

/* Number of allocations of this thread; the C library's own functions make them. */
static _Thread_local unsigned long allocations;
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

void *malloc(size_t size)
{
    ++allocations;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    ++allocations;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    ++allocations;
    return __libc_realloc(memory, size);
}

/* Datagrams of this process to a named address: answers to hosts that ask for its clock. */
static atomic_int answers;

/* With APPLICATION_FILTERS none of them arrives, as behind a firewall. */
ssize_t sendto(int socket, const void *bytes, size_t count, int flags, const struct sockaddr *to, socklen_t length)
{
    answers += to != NULL;
    if (to && getenv("APPLICATION_FILTERS"))
        return (ssize_t) count;
    return syscall(SYS_sendto, socket, bytes, count, flags, to, length);
}

static void raise_times(int times, unsigned long first)
{
    for (int i = 0; i < times; ++i)
        mock_raise(0, 0, first + i, -1);
}

static void *raise_many(void *first)
{
    raise_times(5000, (unsigned long) first);
    return NULL;
}

/* Threads that record: LIVING at the same time, of which FIRST begin before the others, with EACH events each. */
enum { LIVING = 100, FIRST = 63, EACH = 50 };
static pthread_barrier_t first_wait, others_wait;
static pid_t first_threads[FIRST];

static void *raise_each(void *first)
{
    raise_times(EACH, (unsigned long) first);
    return NULL;
}

static void *raise_and_wait(void *first)
{
    first_threads[(long) first / 1000 - 1] = (pid_t) syscall(SYS_gettid);
    raise_each(first);
    pthread_barrier_wait(&first_wait);
    pthread_barrier_wait(&first_wait);
    /* A pass gives the memory of the others away, and sees no need to look again for a second. */
    if ((long) first > 22000)
        usleep(1300000);
    return NULL;
}

static void *raise_twice(void *first)
{
    pthread_barrier_wait(&others_wait);
    raise_each(first);
    pthread_barrier_wait(&others_wait);
    pthread_barrier_wait(&others_wait);
    raise_times(EACH, (unsigned long) first + EACH);
    return NULL;
}

static long recorded(void)
{
    long bytes = 0;
    DIR *folder = opendir(getenv("IBEX_TRACE"));
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        char name[4096];
        struct stat status;
        snprintf(name, sizeof name, "%s/%s", getenv("IBEX_TRACE"), entry->d_name);
        if (stat(name, &status) == 0 && S_ISREG(status.st_mode))
            bytes += status.st_size;
    }
    closedir(folder);
    return bytes;
}

/* From now on the process gets little more memory. */
static void limit_memory(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        abort();
    fclose(file);
    rlim_t bytes = pages * (rlim_t) sysconf(_SC_PAGESIZE) + (32 << 20);
    setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes});
}

/* This thread and the first threads record. The others find no memory, and try again when the first have ended. */
static void raise_in_living_threads(int is_limited)
{
    pthread_t threads[LIVING];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 18);
    pthread_barrier_init(&first_wait, NULL, FIRST + 1);
    pthread_barrier_init(&others_wait, NULL, LIVING - FIRST + 1);
    mock_raise(0, 0, 0, -1);
    for (long t = 0; t < LIVING; ++t)
        pthread_create(&threads[t], &small, t < FIRST ? raise_and_wait : raise_twice, (void *) ((t + 1) * 1000));
    pthread_barrier_wait(&first_wait);
    if (is_limited)
        limit_memory();
    pthread_barrier_wait(&others_wait);
    pthread_barrier_wait(&others_wait);
    pthread_barrier_wait(&first_wait);
    for (int t = 0; t < FIRST; ++t) {
        pthread_join(threads[t], NULL);
        /* A joined thread still exists for a moment in the system, and its memory cannot be reused yet. */
        while (syscall(SYS_tgkill, getpid(), first_threads[t], 0) == 0)
            usleep(100);
    }
    /* Gives the memory of the threads that have ended to others. */
    MPI_Pcontrol(2);
    pthread_barrier_wait(&others_wait);
    for (int t = FIRST; t < LIVING; ++t)
        pthread_join(threads[t], NULL);
}

/* A message goes there and back, many times; each raises an event at its sender and one at its receiver. */
static void exchange(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 200; ++i) {
        if (i % 2 == rank) {
            mock_raise(0, 0, i, rank);
            MPI_Send(&i, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&i, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            mock_raise(1, 0, i, rank);
        }
    }
}

/* Repeats this until rank 0's host has been asked for its clock `times` times. */
static void exchange_while_clocks_are_asked(int times)
{
    for (int goes_on = 1; goes_on;) {
        exchange();
        usleep(1000);
        goes_on = answers < times;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}

static long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Ten pairs of events, and the least and the greatest time that may lie between the two events of a pair. */
static void raise_pairs(void)
{
    long before_begins = nanoseconds();
    for (int i = 1; i <= 10; ++i)
        mock_raise(0, 0, i, -i);
    long after_begins = nanoseconds();
    usleep(30000);
    long before_ends = nanoseconds();
    for (int i = 1; i <= 10; ++i)
        mock_raise(1, 1, i, i);
    printf("apart %ld %ld\n", before_ends - after_begins, nanoseconds() - before_begins);
}

/* The application's own wrapper, like that of a profiling tool. */
static int wrapped;

int MPI_Ssend(const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm)
{
    ++wrapped;
    return PMPI_Ssend(buffer, count, datatype, to, tag, comm);
}

/* Fortran's names of the calls. */
void mpi_barrier_(MPI_Fint *comm, MPI_Fint *error);
void mpi_pcontrol_(MPI_Fint *level);

/* Is called within MPI_Comm_dup. */
static int copy(MPI_Comm, int, void *, void *, void *, int *is_copied)
{
    *is_copied = 0;
    return MPI_Barrier(MPI_COMM_SELF);
}

static void call_all(void)
{
    int key, value = 7, is_done = 0;
    MPI_Fint self = MPI_Comm_c2f(MPI_COMM_SELF), error;
    MPI_Request request;
    MPI_Comm comm;
    MPI_Barrier(MPI_COMM_SELF);
    mpi_barrier_(&self, &error);
    MPI_Irecv(&key, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    MPI_Ssend(&value, 1, MPI_INT, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    /* A thread that tests repeatedly does not wait. */
    MPI_Irecv(&key, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    MPI_Request sent;
    MPI_Isend(&value, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &sent);
    MPI_Request_free(&sent);
    while (!is_done)
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &value);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    printf("wrapped %d\n", wrapped);
}

/* Is called within MPI_Comm_dup. */
static int stop(MPI_Comm, int, void *, void *, void *, int *is_copied)
{
    *is_copied = 0;
    return MPI_Pcontrol(0);
}

/* Stops and resumes twice each, and uses a level without a meaning. */
static void control(void)
{
    int key, value = 7;
    MPI_Fint on = 1;
    MPI_Comm comm;
    mock_raise(0, 0, 1, 1);
    MPI_Comm_create_keyval(stop, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &value);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Pcontrol(0, "again", 2.5);
    MPI_Pcontrol(7);
    mock_raise(0, 0, 2, 2);
    mock_raise(3, 0, 3, 3);
    MPI_Barrier(MPI_COMM_SELF);
    mpi_pcontrol_(&on);
    MPI_Pcontrol(1);
    mock_raise(0, 0, 4, 4);
    MPI_Barrier(MPI_COMM_SELF);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    printf("levels %s\n", mock_levels());
}

/* Bytes of the trace, or else events in the log. */
static long written(void)
{
    char name[4096], line[4096];
    long count = 0;
    if (getenv("IBEX_TRACE"))
        return recorded();
    snprintf(name, sizeof name, "%s.0", getenv("IBEX_LOG_FILE"));
    FILE *file = fopen(name, "r");
    while (file && fgets(line, sizeof line, file))
        count += line[0] != '#';
    if (file)
        fclose(file);
    return count;
}

/* Each event is in the log and in the trace when the call that asks for it returns. */
static void flush_each(void)
{
    int missing = 0;
    for (int i = 0; i < 200; ++i) {
        long before = written();
        mock_raise(0, 0, i, i);
        MPI_Pcontrol(2);
        missing += written() <= before;
    }
    printf("missing %d\n", missing);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "no-mpi") == 0)
        return 0;
    if (strcmp(what, "profiling-names") == 0) {
        PMPI_Init(&argc, &argv);
        mock_raise(0, 0, 1, 1);
        PMPI_Finalize();
        mock_raise(2, 0, 0, 99);
        return 0;
    }
    MPI_Init(&argc, &argv);
    if (strcmp(what, "pairs") == 0) {
        raise_pairs();
        mock_lose(1, 7);
        mock_keep(3);
    } else if (strcmp(what, "threads") == 0) {
        pthread_t threads[4];
        for (long t = 0; t < 4; ++t)
            pthread_create(&threads[t], NULL, raise_many, (void *) (t * 10000));
        for (int t = 0; t < 4; ++t)
            pthread_join(threads[t], NULL);
    } else if (strcmp(what, "short-threads") == 0) {
        /* One after another, more threads than may exist at the same time. */
        for (long t = 0; t < 300; ++t) {
            pthread_t thread;
            pthread_create(&thread, NULL, raise_each, (void *) (t * 1000));
            pthread_join(thread, NULL);
        }
    } else if (strcmp(what, "living-threads") == 0 || strcmp(what, "living-threads-limited") == 0) {
        raise_in_living_threads(strcmp(what, "living-threads") != 0);
    } else if (strcmp(what, "calls") == 0) {
        call_all();
    } else if (strcmp(what, "control") == 0) {
        control();
    } else if (strcmp(what, "flush") == 0) {
        flush_each();
    } else if (strcmp(what, "many") == 0) {
        /* Values that no compression makes smaller: a megabyte. */
        unsigned long chance = 88172645463325252ul;
        for (int i = 0; i < 200000; ++i) {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            mock_raise(i % 2, i % 2, chance, i);
        }
        puts("went on to the end");
    } else if (strcmp(what, "fork") == 0) {
        mock_raise(0, 0, 1, 1);
        pid_t child = fork();
        if (child == 0)
            exit(0);
        int status;
        waitpid(child, &status, 0);
    } else if (strcmp(what, "abort") == 0) {
        mock_raise(0, 0, 1, 1);
        MPI_Abort(MPI_COMM_WORLD, 0);
    } else if (strcmp(what, "exit") == 0) {
        mock_raise(0, 0, 1, 1);
        exit(0);
    } else if (strcmp(what, "killed") == 0) {
        mock_raise(0, 0, 1, 1);
        /* Before the event the trace gets names and clocks, also by a pass that began earlier: the fifth write has it. */
        for (int times = 0; times < 5 && getenv("IBEX_TRACE"); ++times)
            for (long before = written(); written() == before;)
                usleep(1000);
        while (written() == 0)
            usleep(1000);
        raise(SIGKILL);
    } else if (strcmp(what, "exchange") == 0) {
        exchange();
    } else if (strcmp(what, "exchange-long") == 0) {
        /* Several times the 30 answers of a sample; if none arrives, over three questions to each of 12 addresses. */
        exchange_while_clocks_are_asked(getenv("APPLICATION_FILTERS") ? 37 : 248);
    } else if (strcmp(what, "one-leaves") == 0) {
        int rank;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        mock_raise(0, 0, 1, 1);
        if (rank == 1)
            exit(3);
    } else if (strcmp(what, "allocations") == 0) {
        mock_raise(0, 0, 1, 1);
        unsigned long before = allocations;
        for (int i = 0; i < 1000; ++i)
            mock_raise(0, 0, i, i);
        printf("allocated %lu of %lu\n", allocations - before, before);
    }
    MPI_Finalize();
    mock_raise(2, 0, 0, 99);
    return 0;
}
