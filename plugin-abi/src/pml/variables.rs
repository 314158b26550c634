// SPDX-License-Identifier: MIT OR Apache-2.0
//! The performance variables of a communicator's queues, bound to communicators.
//!
//! Registered with the component, so that `ompi_info` and tools see them whether the PML is chosen or not; where it is
//! not, they are 0. Lengths are `unsigned`, as MPI requires of a level; what grows beyond that is `unsigned long long`.
//! Grade: setup; read in any thread, at any time, without the PML being entered. Tests:
//! `hw-tests/tools/mpi_t_queues.c`.

use std::ffi::{c_int, c_void};

use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Class, Performance, Width};

use super::communicator::Communicator;
use super::lengths::Shown;
use crate::runtime::{guard, listeners};

/// A variable.
struct Row {
    /// Its name, without `pml_ibex_`.
    name: &'static str,
    help: &'static str,
    class: Class,
    read: Value,
}

/// How its value is found.
enum Value {
    Short(fn(&Shown) -> u32),
    Long(fn(&Shown) -> u64),
}

static ROWS: [Row; 8] = [
    Row {
        name: "posted_receives",
        help: "Receives that wait for their messages, in a communicator.",
        class: Class::Level,
        read: Value::Short(|shown| shown.posted[0]),
    },
    Row {
        name: "posted_receives_most",
        help: "The most receives that have waited at the same time, in a communicator, since it was made; one that waited alone is not \
               counted when it waits no longer.",
        class: Class::HighWatermark,
        read: Value::Short(|shown| shown.posted[1]),
    },
    Row {
        name: "unexpected_messages",
        help: "Messages that have arrived and for which there is no receive, in a communicator.",
        class: Class::Level,
        read: Value::Short(|shown| shown.unexpected[0]),
    },
    Row {
        name: "unexpected_messages_most",
        help: "The most messages that were unexpected at the same time, in a communicator, since it was made.",
        class: Class::HighWatermark,
        read: Value::Short(|shown| shown.unexpected[1]),
    },
    Row {
        name: "unexpected_bytes",
        help: "Bytes of messages that are unexpected, in a communicator; of those too that are only announced.",
        class: Class::Level,
        read: Value::Long(|shown| shown.bytes[0]),
    },
    Row {
        name: "unexpected_bytes_most",
        help: "The most bytes of messages that were unexpected at the same time, in a communicator, since it was made.",
        class: Class::HighWatermark,
        read: Value::Long(|shown| shown.bytes[1]),
    },
    Row {
        name: "unexpected_messages_all",
        help: "Messages that were unexpected when they arrived, in a communicator.",
        class: Class::Counter,
        read: Value::Long(|shown| shown.messages),
    },
    Row {
        name: "match_attempts",
        help: "Entries of both queues that were compared with a message or a receive, in a communicator; a receive that waits alone is in \
               neither.",
        class: Class::Counter,
        read: Value::Long(|shown| shown.attempts),
    },
];

/// Registers all.
///
/// # Safety
/// `component` is the component that is being registered.
pub(crate) unsafe fn register(component: *const sys::mca_base_component_t) -> Result<(), i32> {
    for (index, row) in ROWS.iter().enumerate() {
        let variable = Performance {
            name: row.name,
            help: row.help,
            level: 4,
            class: row.class,
            width: if matches!(row.read, Value::Short(_)) { Width::Unsigned } else { Width::UnsignedLongLong },
            bind: Bind::Communicator,
            read,
            notify: None,
            context: std::ptr::without_provenance_mut(index),
        };
        // SAFETY: this function's rule; `read` is callable from any thread and takes the index back.
        unsafe { variable::performance(component, &variable) }?;
    }
    Ok(())
}

/// `mca_base_get_value_fn_t`: the variable whose index stands in its context, of a communicator.
unsafe extern "C" fn read(variable: *const sys::mca_base_pvar_t, value: *mut c_void, object: *mut c_void) -> c_int {
    guard::fence("reading a performance variable", sys::OPAL_ERROR, || {
        // SAFETY: Open MPI passes the variable that was registered; its context is the index.
        let index = unsafe { (*variable).ctx }.addr();
        let Some(row) = ROWS.get(index) else { return sys::OPAL_ERR_BAD_PARAM };
        // SAFETY: alive while this is called, with what the PML keeps of it.
        let shown = listeners::while_live(object.cast(), |comm| unsafe { Communicator::shown_of(comm) });
        let shown = shown.unwrap_or_default();
        // SAFETY: room for one value of the registered type.
        unsafe {
            match row.read {
                Value::Short(read) => value.cast::<u32>().write_unaligned(read(&shown)),
                Value::Long(read) => value.cast::<u64>().write_unaligned(read(&shown)),
            }
        }
        sys::OPAL_SUCCESS
    })
}
