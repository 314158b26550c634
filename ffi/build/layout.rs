// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes C that compiles only if the C compiler gives the types shared with Open MPI the layout that bindgen's
//! libclang gives them. Part of `build.rs`.

use std::fmt::Write as _;

use crate::fail;

/// These types, by their names in C. A type that a release series lacks is not in its bindings.
const TYPES: [&str; 28] = [
    "mca_base_component_t",
    "mca_base_pvar_handle_t",
    "mca_base_pvar_t",
    "mca_btl_active_message_callback_t",
    "mca_btl_base_component_t",
    "mca_btl_base_descriptor_t",
    "mca_btl_base_module_t",
    "mca_btl_base_receive_descriptor_t",
    "mca_btl_base_segment_t",
    "mca_pml_base_component_t",
    "mca_pml_base_module_t",
    "mca_rcache_base_module_t",
    "mca_rcache_base_registration_t",
    "struct mca_rcache_base_resources_t",
    "ompi_communicator_t",
    "ompi_datatype_t",
    "ompi_group_t",
    "ompi_message_t",
    "ompi_proc_t",
    "ompi_request_t",
    "ompi_status_public_t",
    "opal_class_t",
    "opal_convertor_t",
    "opal_datatype_t",
    "opal_free_list_item_t",
    "opal_mutex_t",
    "opal_proc_t",
    "opal_process_name_t",
];

/// Returns an assertion for each size, alignment and offset that the bindings assert of these types.
pub(crate) fn assertions(bindings: &str) -> String {
    let mut text = String::from("#include \"wrapper.h\"\n");
    for c_name in TYPES {
        let name = tag_of(bindings, c_name.trim_start_matches("struct "));
        let rows = rows(bindings, name);
        if rows.is_empty() && bindings.contains(&format!("pub struct {name} ")) {
            fail(&format!("bindgen asserts no layout of {c_name}"));
        }
        for (row, value) in rows {
            let what = match row {
                Row::Size => format!("sizeof({c_name})"),
                Row::Alignment => format!("_Alignof({c_name})"),
                Row::Offset(field) => format!("offsetof({c_name}, {field})"),
            };
            let _ = writeln!(text, "_Static_assert({what} == {value}, \"bindgen has {what} {value}\");");
        }
    }
    text
}

enum Row<'a> {
    Size,
    Alignment,
    Offset(&'a str),
}

/// Name of a type in the bindings, which may be a tag with a version.
fn tag_of<'a>(bindings: &'a str, name: &'a str) -> &'a str {
    let other = bindings.split_once(&format!("pub type {name} = ")).and_then(|(_, rest)| rest.split(';').next());
    other.map_or(name, str::trim)
}

/// Returns the assertions of the bindings about a type, such as `["Size of name"][size_of::<name>() - 8usize]`.
fn rows<'a>(bindings: &'a str, name: &str) -> Vec<(Row<'a>, &'a str)> {
    let said = bindings.split("[\"").skip(1).filter_map(|piece| piece.split_once("\"]"));
    let row = |(said, assertion): (&'a str, &'a str)| {
        let row = match said.split_once(" of ")? {
            ("Size", of) if of == name => Row::Size,
            ("Alignment", of) if of == name => Row::Alignment,
            ("Offset", of) => {
                let (of, field) = of.trim_start_matches("field: ").split_once("::")?;
                // Anonymous members have no name in C; bindgen adds `_` to names that are keywords of Rust.
                let has_name = of == name && !field.starts_with("__bindgen") && !field.starts_with("_bitfield");
                has_name.then(|| Row::Offset(field.trim_end_matches('_')))?
            }
            _ => return None,
        };
        Some((row, assertion.split("usize").next()?.rsplit(' ').next()?))
    };
    said.filter_map(row).collect()
}
