// SPDX-License-Identifier: MIT OR Apache-2.0
//! PERUSE callbacks with events that the tests raise, in a process that initialises MPI alone.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Once};

use engine::events::{self, PutComplete, PutStarted, Safety};

use super::event_handle::{self, Callback};
use super::supported::{self, SupportedEvent};
use super::{
    Code, PERUSE_Event_activate, PERUSE_Event_comm_callback_set, PERUSE_Event_comm_register, PERUSE_Event_deactivate,
    PERUSE_Event_get, PERUSE_Event_release, PERUSE_Init, PERUSE_Lock, PERUSE_Unlock,
};
use crate::runtime::entry::{Opaque, entry4};
use crate::runtime::listeners::{self, SpecPointer};
use crate::tool::arguments::Out;
use crate::tool::communicator::{self, Comm, TrackedComm};
use crate::tool::tests::held_up;

unsafe extern "C" {
    fn PMPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int;
    /// `MPI_COMM_WORLD` is the address of this variable.
    static mut ompi_mpi_comm_world: c_void;
}

const PUT_STARTED: c_int = 20;

const PUT_COMPLETE: c_int = 21;

pub(in crate::tool) fn world() -> Comm {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        // SAFETY: called once in this process, without arguments.
        assert_eq!(unsafe { PMPI_Init(null_mut(), null_mut()) }, 0);
        assert_eq!(PERUSE_Init(), 0);
    });
    Comm(Opaque(&raw mut ompi_mpi_comm_world))
}

/// Arguments of a callback: handle, id, communicator, count, peer, tag, operation.
type Noted = (i64, isize, usize, c_int, c_int, c_int, c_int);

extern "C" fn note(event_h: i64, id: isize, spec: SpecPointer<'_>, noted: &Mutex<Vec<Noted>>) -> c_int {
    let spec = spec.fields();
    let noted_now = (event_h, id, spec.comm.addr(), spec.count, spec.peer, spec.tag, spec.operation);
    noted.lock().expect("no panic").push(noted_now);
    let mut event = 0;
    // A callback may query its handle (5.1.2).
    assert_eq!(PERUSE_Event_get(event_h, Out::to(&mut event)), 0);
    0
}

type Called<T> = extern "C" fn(i64, isize, SpecPointer<'_>, &T) -> c_int;

fn callback<T>(function: Called<T>, param: &T) -> Callback {
    Callback { function: entry4(function), param: Opaque(std::ptr::from_ref(param).cast_mut().cast()) }
}

fn registered<T>(event: c_int, function: Called<T>, param: &T) -> i64 {
    let (mut handle, Callback { function, param }) = (0, callback(function, param));
    assert_eq!(PERUSE_Event_comm_register(event, world(), Some(function), param, Out::to(&mut handle)), 0);
    handle
}

fn active<T>(event: c_int, function: Called<T>, param: &T) -> i64 {
    let handle = registered(event, function, param);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    handle
}

fn release(mut handle: i64) {
    assert_eq!(PERUSE_Event_release(Some(&mut handle)), 0);
}

fn put() {
    events::raise(Safety::MpiRestricted, || PutStarted { operation: 77, bytes: 1000, ..PutStarted::default() });
}

fn taken(noted: &Mutex<Vec<Noted>>) -> Vec<Noted> {
    std::mem::take(&mut *noted.lock().expect("no panic"))
}

fn noted_of(handle: i64) -> Noted {
    (handle, 77, world().as_ptr().addr(), 1000, 0, -1, 2)
}

#[test]
fn callbacks_see_events_while_the_window_is_open() {
    let _alone = crate::tool::tests::alone();
    let noted = Mutex::new(Vec::new());
    let handle = registered(PUT_STARTED, note, &noted);

    put();
    assert_eq!(taken(&noted), [], "the window is closed");
    assert_eq!(PERUSE_Event_activate(handle), 0);
    put();
    events::raise(Safety::MpiRestricted, PutComplete::default);
    assert_eq!(taken(&noted), [noted_of(handle)]);
    assert_eq!(PERUSE_Event_deactivate(handle), 0);
    put();
    assert_eq!(taken(&noted), [], "it is closed again");

    // Several handles for the same event and communicator are independent, and called in any order.
    let second = active(PUT_STARTED, note, &noted);
    put();
    assert_eq!(taken(&noted), [noted_of(second)]);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    put();
    assert_eq!(taken(&noted).len(), 2);
    release(handle);
    put();
    assert_eq!(taken(&noted), [noted_of(second)], "one that was active is released");
    release(second);
}

#[test]
fn every_communicator_shows_one_sided_operations_with_the_fields_that_the_transport_knows() {
    let _alone = crate::tool::tests::alone();
    let noted = Mutex::new(Vec::new());
    let handle = active(PUT_COMPLETE, note, &noted);
    let bytes = 1 << 40;
    events::raise(Safety::MpiRestricted, || PutComplete { operation: 3, bytes, peer: 0, ..PutComplete::default() });
    events::raise(Safety::MpiRestricted, || PutComplete { operation: 5, bytes: 9, peer: 7, ..PutComplete::default() });
    release(handle);
    let at = world().as_ptr().addr();
    // The second put is to a process that is not in the communicator.
    assert_eq!(taken(&noted), [(handle, 3, at, c_int::MAX, 0, -1, 2), (handle, 5, at, 9, -1, -1, 2)]);
}

extern "C" fn release_itself(mut event_h: i64, _: isize, _: SpecPointer<'_>, called: &Mutex<usize>) -> c_int {
    *called.lock().expect("no panic") += 1;
    put();
    assert_eq!(PERUSE_Event_release(Some(&mut event_h)), 0);
    assert_eq!(event_h, 0);
    0
}

#[test]
fn a_callback_that_releases_its_handle_is_called_no_more() {
    let _alone = crate::tool::tests::alone();
    let called = Mutex::new(0_usize);
    let handle = active(PUT_STARTED, release_itself, &called);
    put();
    put();
    assert_eq!(*called.lock().expect("no panic"), 1);
    assert_eq!(PERUSE_Event_activate(handle), Code::EventHandle as c_int);
}

// They return an error if a communicator is not valid, by MPI's default for its own checks.
unsafe extern "C" {
    safe fn PMPI_Comm_dup(comm: Comm, copy: &mut Comm) -> c_int;
    safe fn PMPI_Comm_free(comm: &mut Comm) -> c_int;
}

/// Makes a tracked communicator, which the test frees.
fn tracked() -> (Comm, Arc<TrackedComm>) {
    let mut comm = Comm(Opaque(null_mut()));
    assert_eq!(PMPI_Comm_dup(world(), &mut comm), 0);
    (comm, communicator::track(comm).expect("MPI lets it"))
}

fn activate() -> &'static SupportedEvent {
    supported::EVENTS.iter().find(|event| event.name == c"PERUSE_COMM_REQ_ACTIVATE").expect("it is in the list")
}

#[test]
fn a_handle_made_while_another_thread_frees_its_communicator_answers_that_it_is_freed() {
    let _alone = crate::tool::tests::alone();
    let (mut comm, tracked) = tracked();
    let (freed, noted) = (comm, Mutex::new(Vec::<Noted>::new()));
    assert_eq!(PMPI_Comm_free(&mut comm), 0);
    let callback = callback(note, &noted);
    for event in [activate(), supported::numbered(PUT_STARTED).expect("it is supported")] {
        let mut handle = event_handle::new(event, freed, Arc::clone(&tracked), callback);
        assert_eq!(PERUSE_Event_activate(handle), Code::MpiObject as c_int);
        assert_eq!(PERUSE_Event_release(Some(&mut handle)), Code::MpiObject as c_int);
        assert_eq!(PERUSE_Event_activate(handle), Code::EventHandle as c_int);
    }
    put();
    assert_eq!(taken(&noted), []);
}

#[test]
fn a_window_that_opens_while_another_thread_frees_its_communicator_listens_to_nothing() {
    let _alone = crate::tool::tests::alone();
    let (mut comm, tracked) = tracked();
    let noted = Mutex::new(Vec::new());
    let callback = callback(note, &noted);
    let mut number = event_handle::new(activate(), comm, tracked, callback);
    // The state of a call that is about to open the window.
    let handle = event_handle::find(number).expect("it is there");
    assert_eq!(PMPI_Comm_free(&mut comm), 0);
    handle.activate();
    assert!(!listeners::is_anybody());
    assert_eq!(PERUSE_Event_release(Some(&mut number)), Code::MpiObject as c_int);
}

struct Gate {
    entered: Sender<()>,
    leave: Receiver<()>,
    left: AtomicBool,
}

extern "C" fn linger(_: i64, _: isize, _: SpecPointer<'_>, gate: &Gate) -> c_int {
    gate.entered.send(()).expect("the test waits");
    gate.leave.recv().expect("the test says so");
    gate.left.store(true, Ordering::SeqCst);
    0
}

#[test]
fn once_a_handle_is_released_no_thread_is_in_its_callback() {
    let _alone = crate::tool::tests::alone();
    let ((entered, has_entered), (let_leave, leave)) = (channel(), channel());
    let gate = Box::new(Gate { entered, leave, left: AtomicBool::new(false) });
    let handle = active(PUT_STARTED, linger, &*gate);
    let other = std::thread::spawn(put);
    has_entered.recv().expect("the callback is called");
    let closing = held_up::begin(move || {
        release(handle);
        // Now the tool may free the callback's data.
        gate.left.load(Ordering::SeqCst)
    });
    assert!(!closing.is_finished(), "the release did not wait");
    let_leave.send(()).expect("the callback waits");
    assert!(closing.join().expect("no panic"), "the callback had not returned");
    other.join().expect("no panic");
}

#[test]
fn a_late_thread_does_not_call_the_callback_of_a_closed_window() {
    let _alone = crate::tool::tests::alone();
    let ((entered, has_entered), (let_leave, leave)) = (channel(), channel());
    let gate = Gate { entered, leave, left: AtomicBool::new(false) };
    let first = active(PUT_STARTED, linger, &gate);
    let (old, new) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let second = active(PUT_STARTED, note, &old);
    let other = std::thread::spawn(put);
    has_entered.recv().expect("the callback is called");
    // The other thread is at the first handle, the second one is to come. The holder of the lock does not wait for it.
    assert_eq!(PERUSE_Lock(), 0);
    assert_eq!(PERUSE_Event_deactivate(second), 0);
    assert_eq!(PERUSE_Unlock(), 0);
    let Callback { function, param } = callback(note, &new);
    assert_eq!(PERUSE_Event_comm_callback_set(second, Some(function), param), 0);
    assert_eq!(PERUSE_Event_activate(second), 0);
    let_leave.send(()).expect("the callback waits");
    other.join().expect("no panic");
    release(first);
    release(second);
    assert_eq!(taken(&old), [], "the data of the old callback may be gone");
    assert_eq!(taken(&new), [], "the event came before this window");
}
