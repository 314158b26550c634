// SPDX-License-Identifier: MIT OR Apache-2.0
//! What PERUSE callbacks see when events fire, with events that the tests raise themselves, in a process that is MPI alone.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, Once};

use engine::events::{self, PutComplete, Safety, XferBegin, XferEnd};

use super::handle::Spec;
use super::{
    Code, PERUSE_Event_activate, PERUSE_Event_comm_register, PERUSE_Event_deactivate, PERUSE_Event_get,
    PERUSE_Event_propagate, PERUSE_Event_release, PERUSE_Init, host,
};
use crate::tool::communicator::Comm;

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
    let told_now = (event_h, id, spec.comm.0.addr(), spec.count, spec.peer, spec.tag, spec.operation);
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

#[test]
fn callbacks_see_their_communicators_events_while_the_window_is_open_and_copies_where_asked() {
    let _alone = crate::tool::tests::alone();
    let world = world();
    let told = Mutex::new(Vec::new());
    let handle = registered(5, world, &told);
    let take = || std::mem::take(&mut *told.lock().expect("no panic"));
    let begin = |context, direction, request| {
        events::raise(Safety::MpiRestricted, || XferBegin {
            request,
            message: 77,
            bytes: 100,
            total: 1000,
            context,
            source: 0,
            tag: 5,
            direction,
            ..XferBegin::default()
        });
    };
    let here = context(world);

    begin(here, 0, 9);
    assert_eq!(take(), [], "the window is closed");
    assert_eq!(PERUSE_Event_activate(handle), 0);
    begin(here, 0, 9);
    begin(here, 1, 0);
    begin(here + 1000, 0, 9);
    events::raise(Safety::MpiRestricted, || XferEnd { context: here, ..XferEnd::default() });
    let at = world.0.addr();
    assert_eq!(take(), [(handle, 9, at, 1000, 0, 5, 0), (handle, 77, at, 1000, 0, 5, 1)]);

    // A copy is another communicator, unless it is to be followed.
    let mut copy = Comm(null_mut());
    // SAFETY: a valid communicator, and room for one.
    assert_eq!(unsafe { PMPI_Comm_dup(world, &raw mut copy) }, 0);
    let there = context(copy);
    begin(there, 0, 9);
    assert_eq!(take(), []);
    assert_eq!(PERUSE_Event_deactivate(handle), 0);
    assert_eq!(PERUSE_Event_propagate(handle, 1), 0);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    begin(there, 0, 9);
    begin(here, 0, 9);
    assert_eq!(take(), [(handle, 9, copy.0.addr(), 1000, 0, 5, 0), (handle, 9, at, 1000, 0, 5, 0)]);

    // One of the copy's own, besides; and none of it once the copy is freed.
    let second = registered(5, copy, &told);
    assert_eq!(PERUSE_Event_activate(second), 0);
    begin(there, 0, 9);
    assert_eq!(take().len(), 2);
    // SAFETY: a valid communicator.
    assert_eq!(unsafe { PMPI_Comm_free(&raw mut copy) }, 0);
    begin(there, 0, 9);
    assert_eq!(take(), []);
    assert_eq!(PERUSE_Event_activate(second), Code::MpiObject as c_int);
    release(handle);
    begin(here, 0, 9);
    assert_eq!(take(), []);
}

#[test]
fn what_belongs_to_no_communicator_is_shown_with_what_the_transport_knows() {
    let _alone = crate::tool::tests::alone();
    let told = Mutex::new(Vec::new());
    let handle = registered(19, world(), &told);
    assert_eq!(PERUSE_Event_activate(handle), 0);
    events::raise(Safety::MpiRestricted, || PutComplete { operation: 3, bytes: 1 << 40, ..PutComplete::default() });
    release(handle);
    let told = told.into_inner().expect("no panic");
    assert_eq!(told, [(handle, 3, world().0.addr(), c_int::MAX, -1, -1, 2)]);
}
