// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters and counters, as Open MPI's control and performance variables.
//!
//! Called by a face's component: [`register`] in the registration of the component (which `ompi_info` and `MPI_T` run
//! as well, so it touches no device and may run again), [`keep`] and [`tunables`] when the component is opened. A tool may
//! write control variables between; those that it may write later as well are in `variables/now.rs`. The rows come from
//! the engine's tables; nothing is named here. The counts of events, which have a value per source, are in
//! `variables/events.rs`. Grade: setup; a counter is read from any thread, but not in a signal handler: Open MPI has a lock while
//! it reads, and so have the ports, which may be closed meanwhile.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::counters::{COUNTERS, Class, CounterRow, Counters};
use engine::tunables::{Faces, Kind, OutOfBounds, Row, Scope, TABLE, Tunables, Value, Writable};
use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Performance, Storage, Width};

use super::guard;

pub(crate) mod events;
pub(crate) mod now;

/// Rows of the table.
const ROWS: usize = TABLE.len();

/// Where Open MPI writes what the user asked for, and what a tool does, in the tool's thread: one place per row and kind.
struct Places {
    /// Whether Open MPI knows the row. Which rows it does depends on the components that it loads.
    registered: [AtomicBool; ROWS],
    counts: [AtomicU64; ROWS],
    texts: [AtomicPtr<c_char>; ROWS],
    flags: [AtomicU8; ROWS],
    /// Whether a face has read them, and found all permitted.
    is_read: AtomicBool,
}

impl Places {
    /// With the defaults; those of texts are Open MPI's copies.
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

    /// Registers each row whose name begins so.
    ///
    /// # Safety
    /// `component` is the component that is being registered.
    unsafe fn register(&'static self, component: *const sys::mca_base_component_t, prefix: &str) -> Result<(), i32> {
        self.is_read.store(false, Ordering::Relaxed);
        for (index, row) in TABLE.iter().enumerate().filter(|(_, row)| row.faces.prefix() == prefix) {
            // SAFETY: the caller says that `component` is being registered.
            unsafe { self.register_row(component, index, row) }?;
            self.registered[index].store(true, Ordering::Relaxed);
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
        let text;
        let storage = match row.kind {
            Kind::Count { default, .. } => {
                self.counts[index].store(default, Ordering::Relaxed);
                Storage::Count(self.counts[index].as_ptr())
            }
            Kind::Text { default, .. } => {
                text = CString::new(default).map_err(|_| sys::OPAL_ERR_BAD_PARAM)?;
                // Open MPI puts its own copy there before this returns.
                self.texts[index].store(text.as_ptr().cast_mut(), Ordering::Relaxed);
                Storage::Text(self.texts[index].as_ptr())
            }
            Kind::Flag { default } => {
                self.flags[index].store(u8::from(default), Ordering::Relaxed);
                Storage::Flag(self.flags[index].as_ptr())
            }
        };
        let scope = match row.scope {
            Scope::Local => variable::Scope::Local,
            Scope::All => variable::Scope::All,
        };
        // SAFETY: the caller says that `component` is being registered; the places are static.
        unsafe { variable::control(component, row.name, &parameter_help(row), row.level, scope, storage) }
    }

    /// The values of all rows, unchecked.
    ///
    /// # Safety
    /// No tool is writing one.
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

    // Relaxed, here and below: each is read for itself.
    fn count(&self, index: usize) -> u64 {
        self.counts[index].load(Ordering::Relaxed)
    }

    fn flag(&self, index: usize) -> bool {
        self.flags[index].load(Ordering::Relaxed) != 0
    }

    /// # Safety
    /// No tool is writing it.
    unsafe fn text(&self, index: usize) -> String {
        let text = self.texts[index].load(Ordering::Relaxed);
        if text.is_null() {
            return String::new();
        }
        // SAFETY: Open MPI's own NUL-terminated copy, which it frees where a tool writes another, and none does now.
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
    unsafe { events::register(component) }
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

/// What `ompi_info` shows: the sentence, the effect, the default, the bounds, and what tools are to know.
fn parameter_help(row: &Row) -> String {
    let unit = if row.unit.is_empty() { String::new() } else { format!(" {}", row.unit) };
    let scope = if row.scope == Scope::All { " The values of all processes must go together." } else { "" };
    let writable = if row.writable == Writable::Always { " A tool may write it while MPI runs." } else { "" };
    let (default, permitted) = (row.default_value(), row.permitted());
    format!("{} {} Default: {default}{unit}; permitted: {permitted}.{scope}{writable}", row.help, row.effect)
}

fn counter_help(row: &CounterRow) -> String {
    format!("{} Unit: {}; over all ports of the process.", row.help, row.unit)
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

/// Has tools write no parameter from here on but those that they may while MPI runs: a component is opened, and what its
/// ports and its peers are told is the same as long as it is.
pub(crate) fn keep() {
    for row in TABLE.iter().filter(|row| row.writable == Writable::UntilInit) {
        let framework = if row.faces == Faces::Pml { c"pml" } else { c"btl" };
        variable::keep(framework, c"ibex", row.name);
    }
    variable::await_writers();
}

/// The parameters as the user and tools set them, checked for a face that was opened ([`keep`]).
pub(crate) fn tunables(face: Faces) -> Result<Tunables, OutOfBounds> {
    // SAFETY: texts are kept since the face was opened.
    let tunables = Tunables::for_face(face, &unsafe { PLACES.values() })?;
    PLACES.is_read.store(true, Ordering::Relaxed);
    Ok(tunables)
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
    fn places_have_the_defaults_before_anything_is_registered() {
        let places = Places::new();
        // SAFETY: no tool knows of them.
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

    #[test]
    fn help_names_default_and_bounds() {
        for row in TABLE {
            let help = parameter_help(row);
            assert!(help.contains("Default: ") && help.contains("permitted: "), "{help}");
        }
    }
}
