/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions for the PML that call macros and inline functions of Open MPI; see shim.h. Grade: hot for each message. */
#include "wrapper.h"

#include "ompi/runtime/mpiruntime.h"

#include <string.h>

void ibex_request_construct(ompi_request_t *request, ompi_request_start_fn_t start, ompi_request_free_fn_t free,
                            ompi_request_cancel_fn_t cancel)
{
    OBJ_CONSTRUCT(request, ompi_request_t);
    request->req_type = OMPI_REQUEST_PML;
    request->req_start = start;
    request->req_free = free;
    request->req_cancel = cancel;
}

void ibex_request_persist(ompi_request_t *request)
{
    OMPI_REQUEST_INIT(request, true);
}

void ibex_request_fini(ompi_request_t *request)
{
    OMPI_REQUEST_FINI(request);
}

void ibex_request_complete(ompi_request_t *request)
{
    ompi_request_complete(request, true);
}

ompi_datatype_t *ibex_byte(void)
{
    return (ompi_datatype_t *) MPI_BYTE;
}

ompi_request_t *ibex_request_empty(void)
{
    return &ompi_request_empty;
}

ompi_request_t *ibex_request_null(void)
{
    return MPI_REQUEST_NULL;
}

uint32_t ibex_comm_context(const ompi_communicator_t *comm)
{
    return ibex_context_of(comm);
}

opal_proc_t *ibex_comm_peer(ompi_communicator_t *comm, int rank)
{
    ompi_proc_t *proc = ompi_comm_peer_lookup(comm, rank);
    return proc == NULL ? NULL : &proc->super;
}

int ibex_comm_peers(const ompi_communicator_t *comm)
{
    return comm->c_remote_group->grp_proc_count;
}

int ibex_comm_is_inter(const ompi_communicator_t *comm)
{
    return OMPI_COMM_IS_INTER(comm);
}

static ompi_group_t *group_of(const ompi_communicator_t *comm, int is_remote)
{
    return is_remote ? comm->c_remote_group : comm->c_local_group;
}

int ibex_comm_members(const ompi_communicator_t *comm, int is_remote)
{
    const ompi_group_t *group = group_of(comm, is_remote);
    return group == NULL ? 0 : group->grp_proc_count;
}

uint64_t ibex_comm_member(const ompi_communicator_t *comm, int is_remote, int rank)
{
    opal_process_name_t name = ompi_group_get_proc_name(group_of(comm, is_remote), rank);
    return (uint64_t) name.jobid << 32 | name.vpid;
}

void ibex_request_hold(ompi_request_t *request, ompi_communicator_t *comm, ompi_datatype_t *datatype)
{
    OBJ_RETAIN(comm);
    OMPI_DATATYPE_RETAIN(datatype);
    OMPI_REQUEST_INIT(request, false);
    request->req_state = OMPI_REQUEST_ACTIVE;
}

void ibex_references_release(ompi_communicator_t *comm, ompi_datatype_t *datatype)
{
    OMPI_DATATYPE_RELEASE(datatype);
    OBJ_RELEASE(comm);
}

int ibex_convertor_send(opal_convertor_t *convertor, const ompi_datatype_t *datatype, size_t count, const void *buffer)
{
    OBJ_CONSTRUCT(convertor, opal_convertor_t);
    return opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &datatype->super, count, buffer, 0, convertor);
}

int ibex_convertor_receive(opal_convertor_t *convertor, const ompi_datatype_t *datatype, size_t count, void *buffer)
{
    OBJ_CONSTRUCT(convertor, opal_convertor_t);
    return opal_convertor_copy_and_prepare_for_recv(ompi_mpi_local_convertor, &datatype->super, count, buffer, 0, convertor);
}

void ibex_convertor_destruct(opal_convertor_t *convertor)
{
    OBJ_DESTRUCT(convertor);
}

ompi_message_t *ibex_message_alloc(ompi_communicator_t *comm)
{
    ompi_message_t *message = ompi_message_alloc();
    if (NULL != message) {
        message->comm = comm;
        OBJ_RETAIN(comm);
    }
    return message;
}

void ibex_communicator_release(ompi_communicator_t *comm)
{
    OBJ_RELEASE(comm);
}

void ibex_message_return(ompi_message_t *message)
{
    ompi_message_return(message);
}

ompi_message_t *ibex_message_null(void)
{
    return MPI_MESSAGE_NULL;
}

bool ibex_is_fault_tolerant(void)
{
    return IBEX_FAULT_TOLERANT;
}

void ibex_abort(int code)
{
    ompi_mpi_abort(MPI_COMM_WORLD, code);
}

void ibex_pml_consider(const char *name)
{
    opal_pointer_array_add(&mca_pml_base_pml, strdup(name));
}
