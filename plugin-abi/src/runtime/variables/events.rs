// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts of events as performance variables, with one value per source. A variable has as many values as there can
//! be sources, because a source may be added while a handle exists; the first value is that of source 0. Called by
//! `variables`. Grade: setup. Threads: any, without a lock. Tests: below, `tests/component.rs` and `tests/tool.rs`.

use std::ffi::{c_int, c_void};

use engine::events::{self, Counts, SOURCES, SourceId};
use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::variable::{self, Bind, Class, Performance, Width};

use crate::runtime::entry::{Out, Values, entry3, entry4};
use crate::runtime::guard;

pub(crate) struct Row {
    /// Name without `btl_ibex_`.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    read: fn(&Counts) -> u64,
}

/// Makes the table: the field of [`Counts`] that a row shows, its name, and its help text.
macro_rules! rows {
    ($($count:ident $name:literal $help:literal;)*) => {
        pub(crate) static ROWS: [Row; [$($name),*].len()] =
            [$(Row { name: $name, help: $help, read: |counts| counts.$count }),*];
    };
}

rows! {
    raised "events_raised" "Events raised.";
    delivered "events_delivered" "Callbacks run: one per event and registration.";
    buffered "events_buffered" "Events put into buffers, to be delivered later.";
    dropped "events_dropped" "Events that registrations lost: a buffer was full.";
    late "events_late" "Events dropped because a later one had been delivered.";
}

pub(super) fn register(component: &sys::mca_base_component_t) -> Result<(), i32> {
    for (index, row) in ROWS.iter().enumerate() {
        let counts = Performance {
            name: row.name,
            help: &format!("{} Unit: events; one value for each source, by its index.", row.help),
            class: Class::Counter,
            width: Width::UnsignedLongLong,
            bind: Bind::NoObject,
            read: entry3(read),
            write: None,
            notify: Some(entry4(notify)),
            index,
        };
        // SAFETY: any thread may call both functions.
        unsafe { variable::performance(component, &counts) }?;
    }
    Ok(())
}

/// `mca_base_notify_fn_t`: writes the number of values.
extern "C" fn notify(
    _: *mut sys::mca_base_pvar_t,
    event: sys::mca_base_pvar_event_t,
    _object: *mut c_void,
    count: Out<'_, c_int>,
) -> c_int {
    if event == sys::MCA_BASE_PVAR_HANDLE_BIND {
        count.give(|| SOURCES as c_int);
    }
    sys::OPAL_SUCCESS
}

/// `mca_base_get_value_fn_t`: reads the count whose index is the variable's context, for each source.
extern "C" fn read(variable: &sys::mca_base_pvar_t, values: Values<'_, SOURCES>, _object: *mut c_void) -> c_int {
    guard::fence("reading a performance variable", sys::OPAL_ERROR, || {
        let Some(row) = ROWS.get(variable.ctx.addr()) else { return sys::OPAL_ERR_BAD_PARAM };
        for (source, value) in values.iter_mut().enumerate() {
            value.write(count(row, source).to_ne_bytes());
        }
        sys::OPAL_SUCCESS
    })
}

fn count(row: &Row, source: usize) -> u64 {
    SourceId::from_index(source).map_or(0, |source| (row.read)(&events::counts(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_reads_its_own_count() {
        let counts = Counts { raised: 1, delivered: 2, buffered: 3, dropped: 4, late: 5 };
        assert_eq!(ROWS.each_ref().map(|row| (row.read)(&counts)), [1, 2, 3, 4, 5]);
    }
}
