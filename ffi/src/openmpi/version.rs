// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which Open MPI ibex was built for, and which one it runs in.
//!
//! Called by plugin-abi's `refusal`, which compares the two before anything else is done. Grade: setup. Any thread.
//! Everything read here is constant data of the loaded libopen-pal: the version string and the sizes that its object
//! classes record, which change when the layout of the type does.

use std::ffi::CStr;

use super::sys;

/// The release of Open MPI whose headers this was built from, such as `4.1.4`.
#[must_use]
pub fn built() -> String {
    format!("{}.{}.{}", sys::OPAL_MAJOR_VERSION, sys::OPAL_MINOR_VERSION, sys::OPAL_RELEASE_VERSION)
}

/// The release of the Open MPI in this process, as its libopen-pal spells it (a suffix such as `rc1` included).
#[must_use]
pub fn running() -> String {
    // SAFETY: `opal_version_string` is a NUL-terminated constant array that libopen-pal exports; it stays loaded.
    // The bindings know it as an array of no length, so no reference to it is made.
    let text = unsafe { CStr::from_ptr((&raw const sys::opal_version_string).cast()) };
    text.to_string_lossy().into_owned()
}

/// A type of Open MPI's whose size the running library can be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassSize {
    /// C name of the type.
    pub name: &'static str,
    /// Bytes, by the headers this was built from.
    pub built: usize,
    /// Bytes, by the object class of the running library.
    pub running: usize,
}

/// The types a BTL shares with Open MPI by value, with both their sizes.
#[must_use]
pub fn class_sizes() -> [ClassSize; 6] {
    macro_rules! class {
        ($type:ident, $class:ident) => {
            ClassSize {
                name: stringify!($type),
                built: size_of::<sys::$type>(),
                // SAFETY: an object class is a static of libopen-pal's; the size is set at compile time and never
                // changed.
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
        class!(opal_free_list_item_t, opal_free_list_item_t_class),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_linked_by_the_tests_is_the_one_of_the_headers() {
        assert!(running().starts_with(&built()), "headers of {}, library {}", built(), running());
        for class in class_sizes() {
            assert_eq!(class.built, class.running, "{}", class.name);
        }
    }
}
