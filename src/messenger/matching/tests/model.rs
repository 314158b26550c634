// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matching as two lists, searched from the front: a literal model of MPI's text.

use crate::messenger::matching::{ANY_SOURCE, ANY_TAG};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) number: u32,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) receives: Vec<Entry>,
    pub(super) messages: Vec<Entry>,
}

fn takes(receive: Entry, message: Entry) -> bool {
    (receive.source == ANY_SOURCE || receive.source == message.source)
        && (receive.tag == message.tag || receive.tag == ANY_TAG && message.tag >= 0)
}

impl Model {
    pub(super) fn probe(&self, receive: Entry) -> Option<Entry> {
        self.messages.iter().copied().find(|message| takes(receive, *message))
    }

    pub(super) fn take(&mut self, receive: Entry) -> Option<Entry> {
        let at = self.messages.iter().position(|message| takes(receive, *message))?;
        Some(self.messages.remove(at))
    }

    pub(super) fn post(&mut self, receive: Entry) -> Option<Entry> {
        let taken = self.take(receive);
        if taken.is_none() {
            self.receives.push(receive);
        }
        taken
    }

    pub(super) fn arrive(&mut self, message: Entry) -> Option<Entry> {
        let Some(at) = self.receives.iter().position(|receive| takes(*receive, message)) else {
            self.messages.push(message);
            return None;
        };
        Some(self.receives.remove(at))
    }

    pub(super) fn withdraw(list: &mut Vec<Entry>, number: u32) -> Option<Entry> {
        let at = list.iter().position(|entry| entry.number == number)?;
        Some(list.remove(at))
    }
}
