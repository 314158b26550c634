// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event types: the table of all types, their elements, an event as a value, and the page docs/events.md. Called by
//! sites, which raise an event by the structure of its type, and by tools' queries. Grade: hot for making an event
//! while a tool listens, else setup. Threads: plain data.

mod elements;
pub(super) mod event_type;
pub(super) mod instance;
pub(super) mod matching_table;
pub(super) mod page;
pub(super) mod table;
