// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module that Open MPI copies: the PML's functions, and how they enter the PML and answer.
//!
//! Called by `component`, and by each function of the module. Grade: hot. Threads: any. Tests: the MPI programs
//! of `hw-tests`.

use std::ffi::c_int;
use std::num::NonZero;

use engine::messenger::matching::Contexts;
use ibex_ffi::openmpi::release;
use ibex_ffi::openmpi::sys;

use crate::pml::instance::{Pml, State, pml};
use crate::pml::progress;
use crate::pml::tools::listening;
use crate::runtime::component::Shown;
use crate::runtime::entry::{entry1, entry2, entry4, entry5, entry6, entry7, entry8};
use crate::runtime::exclusive::Entered;
use crate::runtime::guard::fence;

pub(super) mod context;
pub(super) mod persistent;
pub(super) mod probe;
pub(super) mod receive;
pub(super) mod send;

// SAFETY: Open MPI's structure, whose pointers are to functions; only Open MPI writes to it (`Shown::new`).
static MODULE: Shown<sys::mca_pml_base_module_t> = unsafe {
    Shown::new(sys::mca_pml_base_module_t {
        pml_add_procs: Some(entry2(context::pml_add_procs)),
        pml_del_procs: Some(entry2(context::pml_del_procs)),
        pml_enable: Some(entry1(pml_enable)),
        pml_progress: Some(progress::pml_progress),
        pml_add_comm: Some(entry1(context::pml_add_comm)),
        pml_del_comm: Some(entry1(context::pml_del_comm)),
        pml_irecv_init: Some(entry7(persistent::pml_irecv_init)),
        pml_irecv: Some(entry7(receive::pml_irecv)),
        pml_recv: Some(entry7(receive::pml_recv)),
        pml_isend_init: Some(entry8(persistent::pml_isend_init)),
        pml_isend: Some(entry8(send::pml_isend)),
        pml_send: Some(entry7(send::pml_send)),
        pml_iprobe: Some(entry5(probe::pml_iprobe)),
        pml_probe: Some(entry4(probe::pml_probe)),
        pml_start: Some(entry2(persistent::pml_start)),
        pml_improbe: Some(entry6(probe::pml_improbe)),
        pml_mprobe: Some(entry5(probe::pml_mprobe)),
        pml_imrecv: Some(entry5(receive::pml_imrecv)),
        pml_mrecv: Some(entry5(receive::pml_mrecv)),
        pml_max_contextid: Contexts::<(), ()>::LIMIT,
        pml_max_tag: i32::MAX,
        pml_flags: release::PML_FLAGS,
        // Open MPI calls no other function.
        ..release::PML_MODULE
    })
};

pub(crate) fn pointer() -> *mut sys::mca_pml_base_module_t {
    MODULE.get()
}

/// Open MPI calls it once, with true, when it has selected this PML.
extern "C" fn pml_enable(enable: bool) -> c_int {
    answer("pml_enable", || {
        listening::offer(enable);
        Ok(())
    })
}

/// An error code of Open MPI's, which is not 0; so an [`Answer`] is passed as the code that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(NonZero<c_int>);

pub(crate) type Answer = Result<(), Code>;

impl Code {
    pub(crate) const ERROR: Code = Code::of(sys::OPAL_ERROR);
    pub(crate) const NO_RESOURCE: Code = Code::of(sys::OPAL_ERR_OUT_OF_RESOURCE);
    pub(crate) const NOT_AVAILABLE: Code = Code::of(sys::OPAL_ERR_NOT_AVAILABLE);
    pub(crate) const UNREACHABLE: Code = Code::of(sys::OPAL_ERR_UNREACH);
    pub(crate) const NO_BUFFER: Code = Code::of(sys::OMPI_ERR_BUFFER);

    const fn of(code: c_int) -> Code {
        match NonZero::new(code) {
            Some(code) => Code(code),
            None => panic!("0 is no error"),
        }
    }

    /// Returns the answer that a code of Open MPI's stands for.
    #[inline(always)]
    pub(crate) fn answer(code: c_int) -> Answer {
        NonZero::new(code).map_or(Ok(()), |code| Err(Code(code)))
    }
}

/// Runs the body of a function of the module. Returns its code for Open MPI.
#[inline(always)]
pub(crate) fn answer(what: &'static str, body: impl FnOnce() -> Answer) -> c_int {
    fence(what, sys::OPAL_ERROR, || body().map_or_else(|Code(code)| code.get(), |()| sys::OPAL_SUCCESS))
}

#[inline(always)]
pub(crate) fn there() -> Result<&'static Pml, Code> {
    pml().ok_or(Code::NOT_AVAILABLE)
}

/// Enters the PML.
///
/// # Errors
/// This thread has entered it already.
#[inline(always)]
pub(crate) fn enter(pml: &Pml) -> Result<Entered<'_, State>, Code> {
    pml.enter().ok_or(Code::NO_RESOURCE)
}

const _: () = assert!(Contexts::<(), ()>::LIMIT >= 1 << 16, "Open MPI does not survive a lack of context numbers");
const _: () = assert!(Contexts::<(), ()>::EXTENDED == sys::IBEX_EXTENDED_CONTEXTS);
const _: () = assert!(sys::OPAL_SUCCESS == 0 && size_of::<Answer>() == size_of::<c_int>());
