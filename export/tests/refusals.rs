// SPDX-License-Identifier: MIT OR Apache-2.0
//! Impossible outputs are refused in a sentence, in every format.

mod scratch;

use std::path::Path;

use ibex_export::{Format, export};
use ibex_messages::Job;
use scratch::Scratch;

#[test]
fn nothing_is_overwritten() {
    let scratch = Scratch::new("exists");
    let out = scratch.path("there");
    std::fs::write(&out, "mine").expect("written");
    for format in Format::ALL {
        let error = export(&Job::synthetic(2, 1, 0), format, &out).expect_err("it exists").to_string();
        assert!(error.contains("exists already") && error.contains("there"), "{error}");
    }
    assert_eq!(std::fs::read(&out).expect("still there"), b"mine");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    for format in Format::ALL.into_iter().filter(|format| *format != Format::Otf2) {
        let error =
            export(&Job::synthetic(2, 1, 0), format, Path::new("/no/such/out")).expect_err("no folder").to_string();
        assert!(error.contains("/no/such/out") && error.contains("No such file"), "{}: {error}", format.name());
    }
}

#[test]
fn a_job_of_which_nothing_is_known_is_written_in_each_format() {
    let scratch = Scratch::new("empty");
    for format in Format::ALL {
        let written = export(&Job::default(), format, &scratch.path(format.name()));
        assert!(written.is_ok(), "{}: {written:?}", format.name());
    }
}

#[test]
fn formats_have_different_names_and_say_what_they_are_for() {
    let mut names = Format::ALL.map(Format::name);
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(Format::ALL.into_iter().all(|format| format.description().contains("for ")));
}
