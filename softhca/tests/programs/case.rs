// SPDX-License-Identifier: MIT OR Apache-2.0
//! A case: a script, and the test of its output.

use std::time::Duration;

use super::pyverbs::Results;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) script: String,
    pub(crate) judge: Judge,
    /// Given to `softhca run --config`, where the default adapter is not enough.
    pub(crate) config: Option<String>,
    pub(crate) limit: Duration,
}

pub(crate) enum Judge {
    /// All of these words.
    Says(Vec<String>),
    /// So many rows in the client's table of perftest.
    Rows(usize),
    /// The results of rdma-core's test suite.
    Suite,
}

impl Judge {
    pub(crate) fn verdict(&self, said: &str) -> Result<(), String> {
        match self {
            Judge::Says(words) => match words.iter().find(|word| !said.contains(*word)) {
                Some(word) => Err(format!("it did not say {word:?}")),
                None => Ok(()),
            },
            Judge::Rows(rows) => match table(said).count() {
                found if found == *rows => Ok(()),
                found => Err(format!("its table has {found} rows, not {rows}")),
            },
            Judge::Suite => Results::read(said).verdict(),
        }
    }

    /// Returns the part of a correct output that is worth showing.
    pub(crate) fn in_short(&self, said: &str) -> String {
        match self {
            Judge::Says(words) => {
                let client = said.lines().take_while(|line| !line.starts_with(SERVER));
                let lines = client.filter(|line| words.iter().any(|word| line.contains(word)));
                lines.take(4).collect::<Vec<_>>().join("\n")
            }
            Judge::Rows(_) => table(said).last().unwrap_or_default().to_owned(),
            Judge::Suite => Results::read(said).line(),
        }
    }
}

/// The line that the script prints between the client's output and the server's.
const SERVER: &str = "--- the server:";

fn table(said: &str) -> impl Iterator<Item = &str> {
    said.split(SERVER).next().unwrap_or_default().lines().filter(|line| {
        let mut cells = line.split_whitespace().map(str::parse::<u64>);
        line.starts_with(' ') && matches!((cells.next(), cells.next()), (Some(Ok(_)), Some(Ok(_))))
    })
}
