/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What ob1 notes of a message that is read by its receiver, for messages whose announcement nobody watched; see shim.h.
 * Requests are as the installed headers say. ob1's own fragment is in none of them: its first fields are written down here as all
 * releases lay them out, but for the length of the header (release.h), without support for heterogeneous machines. Behind the branch of a site. */
#include "wrapper.h"

#include "ompi/communicator/communicator.h"
#include "ompi/mca/pml/base/pml_base_request.h"

#include <string.h>

struct fragment {
    opal_free_list_item_t item;
    void *bml;
    unsigned char header[IBEX_OB1_HEADER];
    int state;
    size_t length;
    size_t left;
    void *request;
    uint32_t retries;
    void (*callback)(void);
    uint64_t offset;
};

void ibex_ob1_read(const void *fragment, struct ibex_read *read)
{
    const struct fragment *noted = fragment;
    memcpy(read->header, noted->header, sizeof read->header);
    read->offset = noted->offset;
    read->length = noted->length;
}

bool ibex_ob1_announced(const void *fragment, struct ibex_announced *announced)
{
    const struct fragment *noted = fragment;
    const mca_pml_base_request_t *request = noted->request;
    if (request == NULL || request->req_type != MCA_PML_REQUEST_SEND || request->req_comm == NULL || noted->left > noted->length) {
        return false;
    }
    announced->request = (uint64_t) (uintptr_t) request;
    announced->total = noted->length;
    announced->left = noted->left;
    announced->context = ibex_context_of(request->req_comm);
    announced->source = request->req_comm->c_my_rank;
    announced->tag = request->req_tag;
    announced->sequence = (uint16_t) request->req_sequence;
    return true;
}
