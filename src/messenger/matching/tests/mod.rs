// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the matching: each rule alone (`rules.rs`), the table (`contexts.rs`), how the work grows (`steps.rs`),
//! and random histories against lists that are obviously right (`histories.rs`), for each kind of envelopes
//! (`kinds.rs`).

mod contexts;
mod histories;
mod kinds;
mod rules;
mod steps;

use super::{Envelope, Matching, MessageHandle, Pattern, ReceiveHandle};

type Numbered = Matching<u32, u32>;

/// Returns the message that the receive got.
fn post(matching: &mut Numbered, source: i32, tag: i32, request: u32) -> Option<u32> {
    let found = matching.search_unexpected(Pattern::new(source, tag)).found;
    if found.is_none() {
        matching.insert_posted(Pattern::new(source, tag), request);
    }
    found.map(|message| message.message)
}

fn insert(matching: &mut Numbered, source: i32, tag: i32, request: u32) -> ReceiveHandle {
    assert_eq!(matching.search_unexpected(Pattern::new(source, tag)).found, None);
    matching.insert_posted(Pattern::new(source, tag), request)
}

/// Returns the receive that took the message.
fn arrive(matching: &mut Numbered, source: i32, tag: i32, message: u32) -> Option<u32> {
    let found = matching.search_posted(Envelope::new(source, tag)).found;
    if found.is_none() {
        matching.insert_unexpected(Envelope::new(source, tag), message);
    }
    found
}

fn unexpected(matching: &mut Numbered, source: i32, tag: i32, message: u32) -> MessageHandle {
    assert_eq!(matching.search_posted(Envelope::new(source, tag)).found, None);
    matching.insert_unexpected(Envelope::new(source, tag), message)
}
