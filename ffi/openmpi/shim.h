/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What Open MPI offers only as a macro or an inline function, as functions that Rust can call. */
#ifndef IBEX_OPENMPI_SHIM_H
#define IBEX_OPENMPI_SHIM_H

/* Publishes `size` bytes under `key` for every process of the job. Returns an OPAL code. */
int ibex_modex_put(const char *key, const void *bytes, size_t size);

/* Fetches what `name` published under `key`; `*bytes` is malloc()ed and the caller's to free(). */
int ibex_modex_get(const char *key, const opal_process_name_t *name, void **bytes, size_t *size);

/* Version of the BTL or PML interface that another component in the process declares, in decimal digits; 0: none. */
uint32_t ibex_interface_of_others(bool is_pml);

/* What Open MPI wants of a watermark's value, told by the place for it: a handle outside the variable's list is being
 * made; a reset sets the current value; a read compares the temporary one. Open MPI's lock for tools is held. */
enum ibex_pvar_wanted { IBEX_PVAR_MADE, IBEX_PVAR_RESET, IBEX_PVAR_READ };
enum ibex_pvar_wanted ibex_pvar_wanted(const mca_base_pvar_t *pvar, const void *value);

/* Raises a high watermark's value in each handle of the object to at least `extreme`; lowers a low one's likewise. */
void ibex_pvar_mark(const mca_base_pvar_t *pvar, const void *object, uint64_t extreme);

/* Patches a function of the C library over earlier patches, unless Open MPI patches nothing. Returns an OPAL code. */
int ibex_patch(const char *name, const void *function);

/* OBJ_CONSTRUCT of a descriptor in storage of the caller's. */
void ibex_descriptor_construct(mca_btl_base_descriptor_t *descriptor);

/* Where the next byte of the data stands, or NULL where the data must be packed. */
void *ibex_convertor_pointer(const opal_convertor_t *convertor);

/* The start and length of the whole message in user memory, or NULL where the data must be packed. */
void *ibex_convertor_message(const opal_convertor_t *convertor, size_t *size);

/* Bytes already taken, and the way back there. */
size_t ibex_convertor_position(const opal_convertor_t *convertor);
int ibex_convertor_rewind(opal_convertor_t *convertor, size_t position);

/* --- What a PML needs (pml.c). --- */

/* OBJ_CONSTRUCT of a request in storage of the caller's, as one of a PML. */
void ibex_request_construct(ompi_request_t *request, ompi_request_start_fn_t start, ompi_request_free_fn_t free,
                            ompi_request_cancel_fn_t cancel);

/* OMPI_REQUEST_INIT of a persistent request; OMPI_REQUEST_FINI of any. */
void ibex_request_persist(ompi_request_t *request);
void ibex_request_fini(ompi_request_t *request);

/* ompi_request_complete: runs the request's callback and wakes who waits. The request may be gone afterwards. */
void ibex_request_complete(ompi_request_t *request);

ompi_datatype_t *ibex_byte(void);

/* A send that was done at once; MPI_REQUEST_NULL. */
ompi_request_t *ibex_request_empty(void);
ompi_request_t *ibex_request_null(void);

/* The number that messages in a communicator carry: the same for all its members. */
uint32_t ibex_comm_context(const ompi_communicator_t *comm);

/* The process with this rank in the communicator (the remote group of an intercommunicator); NULL: it is not known. */
opal_proc_t *ibex_comm_peer(ompi_communicator_t *comm, int rank);

/* The processes in the group of a communicator's peers, and this process' rank in it; -1: in the other group. */
int ibex_comm_peers(const ompi_communicator_t *comm);

/* Whether it is an intercommunicator; the size of its local or remote group; a process of that group: the job (upper
 * half), and the rank in the job. */
int ibex_comm_is_inter(const ompi_communicator_t *comm);
int ibex_comm_members(const ompi_communicator_t *comm, int is_remote);
uint64_t ibex_comm_member(const ompi_communicator_t *comm, int is_remote, int rank);

/* OMPI_REQUEST_INIT of a request that is active, with references to what it uses. */
void ibex_request_hold(ompi_request_t *request, ompi_communicator_t *comm, ompi_datatype_t *datatype);

/* Releases these references. The communicator may end here, which calls the PML. */
void ibex_references_release(ompi_communicator_t *comm, ompi_datatype_t *datatype);

/* A convertor over `count` of a datatype at `buffer`, in storage of the caller's. Returns an OPAL code. */
int ibex_convertor_send(opal_convertor_t *convertor, const ompi_datatype_t *datatype, size_t count, const void *buffer);
int ibex_convertor_receive(opal_convertor_t *convertor, const ompi_datatype_t *datatype, size_t count, void *buffer);
void ibex_convertor_destruct(opal_convertor_t *convertor);

/* A message of MPI_Mprobe, from Open MPI's list and back to it. Its reference to the communicator (MPI 3.1, 6.4.3)
 * outlives it: the receiver releases the reference; the communicator may end there, which calls the PML. */
ompi_message_t *ibex_message_alloc(ompi_communicator_t *comm);
void ibex_message_return(ompi_message_t *message);
void ibex_communicator_release(ompi_communicator_t *comm);
ompi_message_t *ibex_message_null(void);

bool ibex_is_fault_tolerant(void);

void ibex_abort(int code);

/* Appends names to the list of PMLs that may be chosen; each is copied. */
void ibex_pml_consider(const char *name);

/* --- What a PML needs to send through Open MPI's shared-memory BTL (shared_memory.c). --- */

/* Has the BTLs initialised, unless they are: 5.0 leaves that to the PML, and osc/rdma needs them. An OPAL code. */
int ibex_bml_begin(bool threads);

/* The BTL of shared memory that is open; NULL: the user has left it out, or it declined. */
mca_btl_base_module_t *ibex_shared_memory(void);

bool ibex_is_on_this_host(ompi_proc_t *proc);

/* Has the BTLs add processes, and gets this BTL's endpoint of each; NULL: not reached. All processes of the host at
 * once, in the order of their ranks: the shared-memory BTL numbers them so. Returns an OPAL code. */
int ibex_bml_add(size_t count, ompi_proc_t **procs, const mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t **endpoints);
int ibex_bml_remove(size_t count, ompi_proc_t **procs);

/* Has messages with this tag given to a function, whichever BTL they come by. */
int ibex_bml_listen(mca_btl_base_tag_t tag, mca_btl_base_module_recv_cb_fn_t receive);

/* btl_sendi of data in one piece: copied when it returns OPAL_SUCCESS, else not sent. */
int ibex_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, mca_btl_base_tag_t tag, const void *header,
               size_t header_size, const void *data, size_t size);

#endif
