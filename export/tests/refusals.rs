// SPDX-License-Identifier: MIT OR Apache-2.0
//! Impossible outputs are refused in a sentence, in every format.

mod scratch;

use std::path::Path;

use clap::ValueEnum;
use ibex_export::{Format, export};
use ibex_messages::Job;
use scratch::Scratch;

#[test]
fn nothing_is_overwritten() {
    let scratch = Scratch::new("exists");
    let out = scratch.path("there");
    std::fs::write(&out, "mine").expect("written");
    for &format in Format::value_variants() {
        let error = export(&Job::synthetic(2, 1, 0), format, &out).expect_err("it exists").to_string();
        assert!(error.contains("exists already") && error.contains("there"), "{error}");
    }
    assert_eq!(std::fs::read(&out).expect("still there"), b"mine");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    for &format in Format::value_variants().iter().filter(|format| **format != Format::Otf2) {
        let error =
            export(&Job::synthetic(2, 1, 0), format, Path::new("/no/such/out")).expect_err("no folder").to_string();
        assert!(error.contains("/no/such/out") && error.contains("No such file"), "{format:?}: {error}");
    }
}

#[test]
fn a_job_of_which_nothing_is_known_is_written_in_each_format() {
    let scratch = Scratch::new("empty");
    for &format in Format::value_variants() {
        let written = export(&Job::default(), format, &scratch.path(&format!("{format:?}")));
        assert!(written.is_ok(), "{format:?}: {written:?}");
    }
}
