// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters and counters, as Open MPI's control and performance variables.
//!
//! Called by a face's component: [`register`] in the registration of the component (which `ompi_info` and `MPI_T` run
//! as well, so it touches no device and may run again), [`tunables`] when the component is opened. The rows come from
//! the engine's tables; nothing is named here. The counts of events, which have a value per source, are in
//! `variables/events.rs`. Grade: setup; a counter is read from any thread without a lock.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use engine::counters::{COUNTERS, Class, CounterRow, Counters};
use engine::tunables::{Faces, Kind, OutOfBounds, Row, TABLE, Tunables, Value};
use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Performance, Storage, Width};

use super::guard;

pub(crate) mod events;

/// More rows than the table has; a test holds it.
const ROOM: usize = 96;

/// Where Open MPI writes what the user asked for, one place per row and kind.
struct Places {
    /// Whether Open MPI knows the row. Which rows it does depends on the components that it loads.
    registered: [Cell<bool>; ROOM],
    counts: [UnsafeCell<u64>; ROOM],
    texts: [UnsafeCell<*mut c_char>; ROOM],
    flags: [UnsafeCell<bool>; ROOM],
}

// SAFETY: written by Open MPI while it registers and read when the component is opened; both happen in the one thread
// that initialises MPI (or MPI_T, under MPI_T's own lock).
unsafe impl Sync for Places {}

impl Places {
    const fn new() -> Self {
        Places {
            registered: [const { Cell::new(false) }; ROOM],
            counts: [const { UnsafeCell::new(0) }; ROOM],
            texts: [const { UnsafeCell::new(null_mut()) }; ROOM],
            flags: [const { UnsafeCell::new(false) }; ROOM],
        }
    }

    /// Registers each row whose name begins so.
    ///
    /// # Safety
    /// `component` is the component that is being registered.
    unsafe fn register(&'static self, component: *const sys::mca_base_component_t, prefix: &str) -> Result<(), i32> {
        for (index, row) in TABLE.iter().enumerate().filter(|(_, row)| row.faces.prefix() == prefix) {
            // SAFETY: the caller says that `component` is being registered.
            unsafe { self.register_row(component, index, row) }?;
            self.registered[index].set(true);
        }
        Ok(())
    }

    /// # Safety
    /// `component` is the component that is being registered.
    unsafe fn register_row(
        &'static self,
        component: *const sys::mca_base_component_t,
        index: usize,
        row: &Row,
    ) -> Result<(), i32> {
        let default;
        let storage = match row.kind {
            Kind::Count { default, .. } => {
                let place = self.counts[index].get();
                // SAFETY: a static place, used in this thread alone (see `Places`).
                unsafe { place.write(default) };
                Storage::Count(place)
            }
            Kind::Text { default: text, .. } => {
                let place = self.texts[index].get();
                default = CString::new(text).map_err(|_| sys::OPAL_ERR_BAD_PARAM)?;
                // SAFETY: a static place, this thread's alone; Open MPI puts its own copy there before this returns.
                unsafe { place.write(default.as_ptr().cast_mut()) };
                Storage::Text(place)
            }
            Kind::Flag { default } => {
                let place = self.flags[index].get();
                // SAFETY: a static place, used in this thread alone (see `Places`).
                unsafe { place.write(default) };
                Storage::Flag(place)
            }
        };
        // SAFETY: the caller says that `component` is being registered; the places are static.
        unsafe { variable::control(component, row.name, &parameter_help(row), row.level, storage) }
    }

    /// The values of all rows, unchecked.
    fn values(&self) -> Vec<Value> {
        let value = |(index, row): (usize, &Row)| match row.kind {
            _ if !self.registered[index].get() => row.default_value(),
            // SAFETY: read in the thread that registered them (see `Places`).
            Kind::Count { .. } => Value::Count(unsafe { self.counts[index].get().read() }),
            Kind::Text { .. } => Value::Text(self.text(index)),
            // SAFETY: read in the thread that registered them; Open MPI writes 0 or 1 (mca_base_var_set_value).
            Kind::Flag { .. } => Value::Flag(unsafe { self.flags[index].get().read() }),
        };
        TABLE.iter().enumerate().map(value).collect()
    }

    fn text(&self, index: usize) -> String {
        // SAFETY: read in the thread that registered them (see `Places`).
        let text = unsafe { self.texts[index].get().read() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: Open MPI's own NUL-terminated copy, alive as long as the component is open.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

static PLACES: Places = Places::new();

/// The counters of the open ports; what a performance variable shows is their sum.
static PORTS: Mutex<Vec<Arc<Counters>>> = Mutex::new(Vec::new());

/// Registers the parameters that begin with `btl_ibex_`, and every counter.
///
/// # Safety
/// `component` is the component that is being registered.
pub(crate) unsafe fn register(component: *const sys::mca_base_component_t) -> Result<(), i32> {
    // SAFETY: the caller says that `component` is being registered.
    unsafe { PLACES.register(component, Faces::Both.prefix()) }?;
    for (index, row) in COUNTERS.iter().enumerate() {
        let counter = Performance {
            name: row.name,
            help: &counter_help(row),
            level: 4,
            class: class(row),
            width: Width::UnsignedLongLong,
            bind: Bind::NoObject,
            read: read_counter,
            write: None,
            notify: None,
            context: std::ptr::without_provenance_mut(index),
        };
        // SAFETY: `component` is being registered; `read_counter` is callable by any thread and takes the index back.
        unsafe { variable::performance(component, &counter) }?;
    }
    // SAFETY: the caller says that `component` is being registered.
    unsafe { events::register(component) }?;
    events::set_defaults(&PLACES.values());
    Ok(())
}

/// Registers the PML's own parameters.
///
/// # Safety
/// `component` is the PML's, which is being registered.
pub(crate) unsafe fn register_pml(component: *const sys::mca_base_component_t) -> Result<(), i32> {
    // SAFETY: the caller says that `component` is being registered.
    unsafe { PLACES.register(component, Faces::Pml.prefix()) }
}

/// Registers the rows under the BTL's name where the BTL has not: the user may have left it out.
///
/// # Safety
/// A component of ibex is being registered.
pub(crate) unsafe fn register_without_btl() -> Result<(), i32> {
    if variable::exists(c"btl", Some(c"ibex"), TABLE.iter().find(|row| row.faces == Faces::Both).map(|row| row.name)) {
        return Ok(());
    }
    // SAFETY: a C structure of integers, texts and (nullable) pointers, for which zero is a value.
    let mut named: sys::mca_base_component_t = unsafe { std::mem::zeroed() };
    name(&mut named.mca_project_name, "opal");
    name(&mut named.mca_type_name, "btl");
    name(&mut named.mca_component_name, "ibex");
    // SAFETY: only the names are read, for the call.
    unsafe { register(&raw const named) }
}

fn name(place: &mut [c_char], text: &str) {
    place.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte as c_char);
}

/// What `ompi_info` shows: the sentence, the effect, the default, the bounds.
fn parameter_help(row: &Row) -> String {
    let unit = if row.unit.is_empty() { String::new() } else { format!(" {}", row.unit) };
    format!("{} {} Default: {}{unit}; permitted: {}.", row.help, row.effect, row.default_value(), row.permitted())
}

fn counter_help(row: &CounterRow) -> String {
    format!("{} Unit: {}; over all ports of the process.", row.help, row.unit)
}

fn class(row: &CounterRow) -> variable::Class {
    match row.class {
        Class::Counter => variable::Class::Counter,
        Class::Aggregate => variable::Class::Aggregate,
        Class::Level => variable::Class::Level,
    }
}

/// The parameters as the user set them, checked for a face.
pub(crate) fn tunables(face: Faces) -> Result<Tunables, OutOfBounds> {
    Tunables::for_face(face, &PLACES.values())
}

/// Shows a port's counters from now on.
pub(crate) fn show_port(counters: Arc<Counters>) {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner).push(counters);
}

/// Forgets all ports: the component is opened or closed.
pub(crate) fn forget_ports() {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// `mca_base_get_value_fn_t`: the value of the counter whose index stands in the variable's context.
unsafe extern "C" fn read_counter(
    variable: *const sys::mca_base_pvar_t,
    value: *mut c_void,
    _object: *mut c_void,
) -> c_int {
    guard::fence("reading a performance variable", sys::OPAL_ERROR, || {
        // SAFETY: Open MPI passes the variable that was registered; its context is the index.
        let index = unsafe { (*variable).ctx }.addr();
        let Some(row) = COUNTERS.get(index) else {
            return sys::OPAL_ERR_BAD_PARAM;
        };
        let ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let total = ports.iter().map(|counters| (row.read)(counters)).sum();
        // SAFETY: room for one value of the registered type, unsigned long long.
        unsafe { value.cast::<u64>().write_unaligned(total) };
        sys::OPAL_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_place() {
        assert!(TABLE.len() <= ROOM, "{} rows", TABLE.len());
    }

    #[test]
    fn help_names_default_and_bounds() {
        for row in TABLE {
            let help = parameter_help(row);
            assert!(help.contains("Default: ") && help.contains("permitted: "), "{help}");
        }
    }
}
