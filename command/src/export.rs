// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex export DIR --to FORMAT -o OUT`: writes a trace in the format of another tool ([`ibex_export`]), and prints a
//! summary. Grade: setup; a million messages take seconds and the memory of their job. Tests: below; export/.

use crate::answer::{self, Form};
use anyhow::{Result, ensure};
use clap::ValueEnum as _;
use ibex_export::Format;
use ibex_messages::Job;
use ibex_trace::Folder;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(after_help = "Example: look at a trace in ui.perfetto.dev, or with pandas\n  \
                        ibex export run1 --to perfetto -o run1.pftrace\n  \
                        ibex export run1 --to parquet -o tables\n  \
                        python3 -c 'import pandas; print(pandas.read_parquet(\"tables/messages.parquet\").describe())'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    /// The folder with the trace
    #[arg(value_name = "DIR")]
    trace: PathBuf,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// The file or folder to write, depending on the format; it must not exist
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let job = read(&arguments.trace)?;
    ensure!(!job.ranks.is_empty(), "the trace {} has no process", arguments.trace.display());
    ibex_export::export(&job, arguments.to, &arguments.output)?;
    answer::print(&arguments.form, &Written::of(&job, arguments))?;
    Ok(ExitCode::SUCCESS)
}

fn read(trace: &Path) -> Result<Job> {
    Ok(Job::read(&Folder::open(trace)?))
}

#[derive(Serialize)]
struct Written {
    output: PathBuf,
    format: String,
    ranks: usize,
    messages: usize,
    lost: u64,
    faults: Vec<String>,
}

impl Written {
    fn of(job: &Job, arguments: &Arguments) -> Written {
        Written {
            output: arguments.output.clone(),
            format: arguments.to.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned()),
            ranks: job.ranks.len(),
            messages: job.messages.len(),
            lost: job.losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add),
            faults: job.faults.clone(),
        }
    }
}

impl fmt::Display for Written {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { output, format, ranks, messages, .. } = self;
        writeln!(to, "{}: {messages} messages of {ranks} ranks, as {format}", output.display())?;
        if self.lost > 0 {
            writeln!(to, "{} events were lost during recording and are missing", self.lost)?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(to, "{fault}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_data_is_reported() {
        let mut job = Job::default();
        job.faults.push("rank 3 has left no trace".to_owned());
        let form = Form::default();
        let arguments = Arguments { form, trace: "t".into(), to: Format::Csv, output: "out".into() };
        let text = Written::of(&job, &arguments).to_string();
        assert_eq!(text, "out: 0 messages of 0 ranks, as csv\nrank 3 has left no trace\n");
    }
}
