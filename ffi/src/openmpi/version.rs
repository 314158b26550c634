// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Open MPI for which ibex was built, and the one in this process, by constant data of its libraries. Called first,
//! by plugin-abi's `refusal`. Grade: setup. Threads: any, except for [`interface_of_others`].

use std::ffi::CStr;

use super::{release, sys};

/// The release of Open MPI for which ibex was built, such as `4.1.4`.
pub fn built() -> String {
    format!("{}.{}.{}", sys::OPAL_MAJOR_VERSION, sys::OPAL_MINOR_VERSION, sys::OPAL_RELEASE_VERSION)
}

/// The release of the Open MPI in this process, with a suffix such as `rc1`.
pub fn running() -> String {
    // SAFETY: a NUL-terminated constant of libopen-pal. The bindings know no length, so no reference is made.
    let text = unsafe { CStr::from_ptr((&raw const sys::opal_version_string).cast()) };
    text.to_string_lossy().into_owned()
}

/// Whether the Open MPI in this process is of the release series for which ibex was built.
pub fn is_of_series() -> bool {
    series(&running()) == series(release::SERIES)
}

/// The release series of a version: 4 and 1 of `v4.1.4rc2`.
pub fn series(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A type of Open MPI and its sizes. They differ if the running library has another layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassSize {
    /// C name of the type.
    pub name: &'static str,
    /// Bytes, by the headers.
    pub built: usize,
    /// Bytes, by the object class of the running library.
    pub running: usize,
}

/// The types that ibex reads, or shares with Open MPI by value.
pub fn class_sizes() -> [ClassSize; 14] {
    macro_rules! class {
        ($type:ident, $class:ident) => {
            ClassSize {
                name: stringify!($type),
                built: size_of::<sys::$type>(),
                // SAFETY: an object class is a static of libopen-pal; its size never changes.
                running: unsafe { (&raw const sys::$class.cls_sizeof).read() },
            }
        };
    }
    [
        class!(mca_btl_base_descriptor_t, mca_btl_base_descriptor_t_class),
        class!(mca_rcache_base_registration_t, mca_rcache_base_registration_t_class),
        class!(opal_convertor_t, opal_convertor_t_class),
        class!(opal_proc_t, opal_proc_t_class),
        class!(mca_base_pvar_t, mca_base_pvar_t_class),
        class!(mca_base_pvar_handle_t, mca_base_pvar_handle_t_class),
        class!(opal_free_list_item_t, opal_free_list_item_t_class),
        class!(opal_mutex_t, opal_mutex_t_class),
        class!(ompi_communicator_t, ompi_communicator_t_class),
        class!(ompi_datatype_t, ompi_datatype_t_class),
        class!(ompi_group_t, ompi_group_t_class),
        class!(ompi_message_t, ompi_message_t_class),
        class!(ompi_proc_t, ompi_proc_t_class),
        class!(ompi_request_t, ompi_request_t_class),
    ]
}

/// The frameworks for which ibex has a component: name in a sentence, and version of the interface for which ibex was
/// built, as hundreds, tens and ones.
pub const FRAMEWORKS: [(&str, u32); 2] = [("BTL", release::BTL_VERSION), (PML, release::PML_VERSION)];

const PML: &str = "PML";

/// Returns the interface version that another component in this process declares for one of [`FRAMEWORKS`]; `None`:
/// there is no other. Call it only in an Open MPI of the series built for, while no thread changes the framework's list
/// of components.
pub fn interface_of_others(framework: &str) -> Option<u32> {
    // SAFETY: reads Open MPI's list of components, which is zero before it is made, and does not change meanwhile.
    let version = unsafe { sys::ibex_interface_of_others(framework == PML) };
    (version != 0).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_linked_by_the_tests_is_the_one_of_the_headers() {
        assert!(running().starts_with(&built()), "headers of {}, library {}", built(), running());
        assert!(built().starts_with(&format!("{}.", release::SERIES)));
        for class in class_sizes() {
            assert_eq!(class.built, class.running, "{}", class.name);
        }
    }
}
