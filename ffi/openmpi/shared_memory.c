/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions for the PML's sends through Open MPI's shared-memory BTL; see shim.h. Grade: setup; ibex_sendi hot. */
#include "wrapper.h"

#include "ompi/mca/bml/base/base.h"
#include "ompi/mca/bml/bml.h"

#include <string.h>

int ibex_bml_begin(bool threads)
{
    return mca_bml_base_init(OPAL_ENABLE_PROGRESS_THREADS, threads);
}

mca_btl_base_module_t *ibex_shared_memory(void)
{
    mca_btl_base_selected_module_t *each;
    OPAL_LIST_FOREACH(each, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
        if (strcmp(each->btl_component->btl_version.mca_component_name, IBEX_SHARED_MEMORY_BTL) == 0)
            return each->btl_module;
    }
    return NULL;
}

bool ibex_is_on_this_host(ompi_proc_t *proc)
{
    return OPAL_PROC_ON_LOCAL_NODE(proc->super.proc_flags) &&
           proc->super.proc_name.jobid == ompi_proc_local()->super.proc_name.jobid;
}

int ibex_bml_add(size_t count, ompi_proc_t **procs, const mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t **endpoints)
{
    opal_bitmap_t reachable;
    OBJ_CONSTRUCT(&reachable, opal_bitmap_t);
    int code = opal_bitmap_init(&reachable, (int)count);
    if (code == OPAL_SUCCESS)
        code = mca_bml.bml_add_procs(count, procs, &reachable);
    OBJ_DESTRUCT(&reachable);
    for (size_t i = 0; i < count; i++) {
        mca_bml_base_endpoint_t *all = procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML];
        endpoints[i] = NULL;
        for (size_t j = 0; all != NULL && j < all->btl_eager.arr_size; j++)
            if (all->btl_eager.bml_btls[j].btl == btl)
                endpoints[i] = all->btl_eager.bml_btls[j].btl_endpoint;
    }
    return code;
}

int ibex_bml_remove(size_t count, ompi_proc_t **procs)
{
    return mca_bml.bml_del_procs(count, procs);
}

int ibex_bml_listen(mca_btl_base_tag_t tag, mca_btl_base_module_recv_cb_fn_t receive)
{
    return mca_bml.bml_register(tag, receive, NULL);
}

static void *copy_plainly(void *to, const void *from, size_t size, opal_convertor_t *convertor)
{
    (void) convertor;
    return memcpy(to, from, size);
}

int ibex_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, mca_btl_base_tag_t tag, const void *header,
               size_t header_size, const void *data, size_t size)
{
    /* If the data has no gaps, a BTL reads only these fields (opal_convertor_need_buffers, _get_current_pointer). */
    opal_convertor_t convertor;
    convertor.flags = CONVERTOR_SEND | CONVERTOR_HOMOGENEOUS | CONVERTOR_NO_OP | OPAL_DATATYPE_FLAG_CONTIGUOUS |
                      OPAL_DATATYPE_FLAG_NO_GAPS;
    convertor.pDesc = &ompi_mpi_byte.dt.super;
    convertor.pBaseBuf = (unsigned char *)data;
    convertor.bConverted = 0;
    convertor.local_size = size;
    convertor.count = size;
    ibex_convertor_copies_by(&convertor, copy_plainly);
    return btl->btl_sendi(btl, endpoint, &convertor, (void *)header, header_size, size, MCA_BTL_NO_ORDER,
                          MCA_BTL_DES_FLAGS_PRIORITY, tag, NULL);
}
