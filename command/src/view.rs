// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex view`: writes the HTML page of a traced job ([`ibex_view`]), and has a browser draw it for `--picture`. Grade:
//! setup. Tests: below; of the page itself, in `view/`.

use crate::answer::{self, Form};
use anyhow::{Context, Result, bail};
use ibex_messages::Job;
use ibex_trace::Folder;
use ibex_view::picture::Browser;
use serde::Serialize;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        ibex view trace                      then open trace/view.html in a browser\n  \
                        ibex view trace --picture job.png    and a picture of the whole run\n  \
                        ibex view trace --picture job.png --at 't=1.2ms..1.3ms&c=wait'")]
pub(crate) struct Arguments {
    /// The folder with the trace
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The page to write [default: DIR/view.html]
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Draw the page into this file as well, which needs Chromium
    #[arg(long, value_name = "FILE.png")]
    picture: Option<PathBuf>,
    /// What the picture shows: the part after `#` of the page's address in a browser
    #[arg(long, value_name = "PLACE", default_value = "", hide_default_value = true, requires = "picture")]
    at: String,
    /// Width and height of the picture in pixels
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "1600x1000", value_parser = size, requires = "picture")]
    size: (u32, u32),
    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct Written {
    page: PathBuf,
    bytes: u64,
    ranks: usize,
    messages: usize,
    lost: u64,
    faults: usize,
    picture: Option<PathBuf>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { page, bytes, ranks, messages, lost, faults, picture } = self;
        let mebibytes = *bytes as f64 / f64::from(1 << 20);
        writeln!(f, "{} shows {messages} messages of {ranks} ranks ({mebibytes:.1} MiB).", page.display())?;
        if let Some(picture) = picture {
            writeln!(f, "{} is a picture of it.", picture.display())?;
        }
        if *lost > 0 {
            writeln!(f, "{lost} events were lost during recording and are missing.")?;
        }
        if *faults > 0 {
            writeln!(f, "The trace has {faults} faults, which the page lists at its top.")?;
        }
        Ok(())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let job = read(&arguments.folder)?;
    let page = arguments.output.clone().unwrap_or_else(|| arguments.folder.join("view.html"));
    write(&job, &page).with_context(|| format!("cannot write {}", page.display()))?;
    if let Some(picture) = &arguments.picture {
        let draw = |browser: Browser| browser.draw(&page, &arguments.at, arguments.size, picture);
        Browser::find().and_then(draw).with_context(|| format!("cannot draw {}", picture.display()))?;
    }
    let written = Written {
        bytes: fs::metadata(&page)?.len(),
        page,
        ranks: job.ranks.len(),
        messages: job.messages.len(),
        lost: job.losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add),
        faults: job.faults.len(),
        picture: arguments.picture.clone(),
    };
    answer::print(&arguments.form, &written)?;
    Ok(ExitCode::SUCCESS)
}

fn read(folder: &Path) -> Result<Job> {
    if !folder.is_dir() {
        bail!("{} is no folder; `ibex trace` writes one", folder.display());
    }
    let folder = Folder::open(folder).with_context(|| format!("cannot read a trace in {}", folder.display()))?;
    Ok(Job::read(&folder))
}

/// Writes under another name first, so that an existing page stays until the new one is complete.
fn write(job: &Job, page: &Path) -> Result<()> {
    let mut partial = page.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let mut file = BufWriter::new(File::create(&partial)?);
    let done = ibex_view::page(job, &mut file).and_then(|()| file.flush());
    if let Err(error) = done.and_then(|()| fs::rename(&partial, page)) {
        // Half a page is useless; a failure to remove it changes nothing.
        let _ = fs::remove_file(&partial);
        return Err(error.into());
    }
    Ok(())
}

/// Parses `1600x1000`.
fn size(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    match parts {
        Some(size @ (200..=10000, 200..=10000)) => Ok(size),
        _ => Err("expected WIDTHxHEIGHT, for example 1600x1000, each from 200 to 10000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_numbers_of_pixels() {
        assert_eq!(size("1600x1000"), Ok((1600, 1000)));
        for wrong in ["", "1600", "1600x", "x", "1600x1000x2", "0x0", "20000x100"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_that_is_no_trace_is_refused_by_name() {
        let error = read(Path::new("/nonexistent/trace")).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/trace is no folder; `ibex trace` writes one");
        let folder = std::env::temp_dir().join(format!("ibex-view-test.{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let error = read(&folder).unwrap_err();
        fs::remove_dir(&folder).unwrap();
        assert!(error.to_string().contains("cannot read a trace in"), "{error:#}");
    }

    #[test]
    fn a_page_is_written_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("ibex-view-page.{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let page = folder.join("view.html");
        write(&Job::default(), &page).unwrap();
        assert!(fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
        assert!(write(&Job::default(), &page).is_err());
    }
}
