// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the events of sends: when their transfers begin and end, their bytes, and their protocols. Listens to the
//! receiving process only after the match, because the events of arriving messages name a datatype of Open MPI's.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::iter::once;
use std::mem::take;
use std::ptr::null;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use engine::events::{self, EventInstance, Options, Registration, Safety, Value};
use engine::messenger::path_taken::{Protocol, Reason};

use super::super::request::Owner;
use super::*;
use crate::runtime::device::fabric::Fabric;
use crate::runtime::listeners::{Event, Listener, Listeners, NOBODY, ProtocolSpec, Spec};
use crate::runtime::watch::SAFETY;
use crate::tool;

/// An event of a request; [`Event::Protocol`] with its content.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    Of(Event),
    Goes(Protocol, Reason),
}

use Event::{Activate, Complete, XferBegin, XferContinue, XferEnd};
use Seen::{Goes, Of};

const HEARD: [Event; 6] = [Activate, Event::Protocol, XferBegin, XferContinue, XferEnd, Complete];

#[derive(Default)]
struct Heard {
    /// Each event with the number of its request.
    all: RefCell<Vec<(isize, Seen)>>,
    fabric: Fabric,
    /// Whether a port had a message from a send buffer when a transfer began.
    is_late: Cell<bool>,
}

/// A listener to the first communicator of process `at`.
struct Listening<'world> {
    world: &'world World,
    at: usize,
    heard: Rc<Heard>,
    /// Lives as long as the communicator refers to it.
    _table: Rc<Listeners>,
}

unsafe extern "C" fn note(handle: i64, id: isize, spec: *mut Spec, heard: *mut c_void) -> c_int {
    let event = HEARD[handle as usize - 1];
    let seen = if event == Event::Protocol {
        // SAFETY: N3: a `ProtocolSpec`.
        let path = unsafe { (*spec.cast::<ProtocolSpec>()).path };
        Goes(path.protocol, path.reason)
    } else {
        Of(event)
    };
    // SAFETY: `Listening::to` gave this address; it is alive as long as the listener is.
    let heard = unsafe { &*heard.cast::<Heard>() };
    heard.all.borrow_mut().push((id, seen));
    heard.is_late.set(heard.is_late.get() || event == XferBegin && heard.fabric.has_copies());
    0
}

impl<'world> Listening<'world> {
    fn to(world: &'world World, at: usize) -> Self {
        let heard = Rc::new(Heard { fabric: world.fabric.clone(), ..Heard::default() });
        let param = Rc::as_ptr(&heard).cast_mut().cast();
        let listeners = (1..).zip(HEARD).map(|(handle, event)| {
            let listener = Listener { handle, function: note, alone: note, param };
            (event, listener)
        });
        let table = Listeners::of_test(listeners);
        world.listen(at, 0, Rc::as_ptr(&table));
        Listening { world, at, heard, _table: table }
    }

    /// Returns the events since the last call.
    fn seen(&self) -> Vec<Seen> {
        self.heard.all.take().into_iter().map(|(_, seen)| seen).collect()
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.world.listen(self.at, 0, null());
    }
}

const WATCHED: How = How { owner: Owner::WatchedCall, ..How::CALL };

/// Sends a long message, which process `refusing` cannot register. Returns its events before and after its receive.
fn long(refusing: Option<usize>) -> [Vec<Seen>; 2] {
    let world = World::new(TWO);
    let listening = Listening::to(&world, 0);
    if let Some(refusing) = refusing {
        world.fabric.refuse_memory(refusing, true);
    }
    let bytes = content(3, LONG);
    let send = world.send(0, (1, 0, 7), Mode::Standard, WATCHED, &bytes).expect("it is announced");
    world.settle();
    let before = listening.seen();
    let receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(7) }, How::CALL, LONG);
    world.settle();
    assert!(send.is_finished());
    check(&receive, (0, 7), &bytes);
    assert!(!listening.heard.is_late.get(), "its transfer begins before a port has any of it");
    [before, listening.seen()]
}

#[test]
fn a_send_that_its_receiver_reads_reports_the_protocol_first_and_its_transfer_with_the_answer() {
    let [before, then] = long(None);
    assert_eq!(before, [Of(Activate), Goes(Protocol::Read, Reason::Size)]);
    assert_eq!(then, [Of(XferBegin), Of(XferEnd), Of(Complete)]);
}

#[test]
fn a_copied_send_begins_with_its_first_fragment_and_reports_a_second_protocol_if_it_announced_a_read() {
    let goes = Goes(Protocol::Fragments, Reason::NotRegistered);
    for (refusing, announced, answered) in [(0, goes, None), (1, Goes(Protocol::Read, Reason::Size), Some(goes))] {
        let [before, mut then] = long(Some(refusing));
        assert_eq!(before, [Of(Activate), announced]);
        let events = then.len();
        then.dedup();
        let copied = [Of(XferBegin), Of(XferContinue), Of(XferEnd), Of(Complete)];
        assert_eq!(then, answered.into_iter().chain(copied).collect::<Vec<_>>());
        assert!(events > then.len(), "one fragment after the other");
    }
}

#[test]
fn a_short_send_that_waited_for_room_goes_inside_its_work_request_in_its_turn() {
    let world = World::new(TWO);
    let listening = Listening::to(&world, 0);
    // The first waits for the connection, the others behind it: more than a queue pair takes.
    let send = |message| world.send(0, (1, 0, 7), Mode::Standard, WATCHED, &content(message, 8));
    let sends: Vec<_> = (0..3 * SIZES.depth as usize).map(|message| send(message).expect("it waits")).collect();
    assert!(listening.heard.all.borrow().iter().all(|(_, seen)| *seen == Of(Activate)), "none has begun");
    world.settle();
    for (message, send) in sends.iter().enumerate() {
        assert!(send.is_finished());
        let receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(7) }, How::CALL, 8);
        check(&receive, (0, 7), &content(message, 8));
    }
    let all = listening.heard.all.take();
    let inline = Goes(Protocol::Inline, Reason::Size);
    for (id, _) in all.iter().filter(|(_, seen)| *seen == Of(Activate)) {
        let of: Vec<_> = all.iter().filter(|(of, _)| of == id).map(|(_, seen)| *seen).collect();
        assert_eq!(of, [Of(Activate), Of(XferBegin), inline, Of(XferEnd), Of(Complete)]);
    }
    assert_eq!(all.len(), 5 * sends.len());
    world.is_at_rest();
}

#[test]
fn each_send_of_a_held_back_process_begins_once_and_ends_once_even_an_empty_one() {
    let world = World::new(Shape { unexpected_memory: 600, ..TWO });
    let listening = Listening::to(&world, 0);
    let length = |message: usize| LENGTHS[message % 8];
    let mut sends = Vec::new();
    for message in 0..24 {
        sends.extend(world.send(0, (1, 0, 1), Mode::Standard, WATCHED, &content(message, length(message))));
        world.settle();
    }
    for message in 0..24 {
        let receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(1) }, How::CALL, length(message));
        world.settle();
        check(&receive, (0, 1), &content(message, length(message)));
    }
    assert!(sends.iter().all(Operation::is_finished));
    let all = listening.heard.all.take();
    let of = |id| all.iter().filter(move |(of, _)| *of == id).map(|(_, seen)| *seen).collect::<Vec<_>>();
    let announced = |protocol| all.iter().filter(move |(_, seen)| *seen == Goes(protocol, Reason::HeldBack));
    assert!(announced(Protocol::Inline).count() > 0 && announced(Protocol::Fragments).count() > 0, "{all:?}");
    for (id, seen) in announced(Protocol::Inline).chain(announced(Protocol::Fragments)) {
        assert_eq!(of(*id), [Of(Activate), *seen, Of(XferBegin), Of(XferEnd), Of(Complete)]);
    }
}

/// Type, offset and bytes of a transfer event.
type Step = (&'static str, u64, u64);

/// Returns the transfer events that are raised meanwhile.
fn heard(meanwhile: impl FnOnce()) -> Vec<Step> {
    let _alone = tool::tests::lock();
    let steps = Arc::<Mutex<Vec<Step>>>::default();
    let registrations = ["xfer_begin", "xfer_continue", "xfer_end"].map(|name| {
        let steps = Arc::clone(&steps);
        let note = move |event: &EventInstance, _: &Registration, _: Safety| {
            let [Some(Value::U64(offset)), Some(Value::U64(bytes))] = [2, 3].map(|element| event.value(element)) else {
                panic!("an offset and bytes");
            };
            steps.lock().expect("no panic").push((name, offset, bytes));
        };
        let registration = events::register(events::type_named(name).expect("it exists"), Options::default());
        events::set_callback(&registration, Safety::ThreadSafe, Some(Arc::new(note))).expect("it is not freed");
        registration
    });
    meanwhile();
    events::catch_up(SAFETY);
    for registration in registrations {
        events::free(&registration, SAFETY, None).expect("it is not freed");
    }
    take(&mut *steps.lock().expect("no panic"))
}

/// Sends a long message to a receive with this `room`. Returns the transfer events of the send. `refusing` as in
/// [`long`].
fn steps(refusing: Option<usize>, room: usize) -> Vec<Step> {
    heard(|| {
        let world = World::of_a_lone_test(TWO);
        let table = Listeners::of_test(once((Event::Transfer, NOBODY)));
        world.listen(0, 0, Rc::as_ptr(&table));
        if let Some(refusing) = refusing {
            world.fabric.refuse_memory(refusing, true);
        }
        let send = world.send(0, (1, 0, 7), Mode::Standard, WATCHED, &content(3, LONG)).expect("it is announced");
        let receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(7) }, How::CALL, room);
        world.settle();
        assert!(send.is_finished() && receive.is_finished());
        world.listen(0, 0, null());
    })
}

#[test]
fn the_events_of_a_send_count_the_bytes_that_its_receive_read_or_that_it_sent_as_copies() {
    for room in [0, READ as usize - 1, 2 * READ as usize + 1, LONG] {
        assert_eq!(steps(None, room), [("xfer_begin", 0, 0), ("xfer_end", 0, room as u64)]);
    }
    let copied = steps(Some(0), 8);
    let sent = copied[0].2;
    assert!((8..LONG as u64).contains(&sent), "{copied:?}");
    assert_eq!(copied, [("xfer_begin", 0, sent), ("xfer_end", sent, 0)]);
}

#[test]
fn the_events_of_a_receive_count_each_byte_once_even_if_copies_replace_its_failed_read() {
    let bytes = content(3, 1500);
    let steps = heard(|| {
        let world = World::of_a_lone_test(Shape { per_host: 2, ..TWO });
        shared_memory::READ.set([sys::OPAL_SUCCESS, sys::OPAL_ERROR]);
        let send = world.send(0, (1, 0, 7), Mode::Standard, How::CALL, &bytes).expect("it is announced");
        let receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(7) }, WATCHED, bytes.len());
        world.poll(1);
        assert!(receive.is_under_way(), "it has begun to read");
        let table = Listeners::of_test(once((Event::Transfer, NOBODY)));
        world.listen(1, 0, Rc::as_ptr(&table));
        world.settle();
        assert!(send.is_finished());
        check(&receive, (0, 7), &bytes);
        world.listen(1, 0, null());
    });
    assert_eq!((steps[0].0, steps[0].1), ("xfer_continue", 0), "{steps:?}");
    assert_eq!(steps.iter().map(|step| step.2).sum::<u64>(), bytes.len() as u64, "{steps:?}");
}
