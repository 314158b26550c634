// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performance variables of a face that matches messages: queue lengths, bound to communicators, and the memory for
//! unexpected messages.
//!
//! Registered with the component, so `ompi_info` and tools see them even if the PML is not selected; they are 0 then. A
//! tool may reset a watermark: its handle then starts from the current level (MPI 4.1, 15.3.7); the handles of other
//! tools do not change. Grade: setup. Threads: any, without entering the PML; no signal handler, because a read takes
//! locks of Open MPI and ibex. Tests: `lengths.rs` and `state.rs` in `src/messenger`, `hw-tests/tools/mpi_t_queues.c`.

use std::ffi::{c_int, c_void};

use engine::messenger::flow_control::state::ROOM;
use engine::messenger::matching::lengths::{Lengths, Of};
use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Class, Performance, Wanted, Width};

use crate::runtime::{guard, listeners};

/// A face that has queues for each communicator.
pub(crate) trait HasQueues {
    /// Returns the queue lengths of a communicator; `None`: this PML does not have the communicator.
    ///
    /// # Safety
    /// The communicator, and the face's part of it, live while the result is used.
    unsafe fn lengths<'comm>(comm: *mut sys::ompi_communicator_t) -> Option<&'comm Lengths>;
}

struct Row {
    /// Name without `pml_ibex_`.
    name: &'static str,
    help: &'static str,
    value: Value,
}

#[derive(Clone, Copy)]
enum Value {
    Level(Of),
    Most(Of),
    Messages,
    Attempts,
    /// Belongs to the process, not to a communicator.
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

/// Makes the table. A row has a name, a value and a help text.
macro_rules! rows {
    ($($name:ident: $value:expr, $help:literal;)*) => {
        static ROWS: [Row; [$(stringify!($name)),*].len()] =
            [$(Row { name: stringify!($name), help: $help, value: $value }),*];
    };
}

rows! {
    posted_receives: Value::Level(Of::Posted), "Receives that wait for their messages, in a communicator.";
    posted_receives_most: Value::Most(Of::Posted), "The most receives that have waited at the same time, in a communicator, since it was made or this was reset; one that waited alone is not counted when it waits no longer.";
    unexpected_messages: Value::Level(Of::Unexpected), "Messages that have arrived and for which there is no receive, in a communicator.";
    unexpected_messages_most: Value::Most(Of::Unexpected), "The most messages that were unexpected at the same time, in a communicator, since it was made or this was reset.";
    unexpected_bytes: Value::Level(Of::Bytes), "Bytes of messages that are unexpected, in a communicator; of those too that are only announced.";
    unexpected_bytes_most: Value::Most(Of::Bytes), "The most bytes of messages that were unexpected at the same time, in a communicator, since it was made or this was reset.";
    unexpected_messages_all: Value::Messages, "Messages that were unexpected when they arrived, in a communicator.";
    match_attempts: Value::Attempts, "Entries of both queues that were compared with a message or a receive, in a communicator; a receive that waits alone is in neither.";
    unexpected_memory_least_left: Value::LeastRoom, "The least that was left of the memory for unexpected messages (pml_ibex_unexpected_memory), in bytes, since MPI was initialised or this was reset; 0: senders were held back.";
}

pub(crate) fn register<F: HasQueues>(component: &sys::mca_base_component_t) -> Result<(), i32> {
    for (index, row) in ROWS.iter().enumerate() {
        let variable = Performance {
            name: row.name,
            help: row.help,
            class: row.value.class(),
            width: row.value.width(),
            bind: row.value.bind(),
            read: read::<F>,
            write: matches!(row.value, Value::Most(_) | Value::LeastRoom).then_some(write::<F> as variable::Write),
            notify: None,
            index,
        };
        // SAFETY: any thread may call both functions.
        unsafe { variable::performance(component, &variable) }?;
    }
    Ok(())
}

/// Calls `call` with the queue lengths of a communicator; returns 0 if this PML does not have the communicator.
fn of_shown<F: HasQueues>(object: *mut c_void, call: impl FnOnce(&Lengths) -> u64) -> u64 {
    // SAFETY: `while_live` keeps the communicator, and the face's part of it, alive during this call.
    listeners::while_live(object.cast(), |comm| unsafe { F::lengths(comm) }.map(call)).flatten().unwrap_or(0)
}

/// `mca_base_get_value_fn_t`: reads a variable.
unsafe extern "C" fn read<F: HasQueues>(
    variable: *const sys::mca_base_pvar_t,
    value: *mut c_void,
    object: *mut c_void,
) -> c_int {
    guard::fence("reading a performance variable", sys::OPAL_ERROR, || {
        // SAFETY: M4: Open MPI passes the variable that was registered.
        let Some(row) = ROWS.get(unsafe { variable::index(variable) }) else { return sys::OPAL_ERR_BAD_PARAM };
        // SAFETY: M4: the arguments of this call, for a watermark.
        let wanted = || unsafe { variable::wanted_of_watermark(variable, value) };
        // SAFETY: M4: the arguments of this call, for a watermark.
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
            Value::Level(of) => of_shown::<F>(object, |lengths| lengths.now(of)),
            Value::Most(of) => of_shown::<F>(object, |lengths| match wanted() {
                Wanted::First => lengths.most_ever(of),
                Wanted::Extreme => lengths.most(of),
                Wanted::Reset => {
                    mark(lengths.begin_anew(of));
                    lengths.now(of)
                }
            }),
            Value::Messages => of_shown::<F>(object, Lengths::messages),
            Value::Attempts => of_shown::<F>(object, Lengths::attempts),
        };
        // SAFETY: M4: `value` has room for one value of the registered type.
        unsafe {
            match row.value.width() {
                Width::Unsigned => value.cast::<u32>().write_unaligned(read as u32),
                Width::UnsignedLongLong => value.cast::<u64>().write_unaligned(read),
            }
        }
        sys::OPAL_SUCCESS
    })
}

/// `mca_base_set_value_fn_t` of a watermark: resets it for the handle that is written.
unsafe extern "C" fn write<F: HasQueues>(
    variable: *mut sys::mca_base_pvar_t,
    _: *const c_void,
    object: *mut c_void,
) -> c_int {
    guard::fence("writing a performance variable", sys::OPAL_ERROR, || {
        // SAFETY: M4: Open MPI passes the variable that was registered.
        let extreme = match ROWS.get(unsafe { variable::index(variable) }).map(|row| row.value) {
            Some(Value::Most(of)) => of_shown::<F>(object, |lengths| lengths.begin_anew(of)),
            Some(Value::LeastRoom) => ROOM.begin_anew(),
            _ => return sys::OPAL_SUCCESS,
        };
        // SAFETY: M4: the arguments of this call.
        unsafe { variable::mark(variable, object, extreme) };
        sys::OPAL_SUCCESS
    })
}
