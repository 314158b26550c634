// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of event types: layout, encoding, the page.

use crate::events::*;
use std::collections::HashSet;
use std::mem::offset_of;

#[test]
fn names_are_plain_words_that_occur_once_and_every_row_explains_itself() {
    let names: HashSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for row in &TABLE {
        assert!(row.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", row.name);
        assert!(row.description.ends_with('.') && (1..=9).contains(&row.level), "{}", row.name);
        let elements: HashSet<_> = row.elements.iter().map(|element| element.name).collect();
        assert_eq!(elements.len(), row.elements.len(), "{}", row.name);
        assert!(row.elements.iter().all(|element| element.help.ends_with('.')), "{}", row.name);
        assert_eq!(type_named(row.name).map(TypeId::row).map(|found| found.name), Some(row.name));
    }
    assert_eq!(type_named("xfer_begin"), Some(XferBegin::TYPE));
    assert_eq!(type_named("ibex_xfer_begin"), None);
}

#[test]
fn elements_have_the_offsets_that_c_gives_them() {
    #[repr(C)]
    struct Expected {
        operation: u64,
        peer: u32,
        waiting: u32,
    }
    let row = QueuedBegin::TYPE.row();
    let expected = [offset_of!(Expected, operation), offset_of!(Expected, peer), offset_of!(Expected, waiting)];
    assert_eq!(row.displacements, expected);
    assert_eq!(row.extent, size_of::<Expected>());
    assert_eq!(RegistrationMiss::TYPE.row().extent, 20, "without what C would pad it by");
    for row in &TABLE {
        let mut end = 0_usize;
        for (element, &at) in row.elements.iter().zip(row.displacements) {
            let size = element.element_type.size();
            assert_eq!(at, end.next_multiple_of(size), "{} {}", row.name, element.name);
            end = at + size;
        }
        assert!(row.extent == end && row.extent <= WORDS * 8, "{}", row.name);
    }
}

fn values(instance: &EventInstance) -> String {
    let elements = 0..instance.event_type.row().elements.len();
    elements.map(|index| instance.value(index).expect("an element").to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_element_returns_its_value_even_if_that_is_negative() {
    let event = XferEnd {
        request: 0xfedc_ba98_7654_3210,
        message: 2,
        offset: 3,
        bytes: 4,
        total: u64::MAX,
        context: 6,
        source: -7,
        tag: i32::MIN,
        direction: 1,
        peer: 0x8000_0000,
        port: 11,
        thread: 12,
    };
    let instance = event.instance(XferEnd::TYPE, matching_source(), 9);
    let expected = "18364758544493064720 2 3 4 18446744073709551615 6 -7 -2147483648 1 2147483648 11 12";
    assert_eq!(values(&instance), expected);
    assert_eq!(instance.value(12), None);

    let mut bytes = [0xff; 70];
    assert!(instance.copy_to(&mut bytes));
    assert_eq!(bytes[..8], event.request.to_ne_bytes());
    let at = XferEnd::TYPE.row().displacements[6];
    assert_eq!(bytes[at..at + 4], (-7_i32).to_ne_bytes());
    assert_eq!(bytes[68..], [0xff; 2], "nothing beyond the extent");
    assert!(!instance.copy_to(&mut bytes[..67]));
}

#[test]
fn a_bound_type_names_the_communicator_by_one_of_its_elements() {
    for row in &TABLE {
        let bound = row.bound.map(|index| row.elements[index].name);
        // A tool can ask for a communicator's birth and end before its context exists: these types are not bound.
        let is_of_life = row.name.starts_with("communicator_");
        let has_context = row.elements.iter().any(|element| element.name == "context");
        assert_eq!((bound.is_some(), bound), (has_context && !is_of_life, bound.and(Some("context"))), "{}", row.name);
    }
}

#[test]
fn value_returns_the_elements_of_matching_events_in_their_order_too() {
    let event = MatchingEvent {
        id: 1 << 40,
        bytes: 2,
        buffer: 3,
        peer: -4,
        tag: -5,
        operation: 1,
        context: 7,
        posted: 8,
        unexpected: 9,
        count: 10,
    };
    let arrived = type_named("comm_msg_arrived").expect("it exists");
    assert_eq!(arrived.place_in_matching(), Some(8));
    assert_eq!(values(&event.instance(arrived, matching_source(), 5)), "1099511627776 2 3 -4 -5 1 7 8 9 10");
    let (id, port, queue_pair) = (1 << 40, u32::MAX, 7);
    let event =
        ProtocolEvent { id, message: 2, bytes: 3, context: 4, protocol: 5, reason: 6, port, queue_pair, rails: 8 };
    let protocol = type_named("comm_req_protocol").expect("it exists");
    assert_eq!(protocol.place_in_matching(), Some(PROTOCOL));
    assert_eq!(values(&event.instance(protocol, matching_source(), 9)), "1099511627776 2 3 4 5 6 4294967295 7 8");
}

#[test]
fn the_life_of_a_communicator_has_the_elements_that_readers_of_traces_know() {
    let names = |name| {
        let row = type_named(name).expect("it exists").row();
        (row.bound, row.elements.iter().map(|element| element.name).collect::<Vec<_>>().join(" "))
    };
    let created = "context kind rank size side first count process stride job";
    assert_eq!(names("communicator_created"), (None, created.to_owned()));
    assert_eq!(names("communicator_freed"), (None, "context".to_owned()));
}

#[test]
fn the_page_of_all_events_matches_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/events.md");
    if std::env::var_os("IBEX_WRITE_DOCS").is_some() {
        std::fs::write(path, markdown()).expect("docs/events.md can be written");
    }
    let page = std::fs::read_to_string(path).expect("docs/events.md exists");
    assert!(page == markdown(), "docs/events.md is out of date: IBEX_WRITE_DOCS=1 cargo test -p ibex events");
}
