/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions for Rust that call macros and inline functions of Open MPI. */
#ifndef IBEX_OPENMPI_SHIM_H
#define IBEX_OPENMPI_SHIM_H

/* Publishes `size` bytes under `key` for every process of the job. Returns an OPAL code. */
int ibex_modex_put(const char *key, const void *bytes, size_t size);

/* Fetches the bytes that process `name` has published under `key`. The caller frees `*bytes` with free(). */
int ibex_modex_get(const char *key, const opal_process_name_t *name, void **bytes, size_t *size);

/* Version of the BTL or PML interface that another component in the process declares, in decimal digits; 0: none. */
uint32_t ibex_interface_of_others(bool is_pml);

/* The purpose for which Open MPI reads a watermark, by the place for its value: a handle that is being made is not in
 * the variable's list; a reset sets the current value; a read compares the temporary one. Open MPI holds its lock for
 * tools. */
enum ibex_pvar_wanted { IBEX_PVAR_MADE, IBEX_PVAR_RESET, IBEX_PVAR_READ };
enum ibex_pvar_wanted ibex_pvar_wanted(const mca_base_pvar_t *pvar, const void *value);

/* Raises a high watermark in each handle of the object to at least `extreme`; lowers a low one to at most `extreme`. */
void ibex_pvar_mark(const mca_base_pvar_t *pvar, const void *object, uint64_t extreme);

/* Patches a function of the C library over earlier patches, unless Open MPI patches nothing. Returns an OPAL code. */
int ibex_patch(const char *name, const void *function);

/* OBJ_CONSTRUCT of a descriptor in the caller's storage. */
void ibex_descriptor_construct(mca_btl_base_descriptor_t *descriptor);

/* Address of the next byte of the data; NULL: the data must be packed. */
void *ibex_convertor_pointer(const opal_convertor_t *convertor);

/* Address and length of the whole message in user memory; NULL: the data must be packed. */
void *ibex_convertor_message(const opal_convertor_t *convertor, size_t *size);

/* Number of bytes already taken, and the return to such a position. */
size_t ibex_convertor_position(const opal_convertor_t *convertor);
int ibex_convertor_rewind(opal_convertor_t *convertor, size_t position);

/* --- For the PML (pml.c). --- */

/* OBJ_CONSTRUCT of a PML's request in the caller's storage. */
void ibex_request_construct(ompi_request_t *request, ompi_request_start_fn_t start, ompi_request_free_fn_t free,
                            ompi_request_cancel_fn_t cancel);

/* OMPI_REQUEST_INIT of a persistent request; OMPI_REQUEST_FINI of any. */
void ibex_request_persist(ompi_request_t *request);
void ibex_request_fini(ompi_request_t *request);

/* ompi_request_complete: runs the request's callback and wakes its waiters. The request may be freed afterwards. */
void ibex_request_complete(ompi_request_t *request);

ompi_datatype_t *ibex_byte(void);

/* The request of a send that is already complete; MPI_REQUEST_NULL. */
ompi_request_t *ibex_request_empty(void);
ompi_request_t *ibex_request_null(void);

/* The communicator's number in its messages, the same for all members. */
uint32_t ibex_comm_context(const ompi_communicator_t *comm);

/* The process with this rank in the communicator (in an intercommunicator: in the remote group); NULL: unknown. */
opal_proc_t *ibex_comm_peer(ompi_communicator_t *comm, int rank);

/* Number of the communicator's peers (in an intercommunicator: of the remote group). */
int ibex_comm_peers(const ompi_communicator_t *comm);

/* Whether it is an intercommunicator; the size of its local or remote group; a member of the group: its job (upper
 * half) and its rank in the job. */
int ibex_comm_is_inter(const ompi_communicator_t *comm);
int ibex_comm_members(const ompi_communicator_t *comm, int is_remote);
uint64_t ibex_comm_member(const ompi_communicator_t *comm, int is_remote, int rank);

/* OMPI_REQUEST_INIT of an active request, with references to its communicator and datatype. */
void ibex_request_hold(ompi_request_t *request, ompi_communicator_t *comm, ompi_datatype_t *datatype);

/* Releases these references. If that ends the communicator, Open MPI calls the PML. */
void ibex_references_release(ompi_communicator_t *comm, ompi_datatype_t *datatype);

/* Makes a convertor for `count` elements at `buffer`, in the caller's storage. Returns an OPAL code. */
int ibex_convertor_send(opal_convertor_t *convertor, const ompi_datatype_t *datatype, size_t count, const void *buffer);
int ibex_convertor_receive(opal_convertor_t *convertor, const ompi_datatype_t *datatype, size_t count, void *buffer);
void ibex_convertor_destruct(opal_convertor_t *convertor);

/* Takes a message of MPI_Mprobe from Open MPI's list, and returns it. Its reference to the communicator (MPI 3.1,
 * 6.4.3) outlives it: the receiver releases it. If that ends the communicator, Open MPI calls the PML. */
ompi_message_t *ibex_message_alloc(ompi_communicator_t *comm);
void ibex_message_return(ompi_message_t *message);
void ibex_communicator_release(ompi_communicator_t *comm);
ompi_message_t *ibex_message_null(void);

bool ibex_is_fault_tolerant(void);

void ibex_abort(int code);

/* Appends a copy of a name to the list of PMLs that Open MPI may choose. */
void ibex_pml_consider(const char *name);

/* --- For the PML's sends through Open MPI's shared-memory BTL (shared_memory.c). --- */

/* Initialises the BTLs if they are not: 5.0 leaves that to the PML, and osc/rdma needs them. Returns an OPAL code. */
int ibex_bml_begin(bool threads);

/* The open shared-memory BTL; NULL: the user has excluded it, or it declined. */
mca_btl_base_module_t *ibex_shared_memory(void);

bool ibex_is_on_this_host(ompi_proc_t *proc);

/* Adds processes to the BTLs, and returns this BTL's endpoint of each; NULL: unreachable. Call it once, with all of the
 * host's processes in the order of their ranks, by which the shared-memory BTL numbers them. Returns an OPAL code. */
int ibex_bml_add(size_t count, ompi_proc_t **procs, const mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t **endpoints);
int ibex_bml_remove(size_t count, ompi_proc_t **procs);

/* Registers a function for messages with this tag, in every BTL. */
int ibex_bml_listen(mca_btl_base_tag_t tag, mca_btl_base_module_recv_cb_fn_t receive);

/* btl_sendi of contiguous data: copied if it returns OPAL_SUCCESS, else not sent. */
int ibex_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, mca_btl_base_tag_t tag, const void *header,
               size_t header_size, const void *data, size_t size);

#endif
