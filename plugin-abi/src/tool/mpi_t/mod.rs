// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of `MPI_T` (MPI 4.1, section 15.3.8): every call, each under its `MPI_T_` and its `PMPI_T_` name
//! (macro `calls`). A call checks the arguments, calls the engine, and returns a code. If a tool defines an
//! `MPI_T_` name of its own, the dynamic linker finds the tool's function before ibex's; that function continues with
//! the `PMPI_T_` name. Called by tools; `include/ibex_mpi_t.h` declares the calls. Grade: setup; reading an event is
//! hot and takes no lock. Threads: any. Tests: `tests`, and `tests/tool.rs` with `tests/tool/*.c`.
//!
//! `registration` has the registrations and their callbacks, `instance` the arguments of callbacks, `matching` the
//! registrations for the PML's events, `require_none` the calls of callbacks that may do anything.

mod instance;
mod matching;
pub(super) mod registration;
pub(super) mod require_none;

pub(crate) use matching::keep_alone;

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use engine::events::{self, ConvertedTimestamp, SourceId, TABLE, TypeId, Value};

use super::arguments::{Null, Out, Room, Text};
use super::communicator::Comm;
use super::host::{self, Code, Datatype, Enum, Info, initialized};
use crate::runtime::copies;
use crate::runtime::entry::Opaque;
use crate::runtime::guard::fence;
use registration::{DroppedFunction, EventFunction, FreeFunction, InstancePointer, RegistrationHandle};

const PREFIX: &str = "ibex_";

/// Exports each call under both names. A `delivering` call delivers waiting events at its end, a `plain` call does not.
macro_rules! calls {
    (@end delivering $code:ident) => {
        if $code == Code::Success.number() {
            require_none::deliver();
        }
    };
    (@end plain $code:ident) => {};
    ($( $(#[$doc:meta])* $end:ident fn $name:ident, $profiled:ident($($argument:ident: $type:ty),*) $body:block )*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The standard's conditions: a pointer is null or valid for the call; handles come from the standard's calls.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the standard's name")]
        pub(super) unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
            let code = answer(stringify!($name), || $body);
            calls!(@end $end code);
            code
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// The conditions of the `PMPI_T_` name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the standard's name")]
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the arguments are passed on, with the same conditions.
            unsafe { $profiled($($argument),*) }
        }
    )* };
}

pub(super) enum Answer {
    Code(Code),
    Mpi(c_int),
}

/// Runs the body of a call, unless the interface is not initialised or this ibex is not the first; returns its code.
#[inline(always)]
pub(super) fn answer(name: &'static str, body: impl FnOnce() -> Result<(), Answer>) -> c_int {
    if copies::is_refused() {
        return Code::NotSupported.number();
    }
    // A panic is a defect of ibex, not of the tool; the standard has no code for it.
    let run = || {
        initialized()?;
        body()
    };
    match fence(name, Err(Answer::Code(Code::Invalid)), run) {
        Ok(()) => Code::Success.number(),
        Err(Answer::Code(code)) => code.number(),
        Err(Answer::Mpi(number)) => number,
    }
}

impl From<Code> for Answer {
    fn from(code: Code) -> Answer {
        Answer::Code(code)
    }
}

impl From<Null> for Answer {
    fn from(null: Null) -> Answer {
        Answer::Code(null.into())
    }
}

fn required<T>(pointer: *const T) -> Result<(), Code> {
    if pointer.is_null() { Err(Code::Invalid) } else { Ok(()) }
}

fn event_type(index: c_int) -> Result<TypeId, Code> {
    usize::try_from(index).ok().and_then(TypeId::from_index).ok_or(Code::InvalidIndex)
}

fn source(index: c_int) -> Result<SourceId, Code> {
    usize::try_from(index).ok().and_then(SourceId::from_index).ok_or(Code::InvalidIndex)
}

fn elements(event_type: TypeId) -> Enum {
    static MADE: [OnceLock<Enum>; TABLE.len()] = [const { OnceLock::new() }; TABLE.len()];
    let row = event_type.row();
    *MADE[event_type.index()].get_or_init(|| {
        host::enumeration(&format!("{PREFIX}{}", row.name), row.elements.iter().map(|element| element.name))
    })
}

/// Returns the number of events in a category. All events are in the one that MPI has made for ibex's variables.
fn events_in(category: c_int) -> Result<usize, Answer> {
    let name = host::category(category).map_err(Answer::Mpi)?;
    Ok(if name.ends_with("btl_ibex") { TABLE.len() } else { 0 })
}

calls! {
    delivering fn MPI_T_event_get_num, PMPI_T_event_get_num(num_events: Out<'_, c_int>) {
        Ok(num_events.fill(TABLE.len() as c_int)?)
    }

    /// Describes an event type. Writes at most `*num_elements` elements of the arrays, and then their number to it.
    delivering fn MPI_T_event_get_info, PMPI_T_event_get_info(
        event_index: c_int, name: *mut c_char, name_len: Out<'_, c_int>, verbosity: Out<'_, c_int>,
        datatypes: *mut Datatype, displacements: *mut isize, num_elements: Out<'_, c_int>, enumtype: Out<'_, Enum>,
        info: Out<'_, Info>, desc: *mut c_char, desc_len: Out<'_, c_int>, bind: Out<'_, c_int>
    ) {
        let event_type = event_type(event_index)?;
        let row = event_type.row();
        // SAFETY: the caller says that each length is null or can be read, and that each buffer is null or as long.
        let (name, desc, datatypes, displacements) = unsafe {
            let (name, desc) = (Room::of(name, &name_len)?, Room::of(desc, &desc_len)?);
            (name, desc, Room::of(datatypes, &num_elements)?, Room::of(displacements, &num_elements)?)
        };
        datatypes.put(row.elements.iter().map(|element| host::datatype(element.element_type)));
        displacements.put(row.displacements.iter().map(|&at| at as isize));
        name.give_text(&format!("{PREFIX}{}", row.name));
        desc.give_text(row.description);
        verbosity.give(|| host::verbosity(row.level.into()));
        num_elements.give(|| row.elements.len() as c_int);
        enumtype.give(|| elements(event_type));
        info.give(registration::default_info);
        bind.give(|| host::bind(row.bound.is_some().into()));
        Ok(())
    }

    delivering fn MPI_T_event_get_index, PMPI_T_event_get_index(
        name: Text<'_>, event_index: Out<'_, c_int>
    ) {
        let name = name.required()?;
        event_index.required()?;
        let name = name.to_str().map_err(|_| Code::InvalidName)?;
        let found = name.strip_prefix(PREFIX).and_then(events::type_named).ok_or(Code::InvalidName)?;
        Ok(event_index.fill(found.index() as c_int)?)
    }

    /// Makes a registration for an event type, without callbacks (see `MPI_T_event_register_callback`).
    delivering fn MPI_T_event_handle_alloc, PMPI_T_event_handle_alloc(
        event_index: c_int, obj_handle: *const Comm, info: Info, event_registration: Out<'_, RegistrationHandle>
    ) {
        event_registration.required()?;
        let event_type = event_type(event_index)?;
        // SAFETY: the caller says that `obj_handle` is null or points to an object of the type's kind.
        let handle = unsafe { registration::alloc(event_type, obj_handle, info) }?;
        Ok(event_registration.fill(handle)?)
    }

    /// Changes a registration by info keys.
    delivering fn MPI_T_event_handle_set_info, PMPI_T_event_handle_set_info(
        event_registration: RegistrationHandle, info: Info
    ) {
        Ok(registration::set_info(event_registration, info)?)
    }

    /// Makes an info object with the keys of a registration.
    delivering fn MPI_T_event_handle_get_info, PMPI_T_event_handle_get_info(
        event_registration: RegistrationHandle, info_used: Out<'_, Info>
    ) {
        info_used.required()?;
        let info = registration::info(event_registration)?;
        Ok(info_used.fill(info)?)
    }

    /// Sets, replaces or (null) removes the callback of a registration for one safety level.
    delivering fn MPI_T_event_register_callback, PMPI_T_event_register_callback(
        event_registration: RegistrationHandle, cb_safety: c_int, info: Info, user_data: Opaque,
        event_cb_function: Option<EventFunction>
    ) {
        let _ = info;
        let level = registration::level(cb_safety)?;
        Ok(registration::register(event_registration, level, user_data, event_cb_function)?)
    }

    /// Changes a callback by info keys. There are none.
    delivering fn MPI_T_event_callback_set_info, PMPI_T_event_callback_set_info(
        event_registration: RegistrationHandle, cb_safety: c_int, info: Info
    ) {
        let _ = info;
        Ok(registration::check_callback(event_registration, registration::level(cb_safety)?)?)
    }

    /// Makes an empty info object, as a callback has no keys.
    delivering fn MPI_T_event_callback_get_info, PMPI_T_event_callback_get_info(
        event_registration: RegistrationHandle, cb_safety: c_int, info_used: Out<'_, Info>
    ) {
        info_used.required()?;
        registration::check_callback(event_registration, registration::level(cb_safety)?)?;
        Ok(info_used.fill(Info::with(&[]))?)
    }

    /// Frees a registration; `free_cb_function` is called when none of its callbacks can run any more.
    delivering fn MPI_T_event_handle_free, PMPI_T_event_handle_free(
        event_registration: RegistrationHandle, user_data: Opaque, free_cb_function: Option<FreeFunction>
    ) {
        Ok(registration::free(event_registration, user_data, free_cb_function)?)
    }

    /// Sets, replaces or (null) removes the handler of a registration's lost events.
    delivering fn MPI_T_event_set_dropped_handler, PMPI_T_event_set_dropped_handler(
        event_registration: RegistrationHandle, dropped_cb_function: Option<DroppedFunction>
    ) {
        Ok(registration::set_dropped(event_registration, dropped_cb_function)?)
    }

    /// Reads one element of an event, within its callback. Hot.
    plain fn MPI_T_event_read, PMPI_T_event_read(
        event_instance: InstancePointer, element_index: c_int, buffer: *mut c_void
    ) {
        let value = event_instance.read(|instance| {
            required(buffer)?;
            usize::try_from(element_index).ok().and_then(|index| instance.value(index)).ok_or(Code::InvalidIndex)
        })?;
        // SAFETY: not null; the caller says that there is room for the element.
        unsafe {
            match value {
                Value::I32(value) => buffer.cast::<i32>().write_unaligned(value),
                Value::U32(value) => buffer.cast::<u32>().write_unaligned(value),
                Value::U64(value) => buffer.cast::<u64>().write_unaligned(value),
            }
        }
        Ok(())
    }

    /// Copies all elements of an event to their displacements, within its callback. Hot.
    plain fn MPI_T_event_copy, PMPI_T_event_copy(event_instance: InstancePointer, buffer: *mut c_void) {
        let mut bytes = [0; events::WORDS * 8];
        let extent = event_instance.read(|instance| {
            required(buffer)?;
            let _ = instance.copy_to(&mut bytes);
            Ok(instance.event_type.row().extent)
        })?;
        // SAFETY: the caller says that there is room for the type's extent.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast::<u8>(), extent) };
        Ok(())
    }

    /// Returns the time of an event, in ticks of its source. Hot.
    plain fn MPI_T_event_get_timestamp, PMPI_T_event_get_timestamp(
        event_instance: InstancePointer, event_timestamp: Out<'_, i64>
    ) {
        let timestamp = event_instance.timestamp()? as i64;
        Ok(event_timestamp.fill(timestamp)?)
    }

    plain fn MPI_T_event_get_source, PMPI_T_event_get_source(
        event_instance: InstancePointer, source_index: Out<'_, c_int>
    ) {
        let source = event_instance.source()?.index() as c_int;
        Ok(source_index.fill(source)?)
    }

    delivering fn MPI_T_source_get_num, PMPI_T_source_get_num(num_sources: Out<'_, c_int>) {
        Ok(num_sources.fill(events::source_count() as c_int)?)
    }

    delivering fn MPI_T_source_get_info, PMPI_T_source_get_info(
        source_index: c_int, name: *mut c_char, name_len: Out<'_, c_int>, desc: *mut c_char, desc_len: Out<'_, c_int>,
        ordering: Out<'_, c_int>, ticks_per_second: Out<'_, i64>, max_ticks: Out<'_, i64>, info: Out<'_, Info>
    ) {
        let about = events::source_info(source(source_index)?);
        // SAFETY: the caller says that each length is null or can be read, and that each buffer is null or as long.
        let (name, desc) = unsafe { (Room::of(name, &name_len)?, Room::of(desc, &desc_len)?) };
        name.give_text(&about.name);
        desc.give_text(&about.description);
        ordering.give(|| c_int::from(!about.ordered));
        ticks_per_second.give(|| about.ticks_per_second as i64);
        max_ticks.give(|| about.max_ticks as i64);
        info.give(|| Info::with(&[]));
        Ok(())
    }

    /// Returns the present time of a source's clock.
    plain fn MPI_T_source_get_timestamp, PMPI_T_source_get_timestamp(
        source_index: c_int, timestamp: Out<'_, i64>
    ) {
        timestamp.required()?;
        let now = events::timestamp(source(source_index)?).ok_or(Code::NotSupported)?;
        Ok(timestamp.fill(now as i64)?)
    }

    delivering fn MPI_T_category_get_num_events, PMPI_T_category_get_num_events(
        cat_index: c_int, num_events: Out<'_, c_int>
    ) {
        num_events.required()?;
        let count = events_in(cat_index)?;
        Ok(num_events.fill(count as c_int)?)
    }

    /// Returns the first `len` events of a category.
    delivering fn MPI_T_category_get_events, PMPI_T_category_get_events(
        cat_index: c_int, len: c_int, indices: *mut c_int
    ) {
        let mut len = len;
        if len != 0 {
            required(indices)?;
        }
        let len = Out::to(&mut len);
        // SAFETY: the caller says that `indices` is null or has room for `len` elements.
        unsafe { Room::of(indices, &len) }?.put(0..events_in(cat_index)? as c_int);
        Ok(())
    }
}

/// A call that MPI's documents do not have: converts a source's timestamp, such as that of an adapter's event, to the
/// clock of the sources whose names begin with `host:`. `error` gets the largest possible error, in ticks of the host's
/// clock, in either direction.
#[unsafe(no_mangle)]
pub(super) extern "C" fn ibex_source_to_host(
    source_index: c_int,
    timestamp: i64,
    host_timestamp: Out<'_, i64>,
    error: Out<'_, i64>,
) -> c_int {
    answer("ibex_source_to_host", || {
        let source = source(source_index)?;
        let ticks = u64::try_from(timestamp).map_err(|_| Code::Invalid)?;
        host_timestamp.required()?;
        let ConvertedTimestamp { ticks, error: bound } = events::to_host(source, ticks).ok_or(Code::NotSupported)?;
        error.give(|| i64::try_from(bound).unwrap_or(i64::MAX));
        Ok(host_timestamp.fill(i64::try_from(ticks).unwrap_or(i64::MAX))?)
    })
}
