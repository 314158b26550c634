// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of ibex's traces, written by the recorder and read by the commands.
//!
//! A trace is a folder with one file per process, each readable by itself; docs/trace-format.md has every byte. In
//! memory an event is one or a few [`Record`]s (`record.rs`). [`Writer`] makes blocks of them (`events.rs`,
//! `columns.rs`), compressed and with checksums (`frame.rs`). [`Reader`] finds the blocks (`contents.rs`), and gives
//! [`Event`]s, also those of all threads by their times (`merge.rs`); [`Folder`] has all ranks, on the time line that
//! clock samples establish (`sample.rs`, `clock.rs`, `timeline.rs`). Damage is an [`Error`] with its position, and
//! costs only its own block.
//!
//! The crate depends neither on MPI nor on adapters nor on ibex's events: each file describes its event types in its
//! [`Head`] (of this process: `process.rs`); it knows only the names by which a user chooses events (`choice.rs`).
//! Path: [`Layout::pack_into`] is hot, the rest pending or setup. No unsafe code. Tests: in the files; tests/.

#![forbid(unsafe_code)]

mod choice;
mod clock;
mod columns;
mod contents;
mod error;
mod events;
mod folder;
mod frame;
mod head;
mod merge;
mod parse;
mod process;
mod reader;
mod record;
mod sample;
mod storage;
mod summary;
mod timeline;
mod writer;

pub use choice::{Chosen, GROUPS, listed, short};
pub use clock::{Clock, ClockSample, Relation};
pub use error::{Error, Hex, Part, Readable};
pub use events::Event;
pub use folder::Folder;
pub use frame::VERSION;
pub use head::{
    Element, ElementKind, EventType, Head, MOST_ELEMENTS, MOST_SOURCES, MOST_TYPES, Names, Source, TAGGED, UNTAGGED,
};
pub use process::{clock, host, job, launched_rank, world};
pub use reader::{Counts, Reader};
pub use record::{Layout, Record, Room, Values};
pub use sample::{SAMPLE, calendar_offset};
pub use summary::{MOST_EVENTS, SourceSpan, Summary, TypeCount};
pub use timeline::Timeline;
pub use writer::{BLOCK, FLUSH, Writer};
