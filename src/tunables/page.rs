// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page docs/parameters.md, made from the table. Called by its test, which also rewrites it (`tests.rs`). Path:
//! setup.

use std::fmt::Write as _;

use super::{TABLE, Value};

/// The table as a Markdown page: the text of docs/parameters.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# Parameters\n\n\
         Set a parameter with `mpirun --mca btl_ibex_NAME VALUE`, with `OMPI_MCA_btl_ibex_NAME=VALUE` in the environment, or in\n\
         `~/.openmpi/mca-params.conf`. ibex refuses a value that is not permitted at start, and prints the permitted range.\n\
         `ompi_info --param btl ibex --level 9` shows these parameters and those that Open MPI has for every BTL. The level says\n\
         for whom a parameter is: 1 to 3 users, 4 to 6 tuning, 7 to 9 developers of ibex.\n\n\
         This page is made from the table in src/tunables.rs: `IBEX_WRITE_DOCS=1 cargo test -p ibex tunables` rewrites it.\n\n\
         | name | default | permitted | level | what it sets | effect |\n|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let default = match row.default_value() {
            Value::Text(text) if text.is_empty() => "(empty)".to_owned(),
            Value::Text(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let cells = [&format!("`{}`", row.name), &default, &row.permitted(), &row.level.to_string()]
            .map(|cell| cell.replace('|', "\\|"))
            .join(" | ");
        let _ = writeln!(page, "| {cells} | {} | {} |", escape(row.help), escape(row.effect));
    }
    page.push_str(OF_PML);
    page
}

/// The parameters of the PML alone: the plugin registers them (`plugin-abi/src/pml/component.rs`).
const OF_PML: &str = "\n## The PML's own\n\n\
    Set them with `mpirun --mca pml_ibex_NAME VALUE`; `ompi_info --param pml ibex --level 9` shows them.\n\n\
    | name | default | what it sets | effect |\n|---|---|---|---|\n\
    | `priority` | `60` | Above it other PMLs are preferred, below it ibex is. | None on messages. |\n\
    | `eager_limit` | `12288` bytes | The longest message, with its header, that is sent at once. | A longer one is announced, and read by its \
    receiver. |\n\
    | `local_eager_limit` | `4096` bytes | The same for a process of the same host that shared memory reaches, without the header. | A longer \
    one is announced, and read from the sender's memory by its receiver. |\n\
    | `unexpected_memory` | `4194304` bytes | Memory that a process keeps messages in for which it has posted no receive. | Beyond it the \
    senders are held back: they announce also short messages, which stay in the user's buffers until they are received. Beyond it also come what \
    the receive slots hold, what was sent before a sender heard of it, and a header for each message announced. |\n\
    | `receiver_first` | `0` | Whether a blocking receive for a message longer than `eager_limit`, once it has waited for a while, tells its \
    sender where to write. 0: no; 1: where that has been of use of late; 2: always. | The sender writes there, and nobody asks for the message. With several ports, with \
    `MPI_THREAD_MULTIPLE`, and while a tool listens, nothing is told. |\n";

/// Keeps the patterns of a help text from being read as Markdown.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('_', "\\_")
}
