/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * PERUSE 2.0 as ibex offers it: link with -libex. Names and prototypes are those of appendix A of the specification.
 *
 * The supported events are those whose names PERUSE_Query_event knows. With ibex' PML (--mca pml ibex) they are all
 * events of the specification, PERUSE_COMM_REQ_XFER_CONTINUE, PERUSE_IBEX_REQ_CANCEL and PERUSE_IBEX_REQ_FREE. With any
 * PML they are also the puts, gets and atomics of the transport. These belong to no communicator: every handle for them
 * gets them, with tag -1; count is in bytes, and datatype is MPI_BYTE. docs/peruse.md has every field and id, and ibex'
 * behaviour where the specification is open or contradicts itself.
 */
#ifndef PERUSE_H
#define PERUSE_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef long peruse_event_h;

typedef struct peruse_comm_spec_t {
    MPI_Comm comm;
    void *buf;
    int count;
    MPI_Datatype datatype;
    int peer;
    int tag;
    int operation;
} peruse_comm_spec_t;

/* Anything but MPI_SUCCESS ends the job. */
typedef int(peruse_comm_callback_f)(peruse_event_h event_h, MPI_Aint unique_id, peruse_comm_spec_t *spec, void *param);
typedef peruse_comm_callback_f peruse_comm_callback_t;

enum {
    PERUSE_SUCCESS,
    PERUSE_ERR_INIT,
    PERUSE_ERR_GENERIC,
    PERUSE_ERR_MALLOC,
    PERUSE_ERR_EVENT,
    PERUSE_ERR_EVENT_HANDLE,
    PERUSE_ERR_PARAMETER,
    PERUSE_ERR_MPI_INIT,
    PERUSE_ERR_COMM,
    PERUSE_ERR_MPI_OBJECT,
    PERUSE_ERR_LOCK,
    PERUSE_ERR_UNLOCK,
    PERUSE_ERR_LOCK_NOT_GRANTABLE,
    PERUSE_LOCK_NOT_GRANTABLE = PERUSE_ERR_LOCK_NOT_GRANTABLE
};

enum {
    PERUSE_EVENT_INVALID,
    PERUSE_COMM_REQ_ACTIVATE,
    PERUSE_COMM_REQ_MATCH_UNEX,
    PERUSE_COMM_REQ_INSERT_IN_POSTED_Q,
    PERUSE_COMM_REQ_REMOVE_FROM_POSTED_Q,
    PERUSE_COMM_REQ_XFER_BEGIN,
    PERUSE_COMM_REQ_XFER_END,
    PERUSE_COMM_REQ_COMPLETE,
    PERUSE_COMM_REQ_NOTIFY,
    PERUSE_COMM_MSG_ARRIVED,
    PERUSE_COMM_MSG_INSERT_IN_UNEX_Q,
    PERUSE_COMM_MSG_REMOVE_FROM_UNEX_Q,
    PERUSE_COMM_MSG_MATCH_POSTED_REQ,
    PERUSE_COMM_SEARCH_POSTED_Q_BEGIN,
    PERUSE_COMM_SEARCH_POSTED_Q_END,
    PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN,
    PERUSE_COMM_SEARCH_UNEX_Q_BEGIN = PERUSE_COMM_SEARCH_UNEX_QUEUE_BEGIN,
    PERUSE_COMM_SEARCH_UNEX_Q_END,
    PERUSE_FIRST_CUSTOM_EVENT,
    PERUSE_COMM_REQ_XFER_CONTINUE = PERUSE_FIRST_CUSTOM_EVENT,
    PERUSE_IBEX_REQ_CANCEL,
    PERUSE_IBEX_REQ_FREE,
    PERUSE_IBEX_PUT_STARTED,
    PERUSE_IBEX_PUT_COMPLETE,
    PERUSE_IBEX_GET_STARTED,
    PERUSE_IBEX_GET_COMPLETE,
    PERUSE_IBEX_ACC_STARTED,
    PERUSE_IBEX_ACC_COMPLETE
};

enum { PERUSE_PER_COMM, PERUSE_PER_TAG, PERUSE_PER_SOURCE, PERUSE_GLOBAL, PERUSE_PER_PEER };

enum { PERUSE_SEND, PERUSE_RECV, PERUSE_PUT, PERUSE_GET, PERUSE_ACC, PERUSE_IO_READ, PERUSE_IO_WRITE };

enum { PERUSE_FALSE, PERUSE_TRUE };

#define PERUSE_EVENT_HANDLE_NULL ((peruse_event_h) 0)

int PERUSE_Init(void);
int PERUSE_Query_supported_events(int *num_supported, char ***event_names, int **events);
int PERUSE_Query_event(const char *event_name, int *event);
int PERUSE_Query_event_name(int event, char **event_name);
int PERUSE_Query_environment(int *env_size, char ***env);
int PERUSE_Query_queue_event_scope(int *scope);
int PERUSE_Lock(void);
int PERUSE_Unlock(void);

int PERUSE_Event_comm_register(int event, MPI_Comm comm, peruse_comm_callback_f *callback_fn, void *param,
                               peruse_event_h *event_h);
int PERUSE_Event_activate(peruse_event_h event_h);
int PERUSE_Event_deactivate(peruse_event_h event_h);
int PERUSE_Event_release(peruse_event_h *event_h);
int PERUSE_Event_comm_callback_set(peruse_event_h event_h, peruse_comm_callback_f *callback_fn, void *param);
int PERUSE_Event_comm_callback_get(peruse_event_h event_h, peruse_comm_callback_f **callback_fn, void **param);
int PERUSE_Event_get(peruse_event_h event_h, int *event);
int PERUSE_Event_object_get(peruse_event_h event_h, void **mpi_object);
int PERUSE_Event_propagate(peruse_event_h event_h, int mode);

#ifdef __cplusplus
}
#endif

#endif /* PERUSE_H */
