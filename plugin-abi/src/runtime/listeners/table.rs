// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of one communicator's listeners. Usually an event has one listener, whose function and argument are in the
//! table; for several it has [`call_each`], which iterates over their list. Grade: setup; hot for
//! [`Listeners::raise`] while a tool listens. Threads and safety: N1 to N4 of `listeners`. Tests: below.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use ibex_ffi::openmpi::sys;

use super::{Event, IS_LOCKED, ProtocolSpec, Spec, SpecPointer, UPCALL};
use crate::runtime::entry::entry4;

/// `peruse_comm_callback_f`
pub(crate) type Function = unsafe extern "C" fn(i64, isize, *mut Spec, *mut c_void) -> c_int;

#[derive(Clone, Copy)]
pub(crate) struct Listener {
    /// Number of the listener; not 0.
    pub(crate) handle: i64,
    pub(crate) function: Function,
    /// Function to call instead, while this is the only listener to its event on its communicator.
    pub(crate) alone: Function,
    pub(crate) param: *mut c_void,
}

/// Placeholder for a listener that a callback has removed.
const TAKEN: Listener = Listener { handle: 0, function: ignore, alone: ignore, param: null_mut() };

/// Listener without a tool: it opens the site of [`Event::Transfer`], whose events the engine delivers.
pub(crate) const NOBODY: Listener = Listener { handle: -1, ..TAKEN };

impl Listener {
    fn is_taken(&self) -> bool {
        self.handle == TAKEN.handle
    }
}

extern "C" fn ignore(_: i64, _: isize, _: *mut Spec, _: *mut c_void) -> c_int {
    0
}

// SAFETY: the pointer is never dereferenced here; PERUSE lets callbacks be invoked in any thread (5.1.2).
unsafe impl Send for Listener {}

#[derive(Clone, Copy)]
struct Called {
    function: Option<Function>,
    handle: i64,
    param: *mut c_void,
}

/// The table of a communicator. The holder of a reference keeps N1 while it uses the table ([`Listeners::of`]).
pub(crate) struct Listeners {
    called: [Cell<Called>; Event::ALL.len()],
    /// No reference to a list is held while a listener is called, because a callback may change the lists.
    of: [Cell<Vec<Listener>>; Event::ALL.len()],
}

impl Listeners {
    pub(super) fn new() -> Self {
        const NOTHING: Called = Called { function: None, handle: 0, param: null_mut() };
        Listeners {
            called: [const { Cell::new(NOTHING) }; Event::ALL.len()],
            of: [const { Cell::new(Vec::new()) }; Event::ALL.len()],
        }
    }

    #[cfg(test)]
    pub(crate) fn of_test(all: impl Iterator<Item = (Event, Listener)>) -> std::rc::Rc<Self> {
        let table = std::rc::Rc::new(Listeners::new());
        for (event, listener) in all {
            table.add(event, listener);
        }
        table
    }

    /// # Safety
    /// The communicator is live, and N1 holds while the reference is used.
    #[inline(always)]
    pub(crate) unsafe fn of<'call>(comm: *mut sys::ompi_communicator_t) -> Option<&'call Listeners> {
        // SAFETY: the caller says that it is live, so by N2 this is null or a table; N1 keeps it until the caller
        // leaves the PML.
        unsafe { (*comm).c_peruse_handles.cast::<Listeners>().as_ref() }
    }

    pub(super) fn add(&self, event: Event, listener: Listener) {
        self.change(event, |list| list.push(listener));
    }

    pub(super) fn set_alone(&self, event: Event, handle: i64, alone: Function) {
        self.change(event, |list| {
            list.iter_mut().filter(|listener| listener.handle == handle).for_each(|listener| listener.alone = alone);
        });
    }

    /// Changes the list of an event, and the function that its site calls.
    fn change<T>(&self, event: Event, change: impl FnOnce(&mut Vec<Listener>) -> T) -> T {
        let place = &self.of[event as usize];
        let mut list = place.take();
        let result = change(&mut list);
        let (function, handle, param) = match list.as_slice() {
            [Listener { handle, alone, param, .. }] if *handle != TAKEN.handle => (Some(*alone), *handle, *param),
            all if all.iter().all(Listener::is_taken) => (None, 0, null_mut()),
            _ => (Some(entry4(call_each)), 0, std::ptr::from_ref(place).cast_mut().cast()),
        };
        place.set(list);
        self.called[event as usize].set(Called { function, handle, param });
        result
    }

    /// Removes the listener with this handle. Within a callback, which may be called from an iteration over the list,
    /// [`TAKEN`] takes its place. Returns the number of listeners removed.
    pub(super) fn take(&self, event: Event, handle: i64, is_within: bool) -> usize {
        self.change(event, |list| {
            let mut taken = 0;
            for listener in list.iter_mut().filter(|listener| listener.handle == handle) {
                *listener = TAKEN;
                taken += 1;
            }
            if !is_within {
                list.retain(|listener| !listener.is_taken());
            }
            taken
        })
    }

    pub(super) fn count(&self) -> usize {
        let of = |event| self.change(event, |list| list.iter().filter(|listener| !listener.is_taken()).count());
        Event::ALL.into_iter().map(of).sum()
    }

    #[inline(always)]
    pub(crate) fn wants(&self, event: Event) -> bool {
        self.called[event as usize].get().function.is_some()
    }

    #[inline(always)]
    pub(crate) fn raise(&self, event: Event, id: u64, spec: &mut Spec) {
        self.called[event as usize].get().call(id as isize, spec.into());
    }

    pub(crate) fn raise_protocol(&self, id: u64, spec: &mut ProtocolSpec) {
        self.called[Event::Protocol as usize].get().call(id as isize, spec.into());
    }
}

impl Called {
    #[inline(always)]
    fn call(self, id: isize, spec: SpecPointer<'_>) {
        let Called { function, handle, param } = self;
        let Some(function) = function else { return };
        if IS_LOCKED.load(Ordering::Relaxed) {
            return call_beside_lock((function, handle), param, id, spec);
        }
        // SAFETY: N4: the function with its argument, a tool's or `call_each`; N3: the specification outlives the call.
        let code = unsafe { function(handle, id, spec.as_ptr(), param) };
        if code != 0 {
            // If the callback has released its own handle, the event's name can no longer be looked up.
            failed(handle, code);
        }
    }
}

/// [`Called::call`] while some thread holds the tool's lock. Gets the fields one by one, so that no other call stores
/// them in memory.
#[cold]
#[inline(never)]
fn call_beside_lock((function, handle): (Function, i64), param: *mut c_void, id: isize, spec: SpecPointer<'_>) {
    let Some(upcall) = UPCALL.get() else { return };
    (upcall.beside_lock)(&mut || {
        // SAFETY: N4: the function with its argument, a tool's or `call_each`; N3: the specification outlives the call.
        let code = unsafe { function(handle, id, spec.as_ptr(), param) };
        if code != 0 {
            failed(handle, code);
        }
    });
}

/// Calls each of several listeners. A callback may change the list, so each is copied before it is called.
extern "C" fn call_each(_: i64, id: isize, spec: SpecPointer<'_>, list: &Cell<Vec<Listener>>) -> c_int {
    spec.set_stamp(0);
    let mut place = 0;
    // SAFETY: N1; the reference ends before a listener is called.
    let at = |place: usize| unsafe { &*list.as_ptr() }.get(place).copied();
    while let Some(Listener { handle, function, param, .. }) = at(place) {
        Called { function: Some(function), handle, param }.call(id, spec);
        place += 1;
    }
    0
}

#[cold]
#[inline(never)]
fn failed(handle: i64, code: c_int) {
    if let Some(upcall) = UPCALL.get() {
        (upcall.failed)(handle, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The calls of listeners, and the table that they are in.
    struct Calls {
        calls: RefCell<Vec<(i64, isize)>>,
        listeners: Listeners,
    }

    impl Calls {
        fn new() -> Self {
            Calls { calls: RefCell::default(), listeners: Listeners::new() }
        }

        fn listener(&self, handle: i64) -> Listener {
            let param = std::ptr::from_ref(self).cast_mut().cast();
            Listener { handle, function: entry4(note), alone: entry4(note_alone), param }
        }
    }

    extern "C" fn note(handle: i64, id: isize, _: SpecPointer<'_>, noted: &Calls) -> c_int {
        noted.calls.borrow_mut().push((handle, id));
        if handle == 2 {
            assert_eq!([2, 3].map(|handle| noted.listeners.take(Event::Arrived, handle, true)), [1, 1]);
        }
        0
    }

    #[test]
    fn raise_calls_each_listener_in_turn_until_it_is_removed_even_by_a_callback() {
        let noted = Calls::new();
        let listeners = &noted.listeners;
        for handle in 1..=4 {
            listeners.add(Event::Arrived, noted.listener(handle));
        }
        let mut spec = Spec { operation: 1, ..Spec::EMPTY };
        for id in 0..2 {
            listeners.raise(Event::Arrived, id, &mut spec);
            listeners.raise(Event::Notify, id, &mut spec);
        }
        assert_eq!(noted.calls.take(), [(1, 0), (2, 0), (4, 0), (1, 1), (4, 1)]);
        let left = (listeners.count(), listeners.take(Event::Arrived, 1, false), listeners.count());
        assert_eq!(left, (2, 1, 1));
        assert!(listeners.wants(Event::Arrived) && !listeners.wants(Event::Notify));
    }

    extern "C" fn note_alone(handle: i64, id: isize, _: SpecPointer<'_>, noted: &Calls) -> c_int {
        noted.calls.borrow_mut().push((-handle, id));
        0
    }

    #[test]
    fn raise_calls_a_single_listener_through_its_own_function() {
        let noted = Calls::new();
        let (listeners, mut spec) = (&noted.listeners, Spec::EMPTY);
        let of = |handle| noted.listener(handle);
        let mut raise = |id| listeners.raise(Event::Complete, id, &mut spec);
        listeners.add(Event::Complete, of(5));
        raise(0);
        listeners.add(Event::Complete, of(6));
        raise(1);
        assert_eq!(listeners.take(Event::Complete, 5, true), 1);
        raise(2);
        assert_eq!((listeners.take(Event::Complete, 6, true), listeners.wants(Event::Complete)), (1, false));
        raise(3);
        listeners.add(Event::Complete, of(7));
        raise(4);
        assert_eq!(noted.calls.take(), [(-5, 0), (5, 1), (6, 1), (6, 2), (7, 4)]);
    }
}
