// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Strangers at the door: each rank connects to the TCP ports at which its own process listens, as anybody on the network
// may, and writes what is no handshake of the job, or half of one, or nothing, while the ranks exchange messages. All
// messages must be right; what is no handshake must be shown out, and of those who say nothing only a few be kept.
// Skips where the process listens nowhere (--mca btl_ibex_connect_via ud). Linux. Needs 2 or more ranks.
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO = 188, DOORS = 64, PATIENCE = 120, LENGTHS = 3, SILENT_PER_DOOR = 90, MOST_PER_DOOR = 64 };
static const int lengths[LENGTHS] = {8, 5000, 200000};

// What is written on a connection. All but the last three end it.
enum kind { GARBAGE, FORGED, OTHER_VERSION, LONG_GARBAGE, ENDING_KINDS, HALF = ENDING_KINDS, SILENT, DRIP, KINDS };

static struct sockaddr_in doors[DOORS]; // at which this process listens
static int door_count;

struct visit { int socket, door; enum kind kind; };
static struct visit *visits;
static int visit_count, exchanges;

// Whether this process has the socket with that inode.
static bool is_ours(unsigned long inode) {
    char wanted[64], path[300], link[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = opendir("/proc/self/fd");
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length > 0) {
            link[length] = 0;
            found = strcmp(link, wanted) == 0;
        }
    }
    if (folder)
        closedir(folder);
    return found;
}

static void find_doors(void) {
    FILE *table = fopen("/proc/net/tcp", "r");
    char line[512];
    while (table && fgets(line, sizeof line, table)) {
        unsigned address, port, state;
        unsigned long inode;
        if (sscanf(line, " %*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &address, &port, &state, &inode) == 4 &&
            state == 0x0a && door_count < DOORS && is_ours(inode)) {
            struct sockaddr_in door = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
            door.sin_addr.s_addr = address;
            check_true("it listens at an address, not at all", address != INADDR_ANY);
            doors[door_count++] = door;
        }
    }
    if (table)
        fclose(table);
}

// A connection to that door, on which nothing blocks; kept until it is found closed.
static void visit(int door, enum kind kind) {
    int wire = socket(AF_INET, SOCK_STREAM, 0);
    if (wire < 0 || connect(wire, (struct sockaddr *)&doors[door], sizeof doors[door]) != 0) {
        check_fail("connecting to port %d: expected success, got %s", ntohs(doors[door].sin_port), strerror(errno));
        return;
    }
    fcntl(wire, F_SETFL, O_NONBLOCK);
    unsigned char bytes[8 * HELLO];
    pattern_fill(bytes, sizeof bytes, (uint64_t)visit_count);
    if (kind != GARBAGE && kind != LONG_GARBAGE)
        memcpy(bytes, kind == OTHER_VERSION ? "ibHi\1" : "ibHi\2", 5);
    size_t length = kind == SILENT ? 0 : kind == DRIP ? 1 : kind == HALF ? HELLO / 2 : kind == LONG_GARBAGE ? sizeof bytes : HELLO;
    if (length && send(wire, bytes, length, MSG_NOSIGNAL) < 0 && errno != ECONNRESET && errno != EPIPE)
        check_fail("writing: expected success, got %s", strerror(errno));
    visits[visit_count++] = (struct visit){wire, door, kind};
}

static bool stands(struct visit *visit) {
    if (visit->socket < 0)
        return false;
    char byte;
    ssize_t got = recv(visit->socket, &byte, 1, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    close(visit->socket);
    visit->socket = -1;
    return false;
}

// Messages around the ring, every byte compared.
static void exchange(void) {
    static unsigned char out[200000], in[200000];
    for (int k = 0; k < LENGTHS; k++)
        check_ring(MPI_COMM_WORLD, k, out, in, lengths[k], exchanges * LENGTHS + k);
    exchanges++;
}

static int standing(int door, bool ending_only) {
    int count = 0;
    for (int v = 0; v < visit_count; v++)
        if ((door < 0 || doors[visits[v].door].sin_port == doors[door].sin_port) &&
            (!ending_only || visits[v].kind < ENDING_KINDS) && stands(&visits[v]))
            count++;
    return count;
}

// The most that stand at one port number.
static int crowd(void) {
    int most = 0;
    for (int door = 0; door < door_count; door++) {
        int here = standing(door, false);
        most = here > most ? here : most;
    }
    return most;
}

// Exchanges until all ranks are done, or it has taken too long.
static int exchange_until(int most, int (*left_over)(void)) {
    double end = MPI_Wtime() + PATIENCE;
    int remaining, all;
    do {
        exchange();
        remaining = left_over();
        int goes_on = remaining > most && MPI_Wtime() < end;
        MPI_OK(MPI_Allreduce(&goes_on, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    } while (all);
    return remaining;
}

static int ending(void) { return standing(-1, true); }

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    int rounds = scaled(60, 12);
    check_case("messages are right while strangers come");
    exchange();
    find_doors();
    int fewest;
    MPI_OK(MPI_Allreduce(&door_count, &fewest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (fewest == 0) {
        check_skip("strangers", "a process listens nowhere on TCP");
        return check_finish();
    }
    visits = check_alloc(((size_t)rounds + SILENT_PER_DOOR) * DOORS * sizeof *visits);
    for (int round = 0; round < rounds; round++) {
        for (int door = 0; door < door_count; door++)
            visit(door, (enum kind)(round % KINDS));
        exchange();
    }
    check_end_case();

    check_case("what is no handshake of the job is shown out");
    check_int("connections that stand", 0, exchange_until(0, ending));
    check_end_case();

    check_case("of those who say nothing only a few are kept");
    for (int i = 0; i < SILENT_PER_DOOR; i++)
        for (int door = 0; door < door_count; door++)
            visit(door, SILENT);
    int kept = exchange_until(MOST_PER_DOOR, crowd);
    check_true("no more stand at a port than may", kept <= MOST_PER_DOOR);
    check_end_case();
    return check_finish();
}
