// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page docs/parameters.md, made from the table. Its test (`tests.rs`) calls this, and rewrites it. Grade: setup.

use std::fmt::Write as _;

use super::{Faces, Row, Scope, TABLE, Value, Writable};

/// The table as a Markdown page: the text of docs/parameters.md.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Parameters\n\n\
         Set a parameter with `mpirun --mca NAME VALUE`, with `OMPI_MCA_NAME=VALUE` in the environment, or in\n\
         `~/.openmpi/mca-params.conf`. ibex refuses a value that is not permitted at start, and prints the permitted range.\n\
         `ompi_info --param btl ibex --level 9` and `ompi_info --param pml ibex --level 9` show these parameters and those that\n\
         Open MPI has for every BTL. Most of those that begin with `btl_ibex_` hold for the ports, whichever component uses them\n\
         (\"for\" says which). The level says who needs a parameter: 1 to 3 any user, 4 to 6 who tunes, 9 who works on ibex.\n\n\
         Of `btl_ibex_max_send_size`, `btl_ibex_eager_limit` and `btl_ibex_rndv_eager_limit`, which Open MPI has for every BTL, each\n\
         may be at most the one before it. Those that are not set follow those that are.\n\n\
         A tool may write a parameter as a control variable (`MPI_T_cvar_write`) between `MPI_T_init_thread` and `MPI_Init`; those with\n\
         \"always\" also while MPI runs. Later the others answer `MPI_T_ERR_CVAR_SET_NOT_NOW`; those that\n\
         Open MPI has for every BTL are read-only. The scope is what `MPI_T` reports: `LOCAL`: each process may have its own value; `ALL`:\n\
         the values of all processes must go together, however they are set. A value that is not permitted is refused when `MPI_Init`\n\
         reads it, as from elsewhere. What is written later is changed to the nearest permitted value where it is read, with the same\n\
         message.\n\n\
         This page is made from the table in src/tunables/rows.rs: `IBEX_WRITE_DOCS=1 cargo test -p ibex tunables` rewrites it.\n\n\
         | name | for | default | permitted | level | scope | writable | what it sets | effect |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        write_row(&mut page, row);
    }
    page
}

fn write_row(page: &mut String, row: &Row) {
    let default = match row.default_value() {
        Value::Text(text) if text.is_empty() => "(empty)".to_owned(),
        Value::Text(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    };
    let faces = match row.faces {
        Faces::Both => "BTL, PML",
        Faces::Btl => "BTL",
        Faces::Pml => "PML",
    };
    let scope = match row.scope {
        Scope::Local => "LOCAL",
        Scope::All => "ALL",
    };
    let writable = match row.writable {
        Writable::UntilInit => "until MPI_Init",
        Writable::Always => "always",
    };
    let (name, level) = (format!("`{}`", row.full_name()), row.level.to_string());
    let cells = [&name, faces, &default, &row.permitted(), &level, scope, &escape(writable)]
        .map(|cell| cell.replace('|', "\\|"))
        .join(" | ");
    let _ = writeln!(page, "| {cells} | {} | {} |", escape(row.help), escape(row.effect));
}

/// Keeps Markdown from interpreting the patterns of a help text.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('_', "\\_")
}
