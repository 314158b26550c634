// SPDX-License-Identifier: MIT OR Apache-2.0
//! Perfetto traces: a few lines here decode their frames, the definitions of the Python package `perfetto` the rest.
//! Its trace processor takes no part, because the package would fetch that program.

mod readers;
mod scratch;

use ibex_export::{Format, export};
use ibex_messages::{Incident, IncidentKind, Job, Pause, Search, Time};
use scratch::Scratch;

/// Decodes a number of 7 bits per byte; returns it and the rest.
fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).expect("a number's end");
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, &bytes[end + 1..])
}

/// Returns number and bytes of each field of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (key, rest) = varint(bytes);
        let (length, rest) = match key & 7 {
            0 => (0, varint(rest).1),
            1 => (0, &rest[8..]),
            2 => varint(rest),
            kind => panic!("wire type {kind}"),
        };
        let (value, rest) = rest.split_at(length as usize);
        fields.push((key >> 3, value));
        bytes = rest;
    }
    fields
}

#[test]
fn a_trace_is_read_by_perfettos_own_definitions() {
    let scratch = Scratch::new("perfetto");
    let mut job = Job::synthetic(4, 2000, 17);
    let time = job.messages[500].moments().min().expect("a moment");
    let kind = IncidentKind::QueuedBegin;
    job.incidents.push(Incident { rank: 1, time, kind, peer: Some(0), port: Some(1), value: 9 });
    let call = job.calls[7];
    let search = Search::made(call.rank, call.begun, Time::new(call.begun.nanoseconds() + 10));
    job.searches.push(Search { peer: -1, tag: 3, length: Some(5), ..search });
    job.pauses.push(Pause { rank: 3, from: time, to: Some(Time::new(time.nanoseconds() + 1000)) });
    let out = scratch.path("job.pftrace");
    export(&job, Format::Perfetto, &out).expect("written");

    let file = std::fs::read(&out).expect("a file");
    let packets = fields(&file);
    assert!(packets.iter().all(|(number, _)| *number == 1), "a trace is packets");
    let has = |packet: &[u8], field: u64| fields(packet).iter().any(|(number, _)| *number == field);
    let count = |field: u64| packets.iter().filter(|(_, packet)| has(packet, field)).count();
    let (events, tracks) = (count(11), count(60));
    // Begin and end of each phase, and of the slice that holds them, for both sides of a message.
    let slices: usize = job.messages.iter().map(|message| message.moments().count() * 2).sum();
    let slices = slices + 2 * (job.calls.len() + job.searches.len() + job.pauses.len());
    assert!(events > slices, "{events} events, {slices} of slices");
    assert!(tracks >= 4 * (1 + 4 + 1 + 1 + 2 + 2), "{tracks}");

    let bytes: u64 = job.messages.iter().map(|message| message.bytes).sum();
    let (slices, calls) = ((slices / 2).to_string(), job.calls.len().to_string());
    let read = [out.into_os_string(), "2000".into(), bytes.to_string().into(), slices.into(), calls.into()];
    readers::python("read_perfetto.py", "perfetto.protos.perfetto.trace.perfetto_trace_pb2", &read);
}
