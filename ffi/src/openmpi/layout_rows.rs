// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of sizes and offsets as bindgen has them, of the types and fields that are named.
//!
//! Used by `layout`, and by each release series for the fields that others do not have.

use std::collections::BTreeMap;

/// By type and field, offset and size; by type alone, alignment and size.
pub(super) type Rows = BTreeMap<(String, Option<String>), (usize, usize)>;

/// Size of the field that `pick` points at; only its type is used.
pub(super) fn field_size<T, F>(_pick: fn(*const T) -> *const F) -> usize {
    size_of::<F>()
}

/// The rows of fields, by their types.
macro_rules! fields {
    ($($type:ident { $($field:ident),* })*) => {{
        let mut rows = crate::openmpi::layout_rows::Rows::new();
        $($(
            rows.insert(
                (stringify!($type).to_owned(), Some(stringify!($field).to_owned())),
                (
                    std::mem::offset_of!(sys::$type, $field),
                    // SAFETY: the closure is never called; it only names the type of the field.
                    crate::openmpi::layout_rows::field_size(|of: *const sys::$type| unsafe { &raw const (*of).$field }),
                ),
            );
        )*)*
        rows
    }};
}
pub(super) use fields;

/// The rows of types and of their fields.
macro_rules! types {
    ($($type:ident { $($field:ident),* })*) => {{
        let mut rows = crate::openmpi::layout_rows::fields! { $($type { $($field),* })* };
        $(rows.insert((stringify!($type).to_owned(), None), (align_of::<sys::$type>(), size_of::<sys::$type>()));)*
        rows
    }};
}
#[allow(unused_imports, reason = "a release series may have no type of its own")]
pub(super) use types;
