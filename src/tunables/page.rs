// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page docs/parameters.md, made from the tables. Called by its test, which also rewrites it (`tests.rs`). Path:
//! setup.

use std::fmt::Write as _;

use super::{Row, TABLE, Value, pml};

/// The tables as a Markdown page: the text of docs/parameters.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# Parameters\n\n\
         Set a parameter with `mpirun --mca btl_ibex_NAME VALUE`, with `OMPI_MCA_btl_ibex_NAME=VALUE` in the environment, or in\n\
         `~/.openmpi/mca-params.conf`. ibex refuses a value that is not permitted at start, and prints the permitted range.\n\
         `ompi_info --param btl ibex --level 9` shows these parameters and those that Open MPI has for every BTL. The level says\n\
         for whom a parameter is: 1 to 3 users, 4 to 6 tuning, 7 to 9 developers of ibex.\n\n\
         This page is made from the tables in src/tunables.rs and src/tunables/pml.rs: `IBEX_WRITE_DOCS=1 cargo test -p ibex tunables` rewrites it.\n\n\
         | name | default | permitted | level | what it sets | effect |\n|---|---|---|---|---|---|\n",
    );
    write_rows(&mut page, TABLE);
    page.push_str(OF_PML);
    write_rows(&mut page, pml::TABLE);
    page
}

fn write_rows(page: &mut String, table: &[Row]) {
    for row in table {
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
}

const OF_PML: &str = "\n## The PML's own\n\n\
    Set them with `mpirun --mca pml_ibex_NAME VALUE`; `ompi_info --param pml ibex --level 9` shows them.\n\n\
    | name | default | permitted | level | what it sets | effect |\n|---|---|---|---|---|---|\n";

/// Keeps the patterns of a help text from being read as Markdown.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('_', "\\_")
}
