// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page docs/events.md, made from the table. Called by its test, which also rewrites it (`tests/table.rs`). Path:
//! setup.

use std::fmt::Write as _;

use super::event_type::{ElementType, StampedBy};
use super::table::{RAISED, TABLE};

/// The table as a Markdown page: the text of docs/events.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# Events\n\n\
         Tools see each event as `ibex_NAME`; `btl_ibex_NAME`, as they were called, is found as well in this version, for the last time.\n\
         Those whose names begin with `comm` come where ibex does the matching (`--mca pml ibex`). But for the last, those that begin with\n\
         `comm_` are PERUSE's, lengthened by `PERUSE_` (docs/peruse.md says when each comes, and in which order). The others of messages (`xfer_`, `msg_`, `_chosen`) come\n\
         where ibex is a transport beneath another PML, such as `ob1`. The level says for whom it is: 1 to 3 users, 4 to 6 tuning, 7 to 9 developers of\n\
         ibex. The clock says who stamps the event. Where it is the adapter's, the host still stamps the event if the adapter does\n\
         not stamp completions, or if ibex read the stamp so late that the adapter's clock may have wrapped since; the event's\n\
         source says who stamped it. The displacement is the offset of an element in the event's data, in bytes.\n\n\
         This page is made from the table in src/events/table.rs: `IBEX_WRITE_DOCS=1 cargo test -p ibex events` rewrites it.\n",
    );
    for (index, row) in TABLE.iter().enumerate() {
        let clock = match row.stamp {
            StampedBy::Host => "the host's",
            StampedBy::Adapter => "the adapter's",
            StampedBy::Raiser => "the host's, read when it is asked for",
        };
        let bound = row
            .bound
            .map_or("nothing".to_owned(), |index| format!("a communicator, by `{}`", row.elements[index].name));
        let _ = write!(
            page,
            "\n## {}\n\n{} Level {}; bound to {bound}; clock: {clock}; {} bytes.\n\n",
            row.name, row.description, row.level, row.extent
        );
        if index > RAISED && std::ptr::eq(row.elements, TABLE[RAISED].elements) {
            let _ = writeln!(page, "Its elements are those of [{0}](#{0}).", TABLE[RAISED].name);
            continue;
        }
        page.push_str("| element | type | displacement | meaning |\n|---|---|---|---|\n");
        for (element, at) in row.elements.iter().zip(row.displacements) {
            let kind = match element.element_type {
                ElementType::I32 => "`MPI_INT`",
                ElementType::U32 => "`MPI_UNSIGNED`",
                ElementType::U64 => "`MPI_UNSIGNED_LONG`",
            };
            let _ = writeln!(page, "| `{}` | {kind} | {at} | {} |", element.name, element.help.replace('|', "\\|"));
        }
    }
    page
}
