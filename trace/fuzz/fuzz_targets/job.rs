// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads any bytes as the traces of a job, and writes its page: nothing may panic, hang or exhaust memory. A file
//! begins at each occurrence of a trace's first bytes, so traces in a row are a good seed. Ignores checksums.

#![no_main]

use ibex_messages::Job;
use ibex_trace::{Folder, Reader};

const BEGIN: &[u8] = b"\x89IBEX";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let starts = bytes.windows(BEGIN.len()).enumerate().filter(|(_, of)| *of == BEGIN).map(|(at, _)| at);
    let starts: Vec<usize> = starts.take(8).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let files = starts.iter().zip(ends).enumerate();
    let readers = files.filter_map(|(number, (start, end))| {
        Reader::from_bytes(&format!("{number}.ibex"), bytes[*start..end].to_vec()).ok()
    });
    let job = Job::read(&Folder::of(readers.collect()));
    let waits: usize = job.messages.iter().map(|message| message.waits().count()).sum();
    let _ = (waits, job.process_waits().len());
    ibex_view::page(&job, &mut std::io::sink()).expect("a sink takes all");
});
