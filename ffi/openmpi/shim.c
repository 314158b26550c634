/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See shim.h. Grade: convertor functions hot, the others setup or pending. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "wrapper.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int ibex_modex_put(const char *key, const void *bytes, size_t size)
{
    int rc;
    OPAL_MODEX_SEND_STRING(rc, IBEX_MODEX_SCOPE, (char *) key, bytes, size);
    return ibex_modex_code(rc);
}

int ibex_modex_get(const char *key, const opal_process_name_t *name, void **bytes, size_t *size)
{
    int rc;
    uint8_t *data = NULL;
    OPAL_MODEX_RECV_STRING(rc, (char *) key, (opal_process_name_t *) name, &data, size);
    *bytes = data;
    return ibex_modex_code(rc);
}

uint32_t ibex_interface_of_others(bool is_pml)
{
    opal_list_t *components = is_pml ? &ompi_pml_base_framework.framework_components : &opal_btl_base_framework.framework_components;
    mca_base_component_list_item_t *each;
    if (components->opal_list_sentinel.opal_list_next == NULL) /* The framework is not open. */
        return 0;
    OPAL_LIST_FOREACH(each, components, mca_base_component_list_item_t) {
        const mca_base_component_t *component = each->cli_component;
        if (strcmp(component->mca_component_name, "ibex") != 0)
            return (uint32_t) (component->mca_type_major_version * 100 + component->mca_type_minor_version * 10 +
                               component->mca_type_release_version);
    }
    return 0;
}

/* The handle of an item of a variable's list. */
static mca_base_pvar_handle_t *handle_of(volatile opal_list_item_t *place)
{
    return (mca_base_pvar_handle_t *) ((char *) place - offsetof(mca_base_pvar_handle_t, list2));
}

#define FOR_EACH_PLACE(place, pvar)                                                                                                    \
    for (volatile opal_list_item_t *place = (pvar)->bound_handles.opal_list_sentinel.opal_list_next;                                   \
         place != &(pvar)->bound_handles.opal_list_sentinel; place = place->opal_list_next)

enum ibex_pvar_wanted ibex_pvar_wanted(const mca_base_pvar_t *pvar, const void *value)
{
    FOR_EACH_PLACE(place, pvar) {
        const mca_base_pvar_handle_t *handle = handle_of(place);
        if (value == handle->tmp_value)
            return IBEX_PVAR_READ;
        if (value == handle->current_value)
            return IBEX_PVAR_RESET;
    }
    return IBEX_PVAR_MADE;
}

void ibex_pvar_mark(const mca_base_pvar_t *pvar, const void *object, uint64_t extreme)
{
    FOR_EACH_PLACE(place, pvar) {
        const mca_base_pvar_handle_t *handle = handle_of(place);
        bool is_short = pvar->type == MCA_BASE_VAR_TYPE_UNSIGNED_INT;
        if (handle->obj_handle != object)
            continue;
        unsigned long long value = is_short ? *(unsigned *) handle->current_value : *(unsigned long long *) handle->current_value;
        if (pvar->var_class == MCA_BASE_PVAR_CLASS_LOWWATERMARK ? value <= extreme : value >= extreme)
            continue;
        if (is_short)
            *(unsigned *) handle->current_value = (unsigned) extreme;
        else
            *(unsigned long long *) handle->current_value = extreme;
    }
}

int ibex_patch(const char *name, const void *function)
{
/* Other processors need a special prologue in `function` (OPAL_PATCHER_BEGIN). */
#if defined(__x86_64__) || defined(__aarch64__)
    uintptr_t original = 0;
    if (opal_patcher->patch_symbol == NULL)
        return OPAL_ERR_NOT_AVAILABLE;
    int code = opal_patcher->patch_symbol(name, (uintptr_t) function, &original);
    if (code != OPAL_ERR_RESOURCE_BUSY || opal_patcher->patch_address == NULL)
        return code;
    /* Open MPI 5 patches a function by name only once, which it has done for itself; by address again and again. */
    void *address = dlsym(RTLD_NEXT, name);
    if (address == NULL)
        address = dlsym(RTLD_DEFAULT, name);
    return address == NULL ? OPAL_ERR_NOT_FOUND : opal_patcher->patch_address((uintptr_t) address, (uintptr_t) function);
#else
    return OPAL_ERR_NOT_AVAILABLE;
#endif
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
