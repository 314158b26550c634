// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The elements of ibex's events, in the layout of docs/events.md, as MPI_T_event_copy() stores them.
#pragma once

#include <stdint.h>

// Elements of ibex_xfer_*.
struct transfer {
    uint64_t request, message, offset, bytes, total;
    uint32_t context;
    int32_t source, tag;
    uint32_t direction, peer, port, thread;
};

// Elements of ibex_msg_arrived.
struct arrival {
    uint64_t message, bytes, total;
    uint32_t context;
    int32_t source, tag;
    uint32_t peer, port, thread;
};

// Elements of ibex_put_* and ibex_get_*.
struct operation {
    uint64_t operation, local, remote, bytes;
    uint32_t peer, status;
    union {
        struct { // only in ibex_put_complete
            uint32_t thread_of_put, port_of_put;
        };
        struct { // only in ibex_get_complete; ibex_get_started has its port where this one has the thread
            uint64_t request;
            uint32_t thread, port;
        };
    };
};

// Elements of ibex_atomic_*.
struct atomic {
    uint64_t operation, local, remote, bytes;
    uint32_t kind, peer, status, thread, port;
};

// Elements of ibex_flush_*.
struct flush {
    uint64_t operation;
    uint32_t peer, port;
};

// Elements of ibex_connection_established.
struct connection {
    uint32_t peer, port, queue_pair, remote_queue_pair;
};

// Elements of ibex_comm_*, except ibex_comm_req_protocol.
struct matching {
    uint64_t id, bytes, buffer;
    int32_t peer, tag;
    uint32_t operation, context, posted, unexpected;
    int32_t count;
};
