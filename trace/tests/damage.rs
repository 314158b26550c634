// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files cut off at every byte, with every byte flipped, and so on: never a panic, never a wrong event without an
//! error, and all other events are still read.

mod made;
mod sealed;

use ibex_trace::{Error, Event, Part, Reader};
use proptest::prelude::*;
use sealed::seal;

/// The events up to the first error, those after it, and the errors.
type Given = (Vec<Event>, Vec<Event>, Vec<Error>);

fn read(bytes: Vec<u8>) -> Result<Given, Error> {
    let reader = Reader::from_bytes("t.ibex", bytes)?;
    let (mut before, mut after, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for event in reader.events() {
        match event {
            Ok(event) if errors.is_empty() => before.push(event),
            Ok(event) => after.push(event),
            Err(error) => errors.push(error),
        }
    }
    Ok((before, after, errors))
}

fn small(finish: bool) -> Vec<u8> {
    made::trace(&made::head(0), 300, 40, finish)
}

/// Events without their times, which may be less exact if samples of clocks are lost.
fn without_times(events: &[Event]) -> Vec<Event> {
    events.iter().map(|event| Event { time: None, ..*event }).collect()
}

fn told(bytes: Vec<u8>) -> String {
    match read(bytes) {
        Ok((_, _, errors)) => errors[0].to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_cut_off_at_any_byte_gives_the_whole_blocks_before_and_an_error() {
    for finish in [true, false] {
        let bytes = small(finish);
        let all = without_times(&read(bytes.clone()).expect("whole").0);
        let mut most = 0;
        for length in 0..bytes.len() {
            let Ok((before, after, errors)) = read(bytes[..length].to_vec()) else { continue };
            assert_eq!((errors.len(), after.len()), (1, 0), "{length}");
            assert_eq!(without_times(&before), all[..before.len()], "{length}");
            assert!(before.len() >= most, "{length}");
            most = before.len();
        }
        // In an unfinished file the last block has the last 20 events.
        assert_eq!(most, if finish { 300 } else { 280 });
    }
}

#[test]
fn a_file_with_any_byte_flipped_gives_all_other_blocks_and_an_error() {
    let bytes = small(true);
    let all = without_times(&read(bytes.clone()).expect("whole").0);
    for place in 0..bytes.len() {
        for flip in [1 << (place % 8), 0xff] {
            let mut changed = bytes.clone();
            changed[place] ^= flip;
            let Ok((before, after, errors)) = read(changed) else { continue };
            assert!(!errors.is_empty(), "byte {place} by {flip:x}");
            let (before, after) = (without_times(&before), without_times(&after));
            assert_eq!(before, all[..before.len()], "byte {place}");
            assert_eq!(after, all[all.len() - after.len()..], "byte {place}");
            assert!(before.len() + after.len() + 40 >= all.len(), "byte {place}: more than its block is lost");
        }
    }
}

#[test]
fn a_file_with_a_damaged_head_gives_an_error_and_no_event() {
    let mut bytes = small(true);
    bytes[60] ^= 4;
    let told = told(bytes);
    assert!(told.starts_with("t.ibex is damaged: block 0 at offset 16: expected "), "{told}");
    assert!(told.ends_with("Nothing can be read"), "{told}");
}

#[test]
fn errors_distinguish_empty_foreign_and_future_files() {
    let nothing = told(Vec::new());
    assert!(nothing.starts_with("t.ibex is empty: "), "{nothing}");
    let elf = told(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    assert!(
        elf.starts_with(
            "t.ibex is no trace of ibex: it begins with 7f 45 4c 46 02 01 01 00, but a trace begins with 89 49"
        ),
        "{elf}"
    );
    let text = told(b"\x89IBEX\n\x1a".to_vec());
    assert!(text.starts_with("t.ibex is no trace"), "{text}");
    let mut future = small(true);
    future[8] = 9;
    let sum = crc32c::crc32c(&future[..12]);
    future[12..16].copy_from_slice(&sum.to_le_bytes());
    let future = told(future);
    assert!(future.starts_with("t.ibex is a trace of format 9, but this ibex reads formats up to 1: "), "{future}");
}

#[test]
fn an_error_names_the_block_its_place_and_the_readable_part() {
    let bytes = small(true);
    let reader = Reader::from_bytes("t.ibex", bytes.clone()).expect("opened");
    let blocks = reader.summaries().count();
    // Head and samples come first: the third block of events is block 4.
    let starts: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, four)| *four == b"\xb1OCK").map(|(at, _)| at).collect();
    let mut changed = bytes.clone();
    changed[starts[5] - 1] ^= 1;
    let (.., errors) = read(changed).expect("opened");
    let [Error::Damaged { block, offset, readable, .. }] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!((*block, *offset), (Part::Block(4), starts[4] as u64));
    // The other blocks are the head, the samples, and the last samples.
    assert_eq!((readable.before, readable.before + readable.after + 1), (4, blocks + 3));
    let text = errors[0].to_string();
    let damaged = format!("block 4 at offset {}: expected a payload with the checksum ", starts[4]);
    assert!(text.contains(&damaged), "{text}");
    let cut = told(bytes[..starts[6] + 50].to_vec());
    assert!(cut.starts_with(&format!("t.ibex is cut off: block 6 at offset {} has ", starts[6])), "{cut}");
    assert!(cut.ends_with("but the file contains only 50 of them. The 6 blocks before can be read"), "{cut}");
    let trailing = told([&bytes[..], b"x"].concat());
    assert!(trailing.contains("expected the end of the file, found 1 more bytes"), "{trailing}");
    let unfinished = told(small(false));
    assert!(unfinished.starts_with("t.ibex was not finished: it ends at offset "), "{unfinished}");
}

#[test]
fn an_error_reports_a_missing_or_repeated_block() {
    let bytes = small(false);
    let starts: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, four)| *four == b"\xb1OCK").map(|(at, _)| at).collect();
    let without = [&bytes[..starts[3]], &bytes[starts[4]..]].concat();
    assert!(told(without).contains("expected block 3, found block 4"));
    let twice = [&bytes[..starts[4]], &bytes[starts[3]..]].concat();
    assert!(told(twice).contains("expected block 4, found block 3"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_sealed_block_with_senseless_contents_does_not_make_the_reader_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = small(true);
        for (place, byte) in changes {
            let place = place.index(bytes.len() - 16) + 16;
            bytes[place] = byte;
        }
        seal(&mut bytes);
        if let Ok(reader) = Reader::from_bytes("t.ibex", bytes) {
            let _ = (reader.events().count(), reader.interleaved().count(), reader.counts());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(tail in proptest::collection::vec(any::<u8>(), 0..400), keep in 0..2000_usize) {
        let mut bytes = small(true);
        bytes.truncate(keep);
        bytes.extend(tail);
        let _ = read(bytes);
    }

    #[test]
    fn pieces_that_are_overwritten_moved_or_left_out_never_give_a_wrong_event(
        changes in proptest::collection::vec((0..3_u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..80_usize), 1..4),
    ) {
        let whole = small(true);
        let mut bytes = whole.clone();
        for (what, from, to, length) in changes {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let end = bytes.len().min(from + length);
            match what {
                0 => drop(bytes.drain(from..end)),
                1 => {
                    let piece = bytes[from..end].to_vec();
                    bytes.splice(to..to, piece);
                }
                _ => bytes[from..end].fill(0),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let all = without_times(&read(whole.clone()).expect("whole").0);
        if let Ok((before, after, errors)) = read(bytes.clone()) {
            prop_assert!(bytes == whole || !errors.is_empty());
            for event in without_times(&before).iter().chain(&without_times(&after)) {
                prop_assert!(all.contains(event));
            }
        }
    }
}
