// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the work of a search grows with the length of the queue, counted in entries compared. The first search of a kind
//! walks the head of the list and builds an index; the tests limit the later ones.

use super::Numbered;
use crate::messenger::matching::{ADDR_UNSPEC, ANY_SOURCE, ANY_TAG, Envelope, Matching, Pattern, Tagged};

const LENGTH: i32 = if cfg!(miri) { 60 } else { 100_000 };

const SEARCHES: i32 = if cfg!(miri) { 20 } else { 100 };

/// Most entries that a search in the longest queue may compare: four indexes, and in each the chain of a bucket.
const MOST: u32 = 16;

/// Returns a pattern of the message from rank `number` with tag `number` for each class with an index.
fn patterns(number: i32) -> [Pattern; 3] {
    [Pattern::new(number, number), Pattern::new(ANY_SOURCE, number), Pattern::new(number, ANY_TAG)]
}

/// Positions spread over the queue, from its end.
fn places() -> impl Iterator<Item = i32> {
    (0..SEARCHES).map(|search| LENGTH - 1 - search * (LENGTH / SEARCHES))
}

fn assert_few(attempts: &[u32], of: &str) {
    let first = attempts[0];
    assert!(first <= 17 + MOST, "{of}: the first search looks at {first}");
    let rest = &attempts[1..];
    assert!(rest.iter().all(|attempts| *attempts <= MOST), "{of}: {rest:?}");
    let mean = f64::from(rest.iter().sum::<u32>()) / rest.len() as f64;
    assert!(mean <= 4.0, "{of}: {mean} in the mean");
}

#[test]
fn a_search_finds_one_posted_receive_among_many_in_a_few_steps_whatever_its_wildcards() {
    for class in 0..3 {
        let mut matching = Numbered::new();
        for number in 0..LENGTH {
            // No two patterns share a tag or a rank.
            let pattern = patterns(number)[(class + number as usize) % 3];
            matching.insert_posted(pattern, number as u32);
        }
        let arrive = |number: i32| {
            let searched = matching.search_posted(Envelope::new(number, number));
            assert_eq!(searched.found, Some(number as u32));
            searched.attempts
        };
        let attempts: Vec<u32> = places().map(arrive).collect();
        assert_few(&attempts, "posted");
    }
}

#[test]
fn a_search_finds_one_unexpected_message_among_many_in_a_few_steps_whatever_the_pattern() {
    for class in 0..3 {
        let mut matching = Numbered::new();
        for number in 0..LENGTH {
            matching.insert_unexpected(Envelope::new(number, number), number as u32);
        }
        let post = |number: i32| {
            let searched = matching.search_unexpected(patterns(number)[class]);
            assert_eq!(searched.found.map(|message| message.message), Some(number as u32));
            searched.attempts
        };
        let attempts: Vec<u32> = places().map(post).collect();
        assert_few(&attempts, "unexpected");
        let searched = matching.search_unexpected(Pattern::new(ANY_SOURCE, ANY_TAG));
        assert!(searched.found.is_some() && searched.attempts == 1);
    }
}

#[test]
fn searches_with_few_masks_of_ignored_bits_take_few_steps_whichever_masks() {
    const PROTOCOL: u64 = 1 << 63;
    let pattern = |class: i32, number: u64| match class {
        0 => Pattern::tagged(number, number, PROTOCOL),
        1 => Pattern::tagged(ADDR_UNSPEC, number, PROTOCOL),
        _ => Pattern::tagged(number, 0, PROTOCOL | 0xffff_ffff),
    };
    for class in 0..3 {
        let mut matching = Matching::<u64, u64, Tagged>::new();
        for number in 0..LENGTH as u64 {
            matching.insert_posted(pattern((class + number as i32) % 3, number), number);
            matching.insert_unexpected(Tagged { source: number, tag: number, data: None }, number);
        }
        let (mut posted, mut unexpected) = (Vec::new(), Vec::new());
        for number in places().map(|place| place as u64) {
            let searched = matching.search_posted(Tagged { source: number, tag: PROTOCOL | number, data: None });
            assert_eq!(searched.found, Some(number));
            posted.push(searched.attempts);
            let searched = matching.search_unexpected(pattern(class, number));
            assert_eq!(searched.found.map(|message| message.message), Some(number));
            unexpected.push(searched.attempts);
        }
        assert_few(&posted, "posted");
        assert_few(&unexpected, "unexpected");
    }
}

#[test]
fn many_entries_with_one_envelope_do_not_slow_down_the_search_for_another() {
    let mut matching = Numbered::new();
    for number in 0..LENGTH {
        matching.insert_posted(Pattern::new(1, 5), number as u32);
        matching.insert_unexpected(Envelope::new(1, 6), number as u32);
    }
    for round in 0..3 {
        matching.insert_posted(Pattern::new(2, 5), 7);
        let searched = matching.search_posted(Envelope::new(2, 5));
        assert_eq!(searched.found, Some(7));
        matching.insert_unexpected(Envelope::new(2, 6), 8);
        let found = matching.search_unexpected(Pattern::new(ANY_SOURCE, 6));
        assert_eq!((found.found.map(|message| message.message), found.attempts), (Some(round), 1));
        let by_source = matching.search_unexpected(Pattern::new(2, ANY_TAG));
        assert_eq!(by_source.found.map(|message| message.message), Some(8));
        if round > 0 {
            assert!(searched.attempts <= MOST && by_source.attempts <= MOST, "{searched:?}, {by_source:?}");
        }
    }
}

#[test]
fn a_search_that_finds_nothing_in_a_long_queue_compares_few_entries() {
    let mut matching = Numbered::new();
    for number in 0..LENGTH {
        matching.insert_posted(Pattern::new(number, 5), 0);
        matching.insert_unexpected(Envelope::new(number, 6), 0);
    }
    for round in 0..3 {
        let (posted, unexpected) =
            (matching.search_posted(Envelope::new(1, 7)), matching.probe(Pattern::new(ANY_SOURCE, 7)));
        assert_eq!((posted.found, unexpected.found), (None, None));
        if round > 0 {
            assert!(posted.attempts <= MOST && unexpected.attempts <= MOST);
        }
    }
}

#[test]
fn entries_with_negative_tags_do_not_slow_down_searches_for_others() {
    let mut matching = Numbered::new();
    for number in 0..LENGTH {
        matching.insert_unexpected(Envelope::new(number, -2), 0);
        matching.insert_posted(Pattern::new(number, -3), 0);
    }
    matching.insert_unexpected(Envelope::new(1, 5), 1);
    assert_eq!(matching.search_unexpected(Pattern::new(ANY_SOURCE, ANY_TAG)).attempts, 1);
    matching.insert_posted(Pattern::new(1, 5), 1);
    assert_eq!(matching.search_posted(Envelope::new(1, 5)).attempts, 1);
}

#[test]
fn a_search_that_finds_the_head_compares_one_entry_however_long_the_queue_is() {
    let mut matching = Numbered::new();
    for number in 0..LENGTH {
        matching.insert_posted(Pattern::new(1, number), number as u32);
        matching.insert_unexpected(Envelope::new(2, number), number as u32);
    }
    for number in 0..LENGTH {
        let posted = matching.search_posted(Envelope::new(1, number));
        let unexpected = matching.search_unexpected(Pattern::new(2, number));
        assert_eq!((posted.attempts, unexpected.attempts), (1, 1));
    }
}

#[test]
fn a_queue_that_has_become_short_is_a_list_again() {
    let mut matching = Numbered::new();
    for round in 0..3 {
        for number in 0..40 {
            matching.insert_posted(Pattern::new(number, 5), number as u32);
            matching.insert_unexpected(Envelope::new(number, 6), number as u32);
        }
        for number in (0..40).rev() {
            let posted = matching.search_posted(Envelope::new(number, 5));
            let unexpected = matching.search_unexpected(Pattern::new(number, 6));
            assert_eq!(posted.found, Some(number as u32), "{round}");
            assert_eq!(unexpected.found.map(|message| message.message), Some(number as u32), "{round}");
            if number < 4 {
                let attempts = number as u32 + 1;
                assert_eq!((posted.attempts, unexpected.attempts), (attempts, attempts), "{round}");
            }
        }
    }
}
