// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a bench is: on a terminal a progress bar, elsewhere a line for each start of a program, on standard
//! error, as standard output may be the report.
//!
//! Grade: setup. Called by [`super`].

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The progress of one bench.
pub(crate) struct Progress {
    bar: ProgressBar,
    rounds: usize,
    started: Instant,
    on_terminal: bool,
}

impl Progress {
    /// Of so many values in so many rounds.
    pub(crate) fn new(values: usize, rounds: usize) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new(values as u64);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:32}] {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is a constant").progress_chars("=> "));
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Self { bar, rounds, started: Instant::now(), on_terminal }
    }

    /// Something is started.
    pub(crate) fn says(&self, round: usize, what: &str) {
        let text = format!("round {round} of {}: {what}", self.rounds);
        if self.on_terminal {
            self.bar.set_message(text);
        } else {
            eprintln!("[{:4.0} s, {:3}%] {text}", self.started.elapsed().as_secs_f64(), self.percent());
        }
    }

    /// Something a reader should know, and that stays on the screen.
    pub(crate) fn remarks(&self, what: &str) {
        if self.on_terminal {
            self.bar.println(what);
        } else {
            eprintln!("{what}");
        }
    }

    /// So many values are measured again.
    pub(crate) fn expect(&self, values: usize) {
        self.bar.inc_length(values as u64);
    }

    /// So many values were measured.
    pub(crate) fn advance(&self, values: usize) {
        self.bar.inc(values as u64);
    }

    /// All is done.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn percent(&self) -> u64 {
        self.bar.position() * 100 / self.bar.length().unwrap_or(1).max(1)
    }
}
