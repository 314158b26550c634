/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See shim.h. Everything here is setup or pending grade but for the convertor functions. */
#include "wrapper.h"

#include <stdlib.h>

int ibex_modex_put(const char *key, const void *bytes, size_t size)
{
    int rc;
    OPAL_MODEX_SEND_STRING(rc, OPAL_PMIX_GLOBAL, (char *) key, bytes, size);
    return rc;
}

int ibex_modex_get(const char *key, const opal_process_name_t *name, void **bytes, size_t *size)
{
    int rc;
    uint8_t *data = NULL;
    OPAL_MODEX_RECV_STRING(rc, (char *) key, (opal_process_name_t *) name, &data, size);
    *bytes = data;
    return rc;
}

void ibex_descriptor_construct(mca_btl_base_descriptor_t *descriptor)
{
    OBJ_CONSTRUCT(descriptor, mca_btl_base_descriptor_t);
}

void *ibex_convertor_pointer(const opal_convertor_t *convertor)
{
    void *position;
    if (opal_convertor_need_buffers(convertor)) {
        return NULL;
    }
    opal_convertor_get_current_pointer(convertor, &position);
    return position;
}

void *ibex_convertor_message(const opal_convertor_t *convertor, size_t *size)
{
    void *start;
    if (opal_convertor_need_buffers(convertor)) {
        return NULL;
    }
    opal_convertor_get_offset_pointer(convertor, 0, &start);
    opal_convertor_get_packed_size(convertor, size);
    return start;
}

size_t ibex_convertor_position(const opal_convertor_t *convertor)
{
    return convertor->bConverted;
}

int ibex_convertor_rewind(opal_convertor_t *convertor, size_t position)
{
    return opal_convertor_set_position(convertor, &position);
}
