// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The elements of ibex's events, as docs/events.md lays them out and MPI_T_event_copy() gives them.
#ifndef IBEX_HW_TESTS_ELEMENTS_H
#define IBEX_HW_TESTS_ELEMENTS_H

#include <stdint.h>

// Of ibex_xfer_*.
struct transfer {
    uint64_t request, message, offset, bytes, total;
    uint32_t context;
    int32_t source, tag;
    uint32_t direction, peer, port, thread;
};

// Of ibex_msg_arrived.
struct arrival {
    uint64_t message, bytes, total;
    uint32_t context;
    int32_t source, tag;
    uint32_t peer, port, thread;
};

// Of ibex_put_*, get_*.
struct operation {
    uint64_t operation, local, remote, bytes;
    uint32_t peer, status;
    // Of get_complete alone, behind what it shares with put_complete.
    uint64_t request;
};

// Of ibex_atomic_*.
struct atomic {
    uint64_t operation, local, remote, bytes;
    uint32_t kind, peer, status;
};

// Of ibex_flush_*.
struct flush {
    uint64_t operation;
    uint32_t peer, port;
};

// Of ibex_connection_established.
struct connection {
    uint32_t peer, port, queue_pair, remote_queue_pair;
};

// Of ibex_comm_*, but for those of protocols.
struct matching {
    uint64_t id, bytes, buffer;
    int32_t peer, tag;
    uint32_t operation, context, posted, unexpected;
    int32_t count;
};

#endif
