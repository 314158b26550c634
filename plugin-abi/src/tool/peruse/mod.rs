// SPDX-License-Identifier: MIT OR Apache-2.0
//! PERUSE 2.0: its 17 functions, as translations of the event engine. `include/peruse.h` declares them. `supported`
//! lists the events, `event_handle` has the event handles, `lock` the tool's lock; communicators are in
//! `tool/communicator.rs`. Codes are the specification's; if several apply, the handle is checked first, then the
//! communicator, then the rest. Grade: setup. Threads: any. Tests: `tests` (events that fire),
//! `tests/tool/peruse.c`, and those of each file.

mod event_handle;
mod lock;
mod supported;
#[cfg(test)]
pub(in crate::tool) mod tests;

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::arguments::{Null, Out, Text};
use super::communicator::{self, Comm};
use super::host;
use crate::runtime::copies;
use crate::runtime::entry::Opaque;
use crate::runtime::guard::fence;
use crate::runtime::listeners::{self, Function};
use event_handle::{Callback, EventHandle};
pub(super) use event_handle::{communicator_freed, copied, propagated};
use supported::INVALID;

/// Codes that the functions return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Code {
    Init = 1,
    Generic = 2,
    Event = 4,
    EventHandle = 5,
    Parameter = 6,
    MpiInit = 7,
    Comm = 8,
    MpiObject = 9,
    /// Both functions of the lock use it for an error of the thread.
    Lock = 10,
    LockNotGrantable = 12,
}

impl From<Null> for Code {
    fn from(Null: Null) -> Code {
        Code::Parameter
    }
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);

fn answer(name: &'static str, body: impl FnOnce() -> Result<(), Code>) -> c_int {
    if copies::is_refused() {
        return Code::Generic as c_int;
    }
    match fence(name, Err(Code::Generic), body) {
        Ok(()) => 0,
        Err(code) => code as c_int,
    }
}

fn inactive(event_h: i64) -> Result<Arc<EventHandle>, Code> {
    let handle = event_handle::find(event_h)?;
    if handle.is_active() { Err(Code::EventHandle) } else { Ok(handle) }
}

/// An array that exists as long as the process, for C.
struct Lasting<T>(Box<[T]>);

/// A string that is never freed or written.
#[repr(transparent)]
struct LastingText(#[allow(dead_code, reason = "C reads it")] Opaque);

impl<T> Lasting<T> {
    /// Returns the pointer for C, which may not write to it (5.2.2).
    fn pointer(&self) -> *mut T {
        if self.0.is_empty() { null_mut() } else { self.0.as_ptr().cast_mut() }
    }
}

/// Returns the variables that Open MPI, its process managers, ibex, UCX, libibverbs and the providers read.
fn environment() -> &'static Lasting<LastingText> {
    const READ: [&str; 17] = [
        "IBEX_", "OMPI_", "OPAL_", "ORTE_", "PRTE_", "PMIX_", "UCX_", "IBV_", "RDMAV_", "VERBS_", "MLX_", "MLX4_",
        "MLX5_", "HUGE_", "CXGB4_", "T5_", "QELR_",
    ];
    static ENVIRONMENT: OnceLock<Lasting<LastingText>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let is_read = |name: &OsStr| READ.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()));
        let ours = std::env::vars_os().filter(|(name, _)| is_read(name));
        let text = ours.filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).ok()
        });
        Lasting(text.map(|text| LastingText(Opaque(text.into_raw().cast()))).collect())
    })
}

/// `PERUSE_Init` (5.2.1).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Init() -> c_int {
    answer("PERUSE_Init", || {
        if !host::mpi_is_usable() {
            return Err(Code::MpiInit);
        }
        listeners::called_by(event_handle::UPCALL);
        // `MPI_COMM_WORLD` is freed last; its end ends those that are never freed, too.
        communicator::track(communicator::world()).ok_or(Code::Generic)?;
        environment();
        INITIALIZED.store(true, Ordering::Release);
        Ok(())
    })
}

/// `PERUSE_Query_supported_events` (5.2.2).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Query_supported_events(
    num_supported: Out<'_, c_int>,
    event_names: Out<'_, *mut *mut c_char>,
    events: Out<'_, *mut c_int>,
) -> c_int {
    static NAMES: OnceLock<Lasting<LastingText>> = OnceLock::new();
    static NUMBERS: OnceLock<Lasting<c_int>> = OnceLock::new();
    answer("PERUSE_Query_supported_events", || {
        event_names.required()?;
        events.required()?;
        let name = |name: &'static CStr| LastingText(Opaque(name.as_ptr().cast_mut().cast()));
        let names = NAMES.get_or_init(|| Lasting(supported::EVENTS.iter().map(|event| name(event.name)).collect()));
        let numbers = NUMBERS.get_or_init(|| Lasting(supported::EVENTS.iter().map(|event| event.number).collect()));
        let count = supported::coming().len();
        num_supported.fill(count as c_int)?;
        event_names.fill(if count > 0 { names.pointer().cast() } else { null_mut() })?;
        Ok(events.fill(if count > 0 { numbers.pointer() } else { null_mut() })?)
    })
}

/// `PERUSE_Query_event` (5.2.3).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Query_event(event_name: Text<'_>, event: Out<'_, c_int>) -> c_int {
    answer("PERUSE_Query_event", || {
        let found = supported::named(event_name.required()?);
        event.fill(found.map_or(INVALID, |found| found.number))?;
        found.map(|_| ()).ok_or(Code::Event)
    })
}

/// `PERUSE_Query_event_name` (5.2.4).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Query_event_name(event: c_int, event_name: Out<'_, *mut c_char>) -> c_int {
    answer("PERUSE_Query_event_name", || {
        event_name.required()?;
        let found = supported::coming().iter().find(|found| found.number == event).ok_or(Code::Event)?;
        Ok(event_name.fill(found.name.as_ptr().cast_mut())?)
    })
}

/// `PERUSE_Query_environment` (5.2.5).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Query_environment(env_size: Out<'_, c_int>, env: Out<'_, *mut *mut c_char>) -> c_int {
    answer("PERUSE_Query_environment", || {
        env.required()?;
        let all = environment();
        env_size.fill(all.0.len() as c_int)?;
        Ok(env.fill(all.pointer().cast())?)
    })
}

/// `PERUSE_Query_queue_event_scope` (5.2.6): both ob1 and ibex' PML have queues for each communicator.
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Query_queue_event_scope(scope: Out<'_, c_int>) -> c_int {
    const PER_COMM: c_int = 0;
    answer("PERUSE_Query_queue_event_scope", || Ok(scope.fill(PER_COMM)?))
}

/// `PERUSE_Event_comm_register` (5.2.7). `comm` may have any value.
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_comm_register(
    event: c_int,
    comm: Comm,
    callback_fn: Option<Function>,
    param: Opaque,
    event_h: Out<'_, i64>,
) -> c_int {
    answer("PERUSE_Event_comm_register", || {
        if !INITIALIZED.load(Ordering::Acquire) || !host::mpi_is_usable() {
            return Err(Code::Init);
        }
        let supported = supported::numbered(event).ok_or(Code::Event)?;
        if !communicator::is_valid(comm) {
            return Err(Code::Comm);
        }
        let function = callback_fn.ok_or(Code::Parameter)?;
        event_h.required()?;
        let tracked = communicator::track(comm).ok_or(Code::Generic)?;
        Ok(event_h.fill(event_handle::new(supported, comm, tracked, Callback { function, param }))?)
    })
}

/// `PERUSE_Event_activate` (5.2.8).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_activate(event_h: i64) -> c_int {
    answer("PERUSE_Event_activate", || {
        event_handle::find(event_h)?.activate();
        Ok(())
    })
}

/// `PERUSE_Event_deactivate` (5.2.9).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_deactivate(event_h: i64) -> c_int {
    answer("PERUSE_Event_deactivate", || {
        event_handle::find(event_h)?.deactivate();
        Ok(())
    })
}

/// `PERUSE_Event_release` (5.2.10).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_release(event_h: Option<&mut i64>) -> c_int {
    answer("PERUSE_Event_release", || {
        let event_h = event_h.ok_or(Code::Parameter)?;
        event_handle::release(*event_h)?;
        *event_h = 0;
        Ok(())
    })
}

/// `PERUSE_Event_get` (5.2.11).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_get(event_h: i64, event: Out<'_, c_int>) -> c_int {
    answer("PERUSE_Event_get", || Ok(event.fill(event_handle::find(event_h)?.supported.number)?))
}

/// `PERUSE_Event_object_get` (5.2.12).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_object_get(event_h: i64, mpi_object: Out<'_, *mut c_void>) -> c_int {
    answer("PERUSE_Event_object_get", || Ok(mpi_object.fill(event_handle::find(event_h)?.comm.0.0)?))
}

/// `PERUSE_Event_comm_callback_set` (5.2.13).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_comm_callback_set(event_h: i64, callback_fn: Option<Function>, param: Opaque) -> c_int {
    answer("PERUSE_Event_comm_callback_set", || {
        let handle = inactive(event_h)?;
        let function = callback_fn.ok_or(Code::Parameter)?;
        handle.set_callback(Callback { function, param });
        Ok(())
    })
}

/// `PERUSE_Event_comm_callback_get` (5.2.14).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_comm_callback_get(
    event_h: i64,
    callback_fn: Out<'_, Option<Function>>,
    param: Out<'_, Opaque>,
) -> c_int {
    answer("PERUSE_Event_comm_callback_get", || {
        let callback = inactive(event_h)?.callback();
        param.required()?;
        callback_fn.fill(Some(callback.function))?;
        Ok(param.fill(callback.param)?)
    })
}

/// `PERUSE_Event_propagate` (5.2.15).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Event_propagate(event_h: i64, mode: c_int) -> c_int {
    answer("PERUSE_Event_propagate", || {
        inactive(event_h)?.set_propagate(mode != 0);
        Ok(())
    })
}

/// `PERUSE_Lock` (5.2.16).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Lock() -> c_int {
    answer("PERUSE_Lock", lock::lock)
}

/// `PERUSE_Unlock` (5.2.17).
#[unsafe(no_mangle)]
extern "C" fn PERUSE_Unlock() -> c_int {
    answer("PERUSE_Unlock", lock::unlock)
}
