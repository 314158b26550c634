// SPDX-License-Identifier: MIT OR Apache-2.0
//! The performance variables of the PML: of a communicator's queues, bound to communicators, and of the memory for unexpected
//! messages.
//!
//! Registered with the component, so that `ompi_info` and tools see them whether the PML is chosen or not; where it is
//! not, they are 0. Lengths are `unsigned`, as MPI requires of a level; what grows beyond that is `unsigned long long`.
//! A tool may reset a watermark: then its handle has the level of that moment (MPI 4.1, 15.3.7), and those of other
//! tools keep theirs. Grade: setup; read in any thread, at any time, without the PML being entered, but not in a signal
//! handler: Open MPI has a lock while it reads, and so have communicators, which may be freed meanwhile. Tests: `lengths.rs`,
//! `bounds.rs`, `hw-tests/tools/mpi_t_queues.c`.

use std::ffi::{c_int, c_void};

use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Class, Performance, Wanted, Width};

use super::bounds::ROOM;
use super::communicator::Communicator;
use super::lengths::{Of, Shown};
use crate::runtime::{guard, listeners};

/// A variable.
struct Row {
    /// Its name, without `pml_ibex_`.
    name: &'static str,
    help: &'static str,
    value: Value,
}

/// What it shows.
#[derive(Clone, Copy)]
enum Value {
    Level(Of),
    Most(Of),
    Messages,
    Attempts,
    /// Of the process, not of a communicator.
    LeastRoom,
}

impl Value {
    fn class(self) -> Class {
        match self {
            Value::Level(_) => Class::Level,
            Value::Most(_) => Class::HighWatermark,
            Value::Messages | Value::Attempts => Class::Counter,
            Value::LeastRoom => Class::LowWatermark,
        }
    }

    fn bind(self) -> Bind {
        if matches!(self, Value::LeastRoom) { Bind::NoObject } else { Bind::Communicator }
    }

    fn width(self) -> Width {
        match self {
            Value::Level(Of::Posted | Of::Unexpected) | Value::Most(Of::Posted | Of::Unexpected) => Width::Unsigned,
            _ => Width::UnsignedLongLong,
        }
    }
}

static ROWS: [Row; 9] = [
    Row {
        name: "posted_receives",
        help: "Receives that wait for their messages, in a communicator.",
        value: Value::Level(Of::Posted),
    },
    Row {
        name: "posted_receives_most",
        help: "The most receives that have waited at the same time, in a communicator, since it was made or this was reset; one that waited alone is not \
               counted when it waits no longer.",
        value: Value::Most(Of::Posted),
    },
    Row {
        name: "unexpected_messages",
        help: "Messages that have arrived and for which there is no receive, in a communicator.",
        value: Value::Level(Of::Unexpected),
    },
    Row {
        name: "unexpected_messages_most",
        help: "The most messages that were unexpected at the same time, in a communicator, since it was made or this was reset.",
        value: Value::Most(Of::Unexpected),
    },
    Row {
        name: "unexpected_bytes",
        help: "Bytes of messages that are unexpected, in a communicator; of those too that are only announced.",
        value: Value::Level(Of::Bytes),
    },
    Row {
        name: "unexpected_bytes_most",
        help: "The most bytes of messages that were unexpected at the same time, in a communicator, since it was made or this was reset.",
        value: Value::Most(Of::Bytes),
    },
    Row {
        name: "unexpected_messages_all",
        help: "Messages that were unexpected when they arrived, in a communicator.",
        value: Value::Messages,
    },
    Row {
        name: "match_attempts",
        help: "Entries of both queues that were compared with a message or a receive, in a communicator; a receive that waits alone is in \
               neither.",
        value: Value::Attempts,
    },
    Row {
        name: "unexpected_memory_least_left",
        help: "The least that was left of the memory for unexpected messages (pml_ibex_unexpected_memory), in bytes, since MPI was \
               initialised or this was reset; 0: senders were held back.",
        value: Value::LeastRoom,
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
            class: row.value.class(),
            width: row.value.width(),
            bind: row.value.bind(),
            read,
            write: matches!(row.value, Value::Most(_) | Value::LeastRoom).then_some(write as variable::Write),
            notify: None,
            context: std::ptr::without_provenance_mut(index),
        };
        // SAFETY: `component` is being registered; both functions are callable from any thread and take the index back.
        unsafe { variable::performance(component, &variable) }?;
    }
    Ok(())
}

/// The variable whose index stands in its context.
///
/// # Safety
/// One that was registered here.
unsafe fn row(variable: *const sys::mca_base_pvar_t) -> Option<&'static Row> {
    // SAFETY: registered here.
    ROWS.get(unsafe { (*variable).ctx }.addr())
}

/// Calls this with what a communicator shows; 0 where this face does not have it.
fn of_shown(object: *mut c_void, call: impl FnOnce(Shown<'_>) -> u64) -> u64 {
    // SAFETY: `while_live` keeps it alive while this is called, with what the PML keeps of it.
    let value = listeners::while_live(object.cast(), |comm| unsafe { Communicator::shown_of(comm) }.map(call));
    value.flatten().unwrap_or(0)
}

/// `mca_base_get_value_fn_t`: the value of a variable of a communicator.
unsafe extern "C" fn read(variable: *const sys::mca_base_pvar_t, value: *mut c_void, object: *mut c_void) -> c_int {
    guard::fence("reading a performance variable", sys::OPAL_ERROR, || {
        // SAFETY: P4: Open MPI passes the variable that was registered.
        let Some(row) = (unsafe { row(variable) }) else { return sys::OPAL_ERR_BAD_PARAM };
        // SAFETY: P4: with the arguments of this call, of a watermark.
        let wanted = || unsafe { variable::wanted_of_watermark(variable, value) };
        // SAFETY: P4: with the arguments of this call, of a watermark.
        let mark = |extreme| unsafe { variable::mark(variable, object, extreme) };
        let read = match row.value {
            Value::LeastRoom => match wanted() {
                Wanted::First => ROOM.least_ever(),
                Wanted::Extreme => ROOM.least(),
                Wanted::Reset => {
                    mark(ROOM.begin_anew());
                    ROOM.now()
                }
            },
            Value::Level(of) => of_shown(object, |shown| shown.now(of)),
            Value::Most(of) => of_shown(object, |shown| match wanted() {
                Wanted::First => shown.most_ever(of),
                Wanted::Extreme => shown.most(of),
                Wanted::Reset => {
                    mark(shown.begin_anew(of));
                    shown.now(of)
                }
            }),
            Value::Messages => of_shown(object, |shown| shown.messages()),
            Value::Attempts => of_shown(object, |shown| shown.attempts()),
        };
        // SAFETY: P4: room for one value of the registered type.
        unsafe {
            match row.value.width() {
                Width::Unsigned => value.cast::<u32>().write_unaligned(read as u32),
                Width::UnsignedLongLong => value.cast::<u64>().write_unaligned(read),
            }
        }
        sys::OPAL_SUCCESS
    })
}

/// `mca_base_set_value_fn_t` of a watermark: what it was before does not count for the handle that is written.
unsafe extern "C" fn write(variable: *mut sys::mca_base_pvar_t, _: *const c_void, object: *mut c_void) -> c_int {
    guard::fence("writing a performance variable", sys::OPAL_ERROR, || {
        // SAFETY: P4: Open MPI passes the variable that was registered.
        let extreme = match unsafe { row(variable) }.map(|row| row.value) {
            Some(Value::Most(of)) => of_shown(object, |shown| shown.begin_anew(of)),
            Some(Value::LeastRoom) => ROOM.begin_anew(),
            _ => return sys::OPAL_SUCCESS,
        };
        // SAFETY: P4: with the arguments of this call.
        unsafe { variable::mark(variable, object, extreme) };
        sys::OPAL_SUCCESS
    })
}
