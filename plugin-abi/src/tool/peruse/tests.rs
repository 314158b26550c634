// SPDX-License-Identifier: MIT OR Apache-2.0
//! What PERUSE callbacks see when events fire, with events that the tests raise themselves, in a process that is MPI
//! alone.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, Once};

use engine::events::{self, MsgArrived, PutComplete, PutStarted, Safety, XferBegin, XferContinue, XferEnd};

use super::{
    Code, PERUSE_Event_activate, PERUSE_Event_comm_callback_set, PERUSE_Event_comm_register, PERUSE_Event_deactivate,
    PERUSE_Event_get, PERUSE_Event_propagate, PERUSE_Event_release, PERUSE_Init, PERUSE_Lock, PERUSE_Unlock, host,
};
use crate::runtime::listeners::Spec;
use crate::tool::communicator::Comm;
use crate::tool::tests::held_up::Thread;

unsafe extern "C" {
    fn PMPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int;
    fn PMPI_Comm_dup(comm: Comm, new: *mut Comm) -> c_int;
    fn PMPI_Comm_free(comm: *mut Comm) -> c_int;
    /// `MPI_COMM_WORLD` is its address.
    static mut ompi_mpi_comm_world: c_void;
}

fn world() -> Comm {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        // SAFETY: once in this process, without arguments.
        assert_eq!(unsafe { PMPI_Init(null_mut(), null_mut()) }, 0);
        assert_eq!(PERUSE_Init(), 0);
    });
    Comm(&raw mut ompi_mpi_comm_world)
}

/// What a callback was told: handle, id, communicator, count, peer, tag, operation.
type Told = (i64, isize, usize, c_int, c_int, c_int, c_int);

unsafe extern "C" fn note(event_h: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: the specification is valid within the callback; the tests give a pointer to what outlives the handle.
    let (spec, told) = unsafe { (&*spec, &*param.cast::<Mutex<Vec<Told>>>()) };
    let told_now = (event_h, id, spec.comm.addr(), spec.count, spec.peer, spec.tag, spec.operation);
    told.lock().expect("no panic").push(told_now);
    let mut event = 0;
    // SAFETY: room for one number. A callback may read its handle (5.1.2).
    assert_eq!(unsafe { PERUSE_Event_get(event_h, &raw mut event) }, 0);
    0
}

fn registered(event: c_int, comm: Comm, told: &Mutex<Vec<Told>>) -> i64 {
    let mut handle = 0;
    let param = std::ptr::from_ref(told).cast_mut().cast();
    // SAFETY: a valid communicator, and room for a handle.
    assert_eq!(unsafe { PERUSE_Event_comm_register(event, comm, Some(note), param, &raw mut handle) }, 0);
    handle
}

fn release(mut handle: i64) {
    // SAFETY: a handle.
    assert_eq!(unsafe { PERUSE_Event_release(&raw mut handle) }, 0);
}

fn context(comm: Comm) -> u32 {
    // SAFETY: a valid communicator.
    unsafe { host::context((&raw const comm).cast()) }.expect("not null") as u32
}

/// A message of 1000 bytes in 100s begins.
fn begin(context: u32, direction: u32) {
    events::raise(Safety::MpiRestricted, || XferBegin {
        message: 77,
        bytes: 100,
        total: 1000,
        context,
        source: 0,
        tag: 5,
        direction,
        ..XferBegin::default()
    });
}

fn taken(told: &Mutex<Vec<Told>>) -> Vec<Told> {
    std::mem::take(&mut *told.lock().expect("no panic"))
}

fn duplicate(comm: Comm) -> Comm {
    let mut copy = Comm(null_mut());
    // SAFETY: a valid communicator, and room for one.
    assert_eq!(unsafe { PMPI_Comm_dup(comm, &raw mut copy) }, 0);
    copy
}

fn free(mut comm: Comm) {
    // SAFETY: a valid communicator.
    assert_eq!(unsafe { PMPI_Comm_free(&raw mut comm) }, 0);
}

/// What is told of [`begin`] in a communicator.
fn told_of(handle: i64, comm: Comm, direction: c_int) -> Told {
    (handle, 77 << 2, comm.0.addr(), 1000, 0, 5, direction)
}

#[test]
fn callbacks_see_their_communicators_events_while_the_window_is_open() {
    let _alone = crate::tool::tests::alone();
    let world = world();
    let told = Mutex::new(Vec::new());
    let handle = registered(5, world, &told);
    let here = context(world);

    begin(here, 0);
    assert_eq!(taken(&told), [], "the window is closed");
    assert_eq!(PERUSE_Event_activate(handle), 0);
    begin(here, 0);
    begin(here, 1);
    begin(here + 1000, 0);
    events::raise(Safety::MpiRestricted, || XferEnd { context: here, ..XferEnd::default() });
    assert_eq!(taken(&told), [told_of(handle, world, 0), told_of(handle, world, 1)]);
    assert_eq!(PERUSE_Event_deactivate(handle), 0);
    begin(here, 0);
    assert_eq!(taken(&told), [], "it is closed again");

    // Several of one event and communicator are independent, in whatever order they are called.
    let second = registered(5, world, &told);
    assert_eq!(PERUSE_Event_activate(second), 0);
    begin(here, 0);
    assert_eq!(taken(&told), [told_of(second, world, 0)]);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    begin(here, 0);
    assert_eq!(taken(&told).len(), 2);
    release(handle);
    begin(here, 0);
    assert_eq!(taken(&told), [told_of(second, world, 0)], "one that was active is released");
    release(second);
}

#[test]
fn a_copy_is_followed_if_it_is_made_and_used_while_the_handle_is_to_be_propagated() {
    let _alone = crate::tool::tests::alone();
    let world = world();
    let told = Mutex::new(Vec::new());
    let handle = registered(5, world, &told);
    let before = duplicate(world);
    let propagate = |mode| {
        assert_eq!(PERUSE_Event_deactivate(handle), 0);
        assert_eq!(PERUSE_Event_propagate(handle, mode), 0);
        assert_eq!(PERUSE_Event_activate(handle), 0);
    };
    propagate(1);
    let copy = duplicate(world);
    let copy_of_copy = duplicate(copy);
    for comm in [world, before, copy, copy_of_copy] {
        begin(context(comm), 0);
    }
    let expected = [world, copy, copy_of_copy].map(|comm| told_of(handle, comm, 0));
    assert_eq!(taken(&told), expected, "not the one that was made before");

    propagate(0);
    let after = duplicate(copy);
    for comm in [copy, copy_of_copy, after, world] {
        begin(context(comm), 0);
    }
    assert_eq!(taken(&told), [told_of(handle, world, 0)], "copies are not shown now");
    propagate(1);
    begin(context(copy), 0);
    begin(context(after), 0);
    assert_eq!(taken(&told), [told_of(handle, copy, 0)], "nor is one that was made meanwhile");

    // One of the copy's own, besides; and none of it once the copy is freed.
    let own = registered(5, copy, &told);
    assert_eq!(PERUSE_Event_activate(own), 0);
    let there = context(copy);
    begin(there, 0);
    assert_eq!(taken(&told).len(), 2);
    free(copy);
    begin(there, 0);
    assert_eq!(taken(&told), []);
    assert_eq!(PERUSE_Event_activate(own), Code::MpiObject as c_int);
    begin(context(copy_of_copy), 0);
    assert_eq!(
        taken(&told),
        [told_of(handle, copy_of_copy, 0)],
        "that it was copied from one that is gone is nothing to it"
    );
    release(handle);
    begin(context(copy_of_copy), 0);
    assert_eq!(taken(&told), []);
    for comm in [before, copy_of_copy, after] {
        free(comm);
    }
}

#[test]
fn all_events_of_a_message_have_one_id_and_no_operation_has_it() {
    let _alone = crate::tool::tests::alone();
    let world = world();
    let told = Mutex::new(Vec::new());
    let handles = [5, 17, 6, 18].map(|event| registered(event, world, &told));
    for handle in handles {
        assert_eq!(PERUSE_Event_activate(handle), 0);
    }
    // Of a message that arrives the request is known from its second piece on.
    let (context, message, total) = (context(world), 33, 300);
    events::raise(Safety::MpiRestricted, || XferBegin { context, message, total, ..XferBegin::default() });
    let (request, total) = (0x7f00_0000_1000, 300);
    events::raise(Safety::MpiRestricted, || XferContinue {
        context,
        request,
        message,
        total,
        ..XferContinue::default()
    });
    events::raise(Safety::MpiRestricted, || XferEnd { context, request, message, total, ..XferEnd::default() });
    // The name of an operation is odd (`rdma.rs`).
    events::raise(Safety::MpiRestricted, || PutStarted { operation: 33, ..PutStarted::default() });
    let ids: Vec<isize> = taken(&told).iter().map(|told| told.1).collect();
    assert_eq!(ids, [132, 132, 132, 33]);
    handles.into_iter().for_each(release);
}

#[test]
fn a_message_that_arrives_has_another_id_than_its_request_and_its_senders_rank() {
    let _alone = crate::tool::tests::alone();
    let told = Mutex::new(Vec::new());
    let handle = registered(9, world(), &told);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    let context = context(world());
    events::raise(Safety::MpiRestricted, || MsgArrived {
        message: 33,
        bytes: 40,
        total: 100,
        context,
        tag: 5,
        ..MsgArrived::default()
    });
    release(handle);
    assert_eq!(taken(&told), [(handle, 134, world().0.addr(), 100, 0, 5, 1)]);
}

#[test]
fn what_belongs_to_no_communicator_is_shown_with_what_the_transport_knows() {
    let _alone = crate::tool::tests::alone();
    let told = Mutex::new(Vec::new());
    let handle = registered(19, world(), &told);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    let bytes = 1 << 40;
    events::raise(Safety::MpiRestricted, || PutComplete { operation: 3, bytes, peer: 0, ..PutComplete::default() });
    events::raise(Safety::MpiRestricted, || PutComplete { operation: 5, bytes: 9, peer: 7, ..PutComplete::default() });
    release(handle);
    let at = world().0.addr();
    // The second is with a process that is not in the communicator.
    assert_eq!(taken(&told), [(handle, 3, at, c_int::MAX, 0, -1, 2), (handle, 5, at, 9, -1, -1, 2)]);
}

/// Releases the handle it is called for, and lets another happen.
unsafe extern "C" fn release_itself(mut event_h: i64, _: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: the test gives a pointer to what outlives the handle; a handle; a specification, with a communicator of
    // the test's.
    unsafe {
        (*param.cast::<Mutex<usize>>()).lock().map(|mut called| *called += 1).expect("no panic");
        begin(context(Comm((*spec).comm.cast())), 0);
        assert_eq!(PERUSE_Event_release(&raw mut event_h), 0);
    }
    assert_eq!(event_h, 0);
    0
}

#[test]
fn a_handle_that_its_callback_releases_is_called_no_more() {
    let _alone = crate::tool::tests::alone();
    let (world, mut handle, called) = (world(), 0, Mutex::new(0_usize));
    let param = (&raw const called).cast_mut().cast();
    // SAFETY: a valid communicator, and room for a handle.
    assert_eq!(unsafe { PERUSE_Event_comm_register(5, world, Some(release_itself), param, &raw mut handle) }, 0);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    begin(context(world), 0);
    begin(context(world), 0);
    assert_eq!(*called.lock().expect("no panic"), 1);
    assert_eq!(PERUSE_Event_activate(handle), Code::EventHandle as c_int);
}

/// Where a callback is, and what it waits for.
struct Gate {
    entered: Sender<()>,
    leave: Receiver<()>,
    left: AtomicBool,
}

/// Says that it is there, waits, and says that it has left.
unsafe extern "C" fn linger(_: i64, _: isize, _: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: the test gives a pointer to what outlives the handle, and one thread alone is in here.
    let gate = unsafe { &*param.cast::<Gate>() };
    gate.entered.send(()).expect("the test waits");
    gate.leave.recv().expect("the test says so");
    gate.left.store(true, Ordering::SeqCst);
    0
}

#[test]
fn once_a_handle_is_released_no_thread_is_in_its_callback() {
    let _alone = crate::tool::tests::alone();
    let (world, mut handle) = (world(), 0);
    let ((entered, has_entered), (let_leave, leave)) = (channel(), channel());
    let gate = Box::new(Gate { entered, leave, left: AtomicBool::new(false) });
    let param = (&raw const *gate).cast_mut().cast();
    // SAFETY: a valid communicator, and room for a handle.
    assert_eq!(unsafe { PERUSE_Event_comm_register(5, world, Some(linger), param, &raw mut handle) }, 0);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    let here = context(world);
    let other = std::thread::spawn(move || begin(here, 0));
    has_entered.recv().expect("the callback is called");
    let ((says, said), (released, has_released)) = (channel(), channel());
    let closing = std::thread::spawn(move || {
        says.send(Thread::this()).expect("the test waits");
        release(handle);
        // Now the tool may free what it gave.
        released.send(gate.left.load(Ordering::SeqCst)).expect("the test waits");
        drop(gate);
    });
    said.recv().expect("it runs").comes_no_further();
    assert!(has_released.try_recv().is_err(), "the release did not wait");
    let_leave.send(()).expect("the callback waits");
    assert_eq!(has_released.recv(), Ok(true));
    closing.join().expect("no panic");
    other.join().expect("no panic");
}

#[test]
fn a_thread_that_is_late_does_not_call_what_a_window_had_that_was_closed() {
    let _alone = crate::tool::tests::alone();
    let (world, mut first) = (world(), 0);
    let ((entered, has_entered), (let_leave, leave)) = (channel(), channel());
    let gate = Gate { entered, leave, left: AtomicBool::new(false) };
    let param = (&raw const gate).cast_mut().cast();
    // SAFETY: a valid communicator, and room for a handle.
    assert_eq!(unsafe { PERUSE_Event_comm_register(5, world, Some(linger), param, &raw mut first) }, 0);
    assert_eq!(PERUSE_Event_activate(first), 0);
    let (old, new) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let second = registered(5, world, &old);
    assert_eq!(PERUSE_Event_activate(second), 0);
    let here = context(world);
    let other = std::thread::spawn(move || begin(here, 0));
    has_entered.recv().expect("the callback is called");
    // The other thread is at the first handle, with the second before it. Who has the lock does not wait for it.
    assert_eq!(PERUSE_Lock(), 0);
    assert_eq!(PERUSE_Event_deactivate(second), 0);
    assert_eq!(PERUSE_Unlock(), 0);
    let param = std::ptr::from_ref(&new).cast_mut().cast();
    assert_eq!(PERUSE_Event_comm_callback_set(second, Some(note), param), 0);
    assert_eq!(PERUSE_Event_activate(second), 0);
    let_leave.send(()).expect("the callback waits");
    other.join().expect("no panic");
    release(first);
    release(second);
    assert_eq!(taken(&old), [], "what was given may be gone");
    assert_eq!(taken(&new), [], "it is not of this window");
}
