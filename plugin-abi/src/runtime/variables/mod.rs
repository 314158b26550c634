// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters and counters, as Open MPI's control and performance variables. The components call [`register`] when Open
//! MPI registers the component (as `ompi_info` and `MPI_T` do, too, so it touches no device and may run again),
//! [`keep`] and [`tunables`] when it opens the component. Between these calls a tool may write control variables; those
//! that it may write later, too, are in `variables/now.rs`. The rows come from the engine's tables. The counts of
//! events, with one value per source, are in `variables/events.rs`, queue lengths in `variables/queues.rs`. Grade:
//! setup. Threads: any thread may read a counter, but not in a signal handler, because Open MPI holds a lock meanwhile.
//! Tests: below.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use engine::counters::{COUNTERS, Class, CounterRow, Counters};
use engine::tunables::{Faces, Kind, OutOfBounds, Row, Scope, TABLE, Tunables, Value, Writable};
use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Performance, Storage, Width};
use parking_lot::Mutex;

use super::entry::{Values, entry3};
use super::guard;

pub(crate) mod events;
pub(crate) mod now;
pub(crate) mod queues;

const ROWS: usize = TABLE.len();

/// Storage of the control variables, one element per row and kind, to which Open MPI writes a user's or tool's values.
struct Places {
    /// Whether the row is registered, which depends on the components that Open MPI loads.
    registered: [AtomicBool; ROWS],
    counts: [AtomicU64; ROWS],
    texts: [AtomicPtr<c_char>; ROWS],
    flags: [AtomicU8; ROWS],
    /// Whether a component has read all values and found them in bounds.
    is_read: AtomicBool,
}

impl Places {
    /// Makes storage with the defaults; texts are null until Open MPI has stored its copies of the defaults.
    const fn new() -> Self {
        let mut places = Places {
            registered: [const { AtomicBool::new(false) }; ROWS],
            counts: [const { AtomicU64::new(0) }; ROWS],
            texts: [const { AtomicPtr::new(null_mut()) }; ROWS],
            flags: [const { AtomicU8::new(0) }; ROWS],
            is_read: AtomicBool::new(false),
        };
        let mut index = 0;
        while index < ROWS {
            match TABLE[index].kind {
                Kind::Count { default, .. } => places.counts[index] = AtomicU64::new(default),
                Kind::Flag { default } => places.flags[index] = AtomicU8::new(default as u8),
                Kind::Text { .. } => {}
            }
            index += 1;
        }
        places
    }

    fn register(&'static self, component: &sys::mca_base_component_t, prefix: &str) -> Result<(), i32> {
        self.is_read.store(false, Ordering::Relaxed);
        for (index, row) in TABLE.iter().enumerate().filter(|(_, row)| row.faces.prefix() == prefix) {
            let storage = match row.kind {
                Kind::Count { default, .. } => Storage::Count(&self.counts[index], default),
                Kind::Text { default, .. } => Storage::Text(&self.texts[index], default),
                Kind::Flag { default } => Storage::Flag(&self.flags[index], default),
            };
            let scope = match row.scope {
                Scope::Local => variable::Scope::Local,
                Scope::All => variable::Scope::All,
            };
            variable::control(component, row.name, &parameter_help(row), row.level, scope, storage)?;
            self.registered[index].store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// # Safety
    /// No tool is writing a text.
    unsafe fn values(&self) -> Vec<Value> {
        let value = |(index, row): (usize, &Row)| match row.kind {
            Kind::Count { .. } => Value::Count(self.count(index)),
            Kind::Flag { .. } => Value::Flag(self.flag(index)),
            Kind::Text { .. } if !self.registered[index].load(Ordering::Relaxed) => row.default_value(),
            // SAFETY: the caller says that no tool is writing.
            Kind::Text { .. } => Value::Text(unsafe { self.text(index) }),
        };
        TABLE.iter().enumerate().map(value).collect()
    }

    // Relaxed, here and below: no other memory depends on a value.
    fn count(&self, index: usize) -> u64 {
        self.counts[index].load(Ordering::Relaxed)
    }

    fn flag(&self, index: usize) -> bool {
        self.flags[index].load(Ordering::Relaxed) != 0
    }

    /// # Safety
    /// No tool is writing this text.
    unsafe fn text(&self, index: usize) -> String {
        let text = self.texts[index].load(Ordering::Relaxed);
        if text.is_null() {
            return String::new();
        }
        // SAFETY: Open MPI's NUL-terminated copy, valid until a tool writes another; the caller says that none does.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

static PLACES: Places = Places::new();

/// Counters of the open ports; a performance variable shows their sum.
static PORTS: Mutex<Vec<Arc<Counters>>> = Mutex::new(Vec::new());

/// Registers the parameters that begin with `btl_ibex_`, and every counter.
pub(crate) fn register(component: &sys::mca_base_component_t) -> Result<(), i32> {
    PLACES.register(component, Faces::Both.prefix())?;
    for (index, row) in COUNTERS.iter().enumerate() {
        let counter = Performance {
            name: row.name,
            help: &format!("{} Unit: {}; over all ports of the process.", row.help, row.unit),
            class: class(row),
            width: Width::UnsignedLongLong,
            bind: Bind::NoObject,
            read: entry3(read_counter),
            write: None,
            notify: None,
            index,
        };
        // SAFETY: any thread may call `read_counter`.
        unsafe { variable::performance(component, &counter) }?;
    }
    events::register(component)
}

pub(crate) fn register_pml(component: &sys::mca_base_component_t) -> Result<(), i32> {
    PLACES.register(component, Faces::Pml.prefix())
}

/// Registers the rows under the BTL's name if the BTL has not, which happens if the user has excluded it.
pub(crate) fn register_without_btl() -> Result<(), i32> {
    if variable::exists(c"btl", Some(c"ibex"), TABLE.iter().find(|row| row.faces == Faces::Both).map(|row| row.name)) {
        return Ok(());
    }
    // SAFETY: zero is a valid value of this C structure of integers, texts and nullable pointers.
    let mut named: sys::mca_base_component_t = unsafe { std::mem::zeroed() };
    name(&mut named.mca_project_name, "opal");
    name(&mut named.mca_type_name, "btl");
    name(&mut named.mca_component_name, "ibex");
    register(&named)
}

fn name(place: &mut [c_char], text: &str) {
    place.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte as c_char);
}

fn parameter_help(row: &Row) -> String {
    let unit = if row.unit.is_empty() { String::new() } else { format!(" {}", row.unit) };
    let scope = if row.scope == Scope::All { " The values of all processes must go together." } else { "" };
    let writable = if row.writable == Writable::Always { " A tool may write it while MPI runs." } else { "" };
    let (default, permitted) = (row.default_value(), row.permitted());
    format!("{} {} Default: {default}{unit}; permitted: {permitted}.{scope}{writable}", row.help, row.effect)
}

fn class(row: &CounterRow) -> variable::Class {
    match row.class {
        Class::Counter => variable::Class::Counter,
        Class::Aggregate => variable::Class::Aggregate,
        Class::Timer => variable::Class::Timer,
        Class::Level => variable::Class::Level,
        Class::Size => variable::Class::Size,
    }
}

/// Forbids tools to write the parameters that are fixed once a component is opened: ports and peers rely on them.
pub(crate) fn keep() {
    for row in TABLE.iter().filter(|row| row.writable == Writable::UntilInit) {
        let framework = if row.faces == Faces::Pml { c"pml" } else { c"btl" };
        variable::keep(framework, c"ibex", row.name);
    }
    variable::await_writers();
}

/// Returns the parameters as the user and tools have set them, checked for a component that has been opened ([`keep`]).
pub(crate) fn tunables(face: Faces) -> Result<Tunables, OutOfBounds> {
    // SAFETY: tools may not write texts any more (`keep`).
    let tunables = Tunables::for_face(face, &unsafe { PLACES.values() })?;
    PLACES.is_read.store(true, Ordering::Relaxed);
    Ok(tunables)
}

pub(crate) fn show_port(counters: Arc<Counters>) {
    PORTS.lock().push(counters);
}

/// Removes the counters of all ports, because the component is opened or closed.
pub(crate) fn forget_ports() {
    PORTS.lock().clear();
}

/// `mca_base_get_value_fn_t`: reads the counter whose index is the variable's context.
extern "C" fn read_counter(variable: &sys::mca_base_pvar_t, [value]: Values<'_, 1>, _object: *mut c_void) -> c_int {
    guard::fence("reading a performance variable", sys::OPAL_ERROR, || {
        let Some(row) = COUNTERS.get(variable.ctx.addr()) else { return sys::OPAL_ERR_BAD_PARAM };
        let total: u64 = PORTS.lock().iter().map(|counters| (row.read)(counters)).sum();
        value.write(total.to_ne_bytes());
        sys::OPAL_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_defaults_before_anything_is_registered() {
        let places = Places::new();
        // SAFETY: these places are registered nowhere, so no tool writes them.
        let values = unsafe { places.values() };
        assert_eq!(values, TABLE.iter().map(Row::default_value).collect::<Vec<_>>());
    }

    #[test]
    fn any_byte_but_0_that_a_tool_writes_to_a_flag_is_true() {
        let places = Places::new();
        let index = TABLE.iter().position(|row| row.name == "event_buffered").expect("a row");
        for (byte, is_set) in [(1, true), (0, false), (2, true), (255, true)] {
            places.flags[index].store(byte, Ordering::Relaxed);
            assert_eq!(places.flag(index), is_set);
        }
    }
}
