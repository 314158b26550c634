// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of MPI in a trace, of whichever MPI the program uses: `ibex trace` preloads this library, which then
//! overrides the MPI's functions (`mpi-calls/`). Without that nobody calls the functions below, and the trace has no
//! calls. Also where the program stops and resumes the recording (`MPI_Pcontrol`; MPI 3.1, section 14.2.4).
//!
//! Grade: hot while a trace is recorded, else setup. Threads: any. Tests: `hw-tests`.

use std::ffi::c_int;

use ibex_mpi_calls::next::{MISSING, Next, is_called_directly, is_overridden};
use ibex_mpi_calls::{BEGIN, CONTROL, CONTROL_DESCRIPTION, ELEMENTS, END, Recorder, Within, describe};
use ibex_mpi_calls::{enter_recorded, enter_unrecorded, set_stopped};
use ibex_trace::{Chosen, Element, ElementKind, EventType};

use super::{Packed, RECORDING, Recording};

ibex_mpi_calls::override_calls! { mpi_3 by enter_recorded }
ibex_mpi_calls::override_calls! { outside by enter_unrecorded }

/// A call begins that libibex-mpi4.so overrides (`mpi4-calls/`). Returns its number.
#[unsafe(no_mangle)]
extern "C" fn ibex_mpi_call_begins(call: u64) -> u64 {
    enter_recorded(call).into_raw()
}

/// It ends.
#[unsafe(no_mangle)]
extern "C" fn ibex_mpi_call_ends(call: u64, number: u64) {
    drop(Within::from_raw(call, number));
}

/// The event types of calls, if they are recorded.
#[derive(Default)]
pub(super) struct Calls {
    begin: Option<Packed>,
    end: Option<Packed>,
    control: Option<Packed>,
}

/// Returns the chosen types; none if this library does not override an MPI. Readers must know of gaps, so that of stops
/// is always there.
pub(super) fn chosen(by: &Chosen) -> Vec<EventType> {
    if !is_overridden(c"MPI_Init") {
        return Vec::new();
    }
    let described = |name: &str, description, elements: &[&str]| {
        let elements = elements.iter().map(|name| Element::new(name, ElementKind::U64, "")).collect();
        EventType { name: name.to_owned(), description, elements }
    };
    let (of_calls, _) = by.choose(&[BEGIN, END]);
    let all = [(BEGIN, "begins"), (END, "ends")];
    let of_calls = of_calls.into_iter().map(|index| all[index]);
    let mut types: Vec<_> = of_calls.map(|(name, what)| described(name, describe(what), &ELEMENTS)).collect();
    types.push(described(CONTROL, CONTROL_DESCRIPTION.to_owned(), &["level"]));
    types
}

impl Calls {
    /// Notes how the events of a type are packed.
    pub(super) fn add(&mut self, of: &EventType, packed: Packed) {
        let place = match of.name.as_str() {
            BEGIN => &mut self.begin,
            END => &mut self.end,
            _ => &mut self.control,
        };
        *place = Some(packed);
    }
}

/// Returns what a reader has to know about calls that are missing.
pub(super) fn note() -> Option<String> {
    let is_missing = is_overridden(c"MPI_Init") && is_called_directly(c"MPI_Send_c", c"MPI_Init");
    is_missing.then(|| NO_CALLS_OF_MPI_4.to_owned())
}

const NO_CALLS_OF_MPI_4: &str = "The calls that MPI 4 has added, such as MPI_Send_c, are not recorded: `ibex trace` \
                                 has not seen that this MPI has them. Name the program in its command, in place of a \
                                 script.";

/// Records calls from now on.
pub(super) fn record() {
    ibex_mpi_calls::record(&OfProcess);
}

/// The trace of this process.
struct OfProcess;

impl Recorder for OfProcess {
    fn begins(&self, event: [u64; 2]) {
        put(|calls| calls.begin, event);
    }

    fn ends(&self, event: [u64; 2]) {
        put(|calls| calls.end, event);
    }
}

fn put(of: impl Fn(&Calls) -> Option<Packed>, event: [u64; 2]) {
    if let Some(Some(recording)) = RECORDING.get()
        && let Some(packed) = of(&recording.calls)
    {
        recording.put_own(packed, &event);
    }
}

/// Level 0 stops the recording in this process, 1 resumes it, 2 writes the waiting events to the file.
fn control(recording: &Recording, level: c_int) {
    match level {
        0 if !recording.is_stopped() => {
            set_stopped(true);
            put(|calls| calls.control, [0; 2]);
            recording.set_stopped(true);
        }
        1 if recording.is_stopped() => {
            recording.set_stopped(false);
            put(|calls| calls.control, [1, 0]);
            set_stopped(false);
        }
        2 => super::flush(),
        _ => {}
    }
}

/// Exports the function under both of its names. In C it has further arguments, which no MPI uses, and which are not
/// passed on. A definition may omit them, because the C calling conventions pass the first one alike in both cases.
macro_rules! pcontrol {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the MPI's name")]
        unsafe extern "C" fn $name(level: c_int) -> c_int {
            static NEXT: Next = Next::new(stringify!($name));
            let Some(next) = NEXT.find() else { return MISSING };
            if let Some(recording) = super::own() {
                control(recording, level);
            }
            // SAFETY: the function of this name has this argument by the standard.
            let next: unsafe extern "C" fn(c_int, ...) -> c_int = unsafe { std::mem::transmute(next) };
            // SAFETY: the argument is passed on.
            unsafe { next(level) }
        }
    )* };
}

pcontrol! { MPI_Pcontrol PMPI_Pcontrol }
