// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of docs/: where `IBEX_WRITE_DOCS` is set, a bench puts its tables into the page that names its command
//! line. So all tables of a place are of one run, which a reader can repeat. Called by [`super`] and [`super::study`].
//! Grade: setup. Tests: below.

use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::{env, fs};

const END: &str = "<!-- what came before is written -->\n";

fn begin(command: &str) -> String {
    format!("<!-- what follows is written by `IBEX_WRITE_DOCS=1 cargo xtask {command}` -->\n")
}

/// Writes the tables of this command into a page of docs/, if it has a place for them.
pub(super) fn write(workspace: &Workspace, page: &str, tables: &str) -> Result<()> {
    if env::var_os("IBEX_WRITE_DOCS").is_none() {
        return Ok(());
    }
    let command = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let path = workspace.root().join("docs").join(page);
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(new) = with_tables(&old, &command, tables) else {
        println!("docs/{page} has no place for the tables of `cargo xtask {command}`");
        return Ok(());
    };
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
    println!("Wrote {}", workspace.shown(&path).display());
    Ok(())
}

/// Returns the page with these tables at the place of the command; `None` if it has none.
fn with_tables(page: &str, command: &str, tables: &str) -> Option<String> {
    let begin = begin(command);
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{begin}\n{}\n\n{END}{tail}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_run_take_the_place_of_the_last_of_the_same_command() {
        let place = |command, tables| format!("{}{tables}{END}", begin(command));
        let page = format!("# A\n\n{}\n{}b\n", place("bench", "old\n"), place("bench --mpi 5", "of 5\n"));
        let new = with_tables(&page, "bench", "| new |\n").unwrap();
        assert_eq!(new, format!("# A\n\n{}\n{}b\n", place("bench", "\n| new |\n\n"), place("bench --mpi 5", "of 5\n")));
        assert_eq!(with_tables(&new, "bench", "| new |\n").unwrap(), new);
        assert_eq!(with_tables(&new, "bench --full", ""), None);
    }

    #[test]
    fn the_pages_have_a_place_for_each_command() {
        for (page, commands) in [
            ("benchmarks.md", &["bench", "bench --mpi 5", "bench --tests pieces,share,outstanding_rate"][..]),
            ("benchmarks.md", &["bench --mpi mpich --tests instructions", "bench --mpi intel --tests instructions"]),
            ("events-cost.md", &["bench --events"]),
            ("study.md", &["bench --study --full"]),
        ] {
            let text = fs::read_to_string(Workspace::here().root().join("docs").join(page)).unwrap();
            assert!(commands.iter().all(|command| with_tables(&text, command, "").is_some()), "{page}");
        }
    }
}
