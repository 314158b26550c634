// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the matching: each rule alone (`rules.rs`), the table (`contexts.rs`), how the work grows (`steps.rs`),
//! and random histories against lists that are obviously right (`histories.rs`).

mod contexts;
mod histories;
mod rules;
mod steps;

use super::{Arrival, Envelope, Matching, Message, MessageHandle, Pattern, Posting, ReceiveHandle};

type Numbered = Matching<u32, u32>;

/// Returns the message that the receive got.
fn post(matching: &mut Numbered, source: i32, tag: i32, request: u32) -> Option<u32> {
    match matching.post(Pattern::new(source, tag), request) {
        Posting::Matched { message: Message { message, .. }, .. } => Some(message),
        Posting::Inserted { .. } => None,
    }
}

fn insert(matching: &mut Numbered, source: i32, tag: i32, request: u32) -> ReceiveHandle {
    match matching.post(Pattern::new(source, tag), request) {
        Posting::Inserted { handle, .. } => handle,
        Posting::Matched { message, .. } => panic!("{message:?} was there"),
    }
}

/// Returns the receive that took the message.
fn arrive(matching: &mut Numbered, source: i32, tag: i32, message: u32) -> Option<u32> {
    match matching.arrive(Envelope::new(source, tag), || message) {
        Arrival::Matched { request, .. } => Some(request),
        Arrival::Inserted { .. } => None,
    }
}

fn unexpected(matching: &mut Numbered, source: i32, tag: i32, message: u32) -> MessageHandle {
    match matching.arrive(Envelope::new(source, tag), || message) {
        Arrival::Inserted { handle, .. } => handle,
        Arrival::Matched { request, .. } => panic!("receive {request} was there"),
    }
}
