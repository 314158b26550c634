// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test that bindgen and the C compiler agree on the layout of every mirrored type.
//!
//! `ffi/openmpi/layout.c` is compiled against the same headers and holds size, alignment, and every field's offset and
//! size; bindgen's view is compared with it row by row. The comparison fails on a row that has no counterpart, so that
//! the C table cannot grow unnoticed. `layout_rows` makes bindgen's rows. Fields that not every release series has stand
//! with the series (`release`).

use std::ffi::CStr;

use super::layout_rows::{Rows, types};
use super::{release, sys};

fn c_rows() -> Rows {
    // SAFETY: the table is a constant of the shim, `ibex_layout_rows` rows long.
    let rows = unsafe {
        std::slice::from_raw_parts((&raw const sys::ibex_layout).cast::<sys::ibex_layout_row>(), sys::ibex_layout_rows)
    };
    rows.iter()
        .map(|row| {
            // SAFETY: both names are string literals of the shim.
            let name = unsafe { CStr::from_ptr(row.type_) };
            let field = (!row.field.is_null()).then(|| {
                // SAFETY: a string literal of the shim: not null.
                unsafe { CStr::from_ptr(row.field) }.to_string_lossy().into_owned()
            });
            let name = name.to_string_lossy().trim_start_matches("struct ").to_owned();
            ((name, field), (row.offset, row.size))
        })
        .collect()
}

fn bindgen_rows() -> Rows {
    types! {
        mca_base_component_t {
            mca_major_version, mca_project_name, mca_type_name, mca_type_major_version, mca_component_name,
            mca_open_component, mca_close_component, mca_query_component, mca_register_component_params,
            mca_component_flags, reserved
        }
        mca_btl_base_component_t { btl_version, btl_data, btl_init, btl_progress }
        mca_btl_base_module_t {
            btl_component, btl_eager_limit, btl_rndv_eager_limit, btl_max_send_size, btl_rdma_pipeline_send_length,
            btl_rdma_pipeline_frag_size, btl_min_rdma_pipeline_size, btl_exclusivity, btl_latency, btl_bandwidth,
            btl_flags, btl_atomic_flags, btl_registration_handle_size, btl_get_limit, btl_get_alignment, btl_put_limit,
            btl_put_alignment, btl_get_local_registration_threshold, btl_put_local_registration_threshold,
            btl_add_procs, btl_del_procs, btl_register, btl_finalize, btl_alloc, btl_free, btl_prepare_src, btl_send,
            btl_sendi, btl_put, btl_get, btl_dump, btl_atomic_op, btl_atomic_fop, btl_atomic_cswap, btl_register_mem,
            btl_deregister_mem, btl_mpool, btl_register_error, btl_flush
        }
        mca_btl_base_descriptor_t {
            super_, des_segments, des_segment_count, des_cbfunc, des_cbdata, des_context, des_flags, order
        }
        mca_btl_base_segment_t { seg_addr, seg_len }
        mca_btl_active_message_callback_t { cbfunc, cbdata }
        mca_rcache_base_registration_t { super_, base, bound, ref_count, flags, access_flags }
        mca_rcache_base_resources_t { cache_name, reg_data, sizeof_reg, register_mem, deregister_mem }
        mca_rcache_base_module_t { rcache_register, rcache_deregister }
        opal_proc_t { proc_name, proc_arch, proc_flags }
        opal_process_name_t { jobid, vpid }
        mca_base_pvar_t { ctx }
        mca_pml_base_component_t { pmlm_version, pmlm_data, pmlm_init, pmlm_finalize }
        mca_pml_base_module_t {
            pml_add_procs, pml_del_procs, pml_enable, pml_progress, pml_add_comm, pml_del_comm, pml_irecv_init,
            pml_irecv, pml_recv, pml_isend_init, pml_isend, pml_send, pml_iprobe, pml_probe, pml_start, pml_improbe,
            pml_mprobe, pml_imrecv, pml_mrecv, pml_dump, pml_max_contextid, pml_max_tag, pml_flags
        }
        ompi_request_t {
            req_type, req_status, req_complete, req_state, req_persistent, req_f_to_c_index, req_start, req_free,
            req_cancel, req_complete_cb, req_complete_cb_data, req_mpi_object
        }
        ompi_status_public_t { MPI_SOURCE, MPI_TAG, MPI_ERROR, _cancelled, _ucount }
        ompi_communicator_t {
            c_my_rank, c_flags, c_assertions, c_local_group, c_remote_group, c_pml_comm
        }
        ompi_group_t { grp_proc_count, grp_my_rank, grp_proc_pointers }
        ompi_proc_t { super_, proc_endpoints }
        opal_datatype_t { flags, size, true_lb, true_ub, lb, ub }
        ompi_datatype_t { super_, id, pml_data }
        ompi_message_t { m_f_to_c_index, comm, req_ptr, peer, count }
        opal_convertor_t {}
        opal_class_t { cls_sizeof }
    }
}

#[test]
fn every_mirrored_type_is_laid_out_as_the_c_compiler_lays_it_out() {
    let c = c_rows();
    // `super` is a word of Rust's, so bindgen writes `super_`.
    let rust: Rows = bindgen_rows()
        .into_iter()
        .chain(release::rows())
        .map(|((name, field), row)| {
            ((name, field.map(|field| if field == "super_" { "super".to_owned() } else { field })), row)
        })
        .collect();
    assert_eq!(c.keys().collect::<Vec<_>>(), rust.keys().collect::<Vec<_>>(), "the two tables name the same fields");
    for (key, row) in &c {
        assert_eq!(row, &rust[key], "{key:?}: (offset or alignment, size)");
    }
}
