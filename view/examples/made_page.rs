// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the page of a synthetic job: `made_page RANKS MESSAGES OUT.html`, to test and measure the page with more
//! messages than a machine can send.

use ibex_messages::Job;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ranks, messages, out] = &arguments[..] else { return Err("usage: made_page RANKS MESSAGES OUT.html".into()) };
    let job = Job::synthetic(ranks.parse()?, messages.parse()?, 1);
    let begun = Instant::now();
    let mut file = BufWriter::new(File::create(out)?);
    ibex_view::page(&job, &mut file)?;
    file.flush()?;
    println!("{} bytes in {:?}", std::fs::metadata(out)?.len(), begun.elapsed());
    Ok(())
}
