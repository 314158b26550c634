/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a PML needs of Open MPI's macros and inline functions; see shim.h. Hot where a message of MPI's passes. */
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

void ibex_request_init(ompi_request_t *request, bool is_persistent)
{
    OMPI_REQUEST_INIT(request, is_persistent);
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

opal_proc_t *ibex_comm_peer(ompi_communicator_t *comm, int rank)
{
    ompi_proc_t *proc = ompi_comm_peer_lookup(comm, rank);
    return proc == NULL ? NULL : &proc->super;
}

int ibex_comm_peers(const ompi_communicator_t *comm)
{
    return comm->c_remote_group->grp_proc_count;
}

void ibex_comm_retain(ompi_communicator_t *comm)
{
    OBJ_RETAIN(comm);
}

void ibex_comm_release(ompi_communicator_t *comm)
{
    OBJ_RELEASE(comm);
}

void ibex_datatype_retain(ompi_datatype_t *datatype)
{
    OMPI_DATATYPE_RETAIN(datatype);
}

void ibex_datatype_release(ompi_datatype_t *datatype)
{
    OMPI_DATATYPE_RELEASE(datatype);
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

ompi_message_t *ibex_message_alloc(void)
{
    return ompi_message_alloc();
}

void ibex_message_return(ompi_message_t *message)
{
    ompi_message_return(message);
}

ompi_message_t *ibex_message_null(void)
{
    return MPI_MESSAGE_NULL;
}

void ibex_abort(int code)
{
    ompi_mpi_abort(MPI_COMM_WORLD, code);
}

void ibex_pml_consider(const char *name)
{
    opal_pointer_array_add(&mca_pml_base_pml, strdup(name));
}
