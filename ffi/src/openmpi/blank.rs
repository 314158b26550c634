// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures of Open MPI's made of zeroes, which Open MPI or a test fills in. Called by plugin-abi. Grade: setup.
//! Threads: any.

use super::sys;

/// A C structure of integers and nullable pointers.
pub trait Blank: Sized {
    /// Makes one of zeroes.
    fn blank() -> Self;
}

macro_rules! blank {
    ($($name:ident)*) => { $(
        impl Blank for sys::$name {
            fn blank() -> Self {
                // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
                unsafe { std::mem::zeroed() }
            }
        }
    )* };
}

blank! {
    mca_btl_base_component_t mca_btl_base_module_t ompi_datatype_t ompi_message_t ompi_request_t ompi_status_public_t
    opal_convertor_t opal_proc_t
}
