// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common parts of the BTL's and the PML's component structures, and what a user's lists of components say. `refusal`
//! and `copies` find the reasons for which a component declines. Called by `btl/component.rs` and `pml/component.rs`.
//! Grade: setup. Threads: any. Tests: below.

pub(crate) mod copies;
pub(crate) mod refusal;

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};

use ibex_ffi::openmpi::sys;

/// A structure that Open MPI copies or keeps pointers to.
#[repr(transparent)]
pub(crate) struct Shown<T>(UnsafeCell<T>);

// SAFETY: nobody writes to it but Open MPI, to its own fields, while one thread initialises it (`new`).
unsafe impl<T> Sync for Shown<T> {}

impl<T> Shown<T> {
    /// # Safety
    /// `structure` is one of Open MPI's; its pointers are to functions. Only Open MPI writes to it.
    pub(crate) const unsafe fn new(structure: T) -> Self {
        Shown(UnsafeCell::new(structure))
    }

    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }
}

type Call = unsafe extern "C" fn() -> c_int;

/// Returns the head of a component structure, with the functions that open, close and register the component.
pub(crate) const fn version(
    (project, framework, interface): (&[u8], &[u8], u32),
    (open, close, register): (Call, Call, Call),
) -> sys::mca_base_component_t {
    sys::mca_base_component_t {
        mca_major_version: sys::MCA_BASE_VERSION_MAJOR as c_int,
        mca_minor_version: sys::MCA_BASE_VERSION_MINOR as c_int,
        mca_release_version: sys::MCA_BASE_VERSION_RELEASE as c_int,
        mca_project_name: text(project),
        mca_project_major_version: sys::OPAL_MAJOR_VERSION as c_int,
        mca_project_minor_version: sys::OPAL_MINOR_VERSION as c_int,
        mca_project_release_version: sys::OPAL_RELEASE_VERSION as c_int,
        mca_type_name: text(framework),
        mca_type_major_version: (interface / 100) as c_int,
        mca_type_minor_version: (interface / 10 % 10) as c_int,
        mca_type_release_version: (interface % 10) as c_int,
        mca_component_name: text(b"ibex"),
        mca_component_major_version: number(env!("CARGO_PKG_VERSION_MAJOR")),
        mca_component_minor_version: number(env!("CARGO_PKG_VERSION_MINOR")),
        mca_component_release_version: number(env!("CARGO_PKG_VERSION_PATCH")),
        mca_open_component: Some(open),
        mca_close_component: Some(close),
        mca_query_component: None,
        mca_register_component_params: Some(register),
        mca_component_flags: 0,
        reserved: [0; 28],
    }
}

/// The data that follows the head: no checkpointing, as queue pairs do not survive it.
pub(crate) const DATA: sys::mca_base_component_data_t =
    sys::mca_base_component_data_t { param_field: 0, reserved: [0; 32] };

const fn text<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    assert!(bytes.len() < N, "room for the terminating NUL");
    let mut array = [0; N];
    let mut index = 0;
    while index < bytes.len() {
        array[index] = bytes[index] as c_char;
        index += 1;
    }
    array
}

const fn number(digits: &str) -> c_int {
    let digits = digits.as_bytes();
    let mut value = 0;
    let mut index = 0;
    while index < digits.len() {
        value = value * 10 + (digits[index] - b'0') as c_int;
        index += 1;
    }
    value
}

pub(crate) fn names_ibex(list: &str) -> bool {
    !list.trim_start().starts_with('^') && list.split(',').any(|name| name.trim() == "ibex")
}

/// Returns the names that ibex adds to the list of PMLs that Open MPI considers.
pub(crate) fn considered(list: &str) -> Vec<&str> {
    if names_ibex(list) {
        list.split(',').map(str::trim).collect()
    } else if permits_ibex(list) {
        vec!["ibex"]
    } else {
        Vec::new()
    }
}

/// Whether a user's list names ibex, is empty, or excludes only others.
pub(crate) fn permits_ibex(list: &str) -> bool {
    match list.trim().strip_prefix('^') {
        Some(without) => !names_ibex(without),
        None => list.trim().is_empty() || names_ibex(list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_includes_ibex_asks_for_it() {
        for (list, asked) in [
            ("self,vader,ibex", true),
            ("ibex", true),
            (" ibex , self", true),
            ("^ibex", false),
            ("^tcp,ibex", false),
            ("", false),
            ("ibexx,self", false),
        ] {
            assert_eq!(names_ibex(list), asked, "{list:?}");
        }
    }

    #[test]
    fn open_mpi_considers_each_name_of_a_list_that_includes_ibex_and_ibex_for_a_list_that_permits_it() {
        assert_eq!(considered("ibex"), ["ibex"]);
        assert_eq!(considered("ibex, ob1"), ["ibex", "ob1"]);
        for list in ["", "^ucx", "^ucx,cm"] {
            assert_eq!(considered(list), ["ibex"], "{list:?}");
        }
        for list in ["ob1", "^ibex", "^ucx, ibex", "ibexx", "ucx,ob1"] {
            assert!(considered(list).is_empty(), "{list:?}");
        }
    }

    #[test]
    fn a_list_permits_ibex_if_it_names_ibex_or_is_empty_or_excludes_only_others() {
        for (list, permits) in
            [("", true), ("self,ibex", true), ("^tcp", true), ("self,vader", false), ("^ibex", false), ("tcp", false)]
        {
            assert_eq!(permits_ibex(list), permits, "{list:?}");
        }
    }

    unsafe extern "C" fn call() -> c_int {
        0
    }

    #[test]
    fn a_component_has_the_fields_that_open_mpi_checks_before_it_loads_it() {
        let version = version((b"ompi", b"pml", 213), (call, call, call));
        assert_eq!((version.mca_major_version, version.mca_minor_version), (2, 1));
        let of_type =
            [version.mca_type_major_version, version.mca_type_minor_version, version.mca_type_release_version];
        assert_eq!(of_type, [2, 1, 3]);
        assert_eq!(version.mca_type_name[..4], text::<4>(b"pml"));
        assert_eq!(version.mca_component_name[..5], text::<5>(b"ibex"));
        assert_eq!((number("0"), number("7"), number("120")), (0, 7, 120));
    }
}
