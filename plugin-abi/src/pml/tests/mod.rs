// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the PML in a box: one process simulates several, over a fabric in memory, without Open MPI and a device.
//!
//! `world` simulates the processes (`process`), and `histories` checks random histories (`steps`) against MPI's rules
//! (`ibex_simulation::model`). This file tests each protocol alone, and `send_events` the events of sends. `libmpi` and
//! `shared_memory` stand in for Open MPI, so all tests run under Miri: built for Open MPI 4.1, they call no C. Blocking
//! calls do not wait here. No test here covers other events or several threads.

mod histories;
pub(crate) mod libmpi;
mod operation;
mod process;
mod send_events;
mod shared_memory;
mod steps;
mod world;

use std::ptr::NonNull;

use super::host::as_buffer;
use super::instance::State;
use super::module::{Code, persistent};
use super::request::{Handle, Mode};
use crate::runtime::shared_memory::OTHER;
use crate::runtime::token::{Face, RecordKind};
use engine::messenger::header::{EAGER_SIZE, Header, MAX_SIZE, Match};
use engine::messenger::host::{Memory, Record};
use engine::messenger::rails::send_buffers::BufferId;
use engine::transport::Token;
use ibex_ffi::openmpi::sys;
use libmpi::{BLOCK, JOB_HAS_ENDED, REFUSALS};
use operation::{How, Operation, Status, laid_out};
use process::{EAGER, SIZES, Shape};
use world::{For, World};

/// Longest RDMA read in worlds with one port per process, bytes.
const READ: u32 = 512;

/// Returns the bytes of a message: lines of [`LINE`] equal bytes, which differ between lines and between messages. Miri
/// would take too long to fill each byte alone.
fn content(message: usize, length: usize) -> Vec<u8> {
    let lines =
        (0..length.div_ceil(LINE)).map(|line| [((message * 151) ^ (line * 29)).wrapping_add(line >> 5) as u8; LINE]);
    let mut bytes = lines.collect::<Vec<_>>().concat();
    bytes.truncate(length);
    bytes
}

const LINE: usize = if cfg!(miri) { 512 } else { 16 };

/// Lengths around each bound, bytes: none; kept by the receiver without an allocation (`arrived::SHORT`); inside the
/// work request; copied to a send buffer; one read; several reads; more reads and pieces than may be in flight.
const LENGTHS: [usize; 16] = [
    0,
    1,
    8,
    40,
    41,
    SIZES.inline as usize - EAGER_SIZE,
    SIZES.inline as usize - EAGER_SIZE + 1,
    EAGER - MAX_SIZE,
    EAGER - MAX_SIZE + 1,
    EAGER,
    SIZES.receive as usize,
    READ as usize - 1,
    READ as usize,
    READ as usize + 1,
    2 * READ as usize + 1,
    6 * READ as usize,
];

/// Step through [`LENGTHS`]: Miri is a thousand times slower, and tests one length of each protocol.
const STRIDE: usize = if cfg!(miri) { 7 } else { 1 };

const TWO: Shape = Shape { processes: 2, per_host: 1, rails: 1, read_size: READ, unexpected_memory: 1 << 20 };

/// Asserts that a receive got the whole message, and that nothing was written behind it.
fn check(operation: &Operation, (source, tag): (usize, i32), bytes: &[u8]) {
    assert!(operation.is_finished());
    let (length, error) = (bytes.len(), sys::OPAL_SUCCESS);
    let status = Status { source: source as i32, tag, length, error, is_cancelled: false };
    assert_eq!(operation.status(), status);
    assert_eq!(operation.bytes.copy(), laid_out(bytes, bytes.len(), false));
}

/// Sends one message from each of two processes to the other, and one from process 0 to itself. `is_expected`: the
/// receives are posted first.
fn exchange(world: &World, mode: Mode, length: usize, is_expected: bool) {
    let pairs = [(0, 1), (1, 0), (0, 0)];
    let receive = |&(from, to): &(usize, usize)| {
        (to, world.receive(to, For { comm: 0, from: Some(from), tag: Some(7) }, How::CALL, length))
    };
    let bytes = |from: usize, to: usize| content(2 * from + to, length);
    let mut receives: Vec<_> = if is_expected { pairs.iter().map(receive).collect() } else { Vec::new() };
    let sends: Vec<_> = pairs
        .iter()
        .filter_map(|&(from, to)| world.send(from, (to, 0, 7), mode, How::CALL, &bytes(from, to)))
        .collect();
    if !is_expected {
        world.settle();
        receives = pairs.iter().map(receive).collect();
    }
    world.settle();
    assert!(sends.iter().all(Operation::is_finished), "{length} bytes");
    for ((to, operation), (from, _)) in receives.iter().zip(pairs) {
        check(operation, (from, 7), &bytes(from, *to));
    }
    world.is_at_rest();
}

#[test]
fn a_message_of_each_length_and_mode_arrives_whether_it_is_expected_or_not() {
    for per_host in [1, 2] {
        let world = World::new(Shape { per_host, ..TWO });
        for length in LENGTHS.into_iter().step_by(STRIDE) {
            for mode in
                [Mode::Standard, Mode::Synchronous, Mode::Buffered].into_iter().step_by(if cfg!(miri) { 2 } else { 1 })
            {
                exchange(&world, mode, length, true);
                exchange(&world, mode, length, false);
            }
        }
    }
}

#[test]
fn a_message_whose_memory_either_side_cannot_register_arrives_as_copies() {
    for refusing in 0..2 {
        let world = World::new(TWO);
        world.fabric.refuse_memory(refusing, true);
        exchange(&world, Mode::Standard, 3 * READ as usize, true);
        exchange(&world, Mode::Standard, 3 * READ as usize, false);
    }
}

#[test]
fn a_receive_truncates_a_message_that_is_too_long_and_reports_it() {
    let world = World::new(TWO);
    for length in LENGTHS.into_iter().step_by(STRIDE).filter(|length| *length > 0) {
        for room in [0, length / 2, length - 1] {
            let bytes = content(5, length);
            let send = world.send(0, (1, 0, 3), Mode::Standard, How::CALL, &bytes);
            let receive = world.receive(1, For { comm: 0, from: None, tag: None }, How::CALL, room);
            world.settle();
            assert!(send.is_none_or(|send| send.is_finished()) && receive.is_finished());
            let error = sys::MPI_ERR_TRUNCATE as i32;
            assert_eq!(receive.status(), Status { source: 0, tag: 3, length, error, is_cancelled: false });
            assert_eq!(receive.bytes.copy(), laid_out(&bytes[..room], room, false));
        }
    }
    world.is_at_rest();
}

const GAPS: How = How { has_gaps: true, ..How::CALL };
const LONG: usize = 6 * READ as usize;

#[test]
fn a_receive_that_cannot_unpack_its_data_fails_and_writes_no_byte() {
    for (from, length) in [(0, BLOCK), (0, LONG), (1, BLOCK)] {
        let world = World::new(TWO);
        let receive = world.receive(1, For { comm: 0, from: Some(from), tag: Some(7) }, GAPS, length);
        REFUSALS.set(1);
        let send = world.send(from, (1, 0, 7), Mode::Standard, How::CALL, &content(3, length));
        world.settle();
        assert!(send.is_none_or(|send| send.is_finished()) && receive.is_finished());
        assert_eq!(receive.status().error, sys::MPI_ERR_INTERN as i32);
        assert_eq!(receive.bytes.copy(), laid_out(&[], length, true));
    }
}

#[test]
#[cfg_attr(miri, ignore = "the printed reason names this process, which takes a call of Open MPI")]
fn a_send_that_cannot_pack_its_data_ends_the_job() {
    for length in [BLOCK, LONG] {
        let world = World::new(TWO);
        REFUSALS.set(1);
        let _send = world.send(0, (1, 0, 7), Mode::Standard, GAPS, &content(3, length));
        let _receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(7) }, How::CALL, length);
        world.settle();
        assert!(JOB_HAS_ENDED.get(), "{length} bytes");
    }
}

#[test]
fn a_matched_probe_that_gets_no_handle_leaves_its_message_where_it_is() {
    let (world, bytes, wanted) = (World::new(TWO), content(3, 8), For { comm: 0, from: Some(0), tag: Some(7) });
    let _send = world.send(0, (1, 0, 7), Mode::Standard, How::CALL, &bytes);
    world.settle();
    REFUSALS.set(1);
    assert!(world.probe(1, wanted, true).is_none());
    let mut found = world.probe(1, wanted, true).expect("it is still there");
    check(&world.receive_probed(1, &mut found.message, How::NONBLOCKING, 8), (0, 7), &bytes);
}

#[test]
fn the_pml_ignores_a_message_by_shared_memory_from_an_unknown_sender() {
    let world = World::new(Shape { per_host: 2, ..TWO });
    let receive = world.receive(1, For { comm: 0, from: None, tag: None }, How::CALL, 8);
    let header = Header::Synchronous(Match::new(0, 0, 7), 1).encode();
    let bytes = [&7_u32.to_le_bytes()[..], &header].concat();
    shared_memory::push(1, shared_memory::Event::Message { tag: OTHER, bytes });
    world.poll(1);
    assert!(!receive.is_finished(), "its answer would have nowhere to go");
    world.cancel(1, &receive);
}

#[test]
fn a_buffered_send_that_cannot_enter_the_pml_frees_its_copy() {
    let world = World::new(TWO);
    assert_eq!(world.send_within(0, 1, &content(3, 8)), Some(Code::NO_RESOURCE));
    assert_eq!(libmpi::take_attached(), 0);
}

#[test]
fn starting_a_buffered_send_without_memory_fails_and_leaves_its_request_inactive() {
    let world = World::new(TWO);
    let persistent = How { is_persistent: true, ..How::NONBLOCKING };
    let send = world.send(0, (1, 0, 3), Mode::Buffered, persistent, &content(3, 8)).expect("it has a request");
    send.deactivate();
    REFUSALS.set(1);
    assert_eq!(persistent::start(send.request), Err(Code::NO_BUFFER));
    assert!(send.is_inactive() && send.is_finished());
    world.settle();
}

/// Receives `count` messages of tag 1 from process 0 to process 1, whose lengths are the first eight of [`LENGTHS`].
fn receive_all(world: &World, sends: &[Operation], count: usize) {
    for message in 0..count {
        let length = LENGTHS[message % 8];
        let receive = world.receive(1, For { comm: 0, from: Some(0), tag: Some(1) }, How::CALL, length);
        if !receive.is_finished() {
            world.settle();
        }
        check(&receive, (0, 1), &content(message, length));
    }
    world.settle();
    assert!(sends.iter().all(Operation::is_finished));
    world.is_at_rest();
}

/// Number of messages of a flood: more than a window of announcements, which has 8 in unit tests.
const MANY: usize = if cfg!(miri) { 40 } else { 1500 };

#[test]
fn a_receiver_holds_a_flooding_sender_back_and_lets_it_go_once_all_messages_are_received() {
    let world = World::new(Shape { unexpected_memory: 2000, ..TWO });
    let mut sends = Vec::new();
    for message in 0..MANY {
        sends.extend(world.send(0, (1, 0, 1), Mode::Standard, How::CALL, &content(message, LENGTHS[message % 8])));
        if message % 8 == 7 {
            (0..world.fabric.queue_pairs()).for_each(|number| while world.fabric.carry(number) {});
            (0..world.fabric.queue_pairs()).for_each(|number| while world.fabric.acknowledge(number) {});
            (0..2).for_each(|at| _ = world.poll(at));
        }
    }
    world.settle();
    assert!(sends.iter().any(|send| !send.is_finished()), "nobody was held back");
    receive_all(&world, &sends, MANY);
}

#[test]
fn a_token_names_its_record_and_a_token_of_the_btl_names_none() {
    // SAFETY: P1: nobody follows this handle.
    let request = unsafe { Handle::new(NonNull::without_provenance(0x1000.try_into().expect("not 0"))) };
    let (least, most) = (BufferId(0), BufferId(u32::MAX - 1));
    for record in
        [Record::Read(request), Record::Sent(request), Record::Buffer(least), Record::Buffer(most), Record::Turn]
    {
        let token = State::token(record);
        assert_ne!(token, Token(0), "which the engine never returns");
        assert_eq!(State::record_of(token), Some(record));
    }
    assert_eq!([least, most].map(|buffer| as_buffer(State::token(Record::Buffer(buffer)))), [Some(least), Some(most)]);
    let other = RecordKind::new(Face::Btl, 0).indexed(7);
    assert_eq!(
        (State::record_of(other), as_buffer(other), as_buffer(State::token(Record::Turn))),
        (None, None, Some(BufferId::NONE))
    );
}
