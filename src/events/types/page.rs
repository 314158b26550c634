// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page docs/events.md, made from the table. Its test (`tests/table.rs`) calls this, and rewrites it. Grade: setup.

use std::fmt::Write as _;

use super::event_type::{ElementType, EventType, StampedBy};
use super::table::TABLE;

/// The table as a Markdown page: the text of docs/events.md.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Events\n\n\
         Tools see each event as `ibex_NAME`.\n\
         Events whose names begin with `comm` occur where ibex does the matching (`--mca pml ibex`). Except for the last one, those\n\
         that begin with `comm_` are PERUSE's without the prefix `PERUSE_` (docs/peruse.md gives their meaning and order);\n\
         `comm_req_cancel` and `comm_req_free` are `PERUSE_IBEX_REQ_CANCEL` and `PERUSE_IBEX_REQ_FREE`. `xfer_` and `msg_` events tell\n\
         the same transfers by the adapter's clock. Below another PML, such as `ob1`, they tell of what that PML hands to the\n\
         transport, its own headers among the bytes: which message of MPI's it belongs to is not known there. The level says\n\
         who needs the event: 1 to 3 users, 4 to 6 tuning, 7 to 9 developers of ibex. The clock says which clock stamps the event.\n\
         Even if it is the adapter's, the host stamps the event if the adapter does not stamp completions, or if ibex read the\n\
         timestamp so late that the adapter's clock may have wrapped since; the event's source tells which clock it was.\n\
         The displacement is the offset of an element in the event's data, in bytes.\n\n\
         ## Which clock\n\n\
         An adapter reports only what completes. So a step that is a post, or that the processor does, has the host's time:\n\n\
         | event | at | clock | because |\n|---|---|---|---|\n\
         | `xfer_begin`, `xfer_continue`, `xfer_end` | the sender of copied bytes | the host's | each is a post: a begin has the time before it, the others after it |\n\
         | `xfer_end` | the sender of a message whose copy waited in its port | the adapter's | the send has a completion |\n\
         | `xfer_begin`, `xfer_end` | the sender of a message that the receiver reads | the adapter's, the same for both | the receiver's answer is a completion; the adapter reports neither begin nor end of a read of this process's memory |\n\
         | `xfer_begin`, `xfer_continue`, `xfer_end` | the receiver of bytes for which a receive was posted | the adapter's | the arrival of each fragment is a completion |\n\
         | `xfer_begin`, `xfer_end` | the receiver of a whole message that was unexpected | the host's | the call that posts the receive copies it; `msg_arrived` has the adapter's time |\n\
         | `xfer_begin` | the receiver that reads | the host's | it is the post of the first read |\n\
         | `xfer_continue`, `xfer_end` | the receiver that reads | the adapter's | each read has a completion |\n\
         | `xfer_begin`, `xfer_continue`, `xfer_end`, `msg_arrived` | both, within a process or a host | the host's | the processor copies |\n\
         | `msg_arrived` | the receiver | the adapter's | its arrival is a completion; a message that came before its communicator has the time at which the communicator was made |\n\
         | `xfer_begin`, `xfer_end` | the sender, below another PML | the host's | ibex accepts the fragment then; it may still wait for room |\n\
         | `put_complete`, `get_complete`, `atomic_complete` | the initiator | the adapter's | each operation has a completion |\n\
         | those of `comm_` | both | the host's | matching is the processor's work |\n\
         | all others | | the host's | they are calls, posts, or notices of the adapter that have no timestamp |\n\n\
         Listening changes what ibex does, not what it sends: polls read timestamps, messages take no short cuts past the sites,\n\
         nonblocking ones have a request, and events wait for the next call that makes progress. An inline send still asks for\n\
         no completion, so its end has the host's time. A read that another port repeats keeps its number.\n\n\
         This page is made from the table in src/events/types/table.rs: `IBEX_WRITE_DOCS=1 cargo test -p ibex events` rewrites it.\n",
    );
    let mut rows: Vec<&EventType> = TABLE.iter().collect();
    while let Some(first) = rows.first().copied() {
        let is_same =
            |row: &&EventType| (row.elements, row.bound, row.stamp) == (first.elements, first.bound, first.stamp);
        let (same, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_same);
        page += &section(&same);
        rows = others;
    }
    page
}

/// Describes types with the same elements, of which there is at least one.
fn section(same: &[&EventType]) -> String {
    let (first, last) = (same[0], same[same.len() - 1]);
    let clock = match first.stamp {
        StampedBy::Host => "the host's",
        StampedBy::Adapter => "the adapter's",
        StampedBy::Raiser => "the host's, read on request",
    };
    let bound = first
        .bound
        .map_or("nothing".to_owned(), |index| format!("a communicator, by `{}`", first.elements[index].name));
    let of_each = format!("bound to {bound}; clock: {clock}; {} bytes", first.extent);
    let mut text = if same.len() == 1 {
        format!("\n## {}\n\n{} Level {}; {of_each}.\n", first.name, first.description, first.level)
    } else {
        let item = |row: &&EventType| format!("- `{}`: {} Level {}.\n", row.name, row.description, row.level);
        let items: String = same.iter().map(item).collect();
        format!("\n## {} to {}\n\n{items}\nEach: {of_each}.\n", first.name, last.name)
    };
    text.push_str("\n| element | type | displacement | meaning |\n|---|---|---|---|\n");
    for (element, at) in first.elements.iter().zip(first.displacements) {
        let kind = match element.element_type {
            ElementType::I32 => "`MPI_INT`",
            ElementType::U32 => "`MPI_UNSIGNED`",
            ElementType::U64 => "`MPI_UNSIGNED_LONG`",
        };
        let _ = writeln!(text, "| `{}` | {kind} | {at} | {} |", element.name, element.help.replace('|', "\\|"));
    }
    text
}
