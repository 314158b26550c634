// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for which their raiser calls the callback itself, or which it buffers.

use crate::events::tests::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn event(place: usize, id: u64) -> EventInstance {
    let event_type = TypeId::of_matching(place).expect("there is one");
    MatchingEvent { id, ..MatchingEvent::default() }.instance(event_type, matching_source(), stamp())
}

#[test]
fn the_engine_delivers_nothing_and_finishes_no_registration_within_a_callback() {
    let _alone = alone();
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let event_type = TypeId::of_matching(3).expect("there is one");
    let noted = Arc::clone(&seen);
    let registration = calling(event_type, Safety::None, Options::default(), move |instance, _, _| {
        let Some(Value::U64(id)) = instance.value(0) else { panic!("a number") };
        noted.lock().expect("no panic").push(id);
    });
    assert!(registration.is_direct());
    keep(&registration, &event(3, 7));
    assert!(!registration.is_direct() && !registration.look_for_room());
    let is_freed = Arc::new(AtomicBool::new(false));
    let freed = Arc::clone(&is_freed);
    let before = counts(matching_source());
    call(|| {
        assert!(is_within() && is_delivering() && !flush(Safety::None));
        assert!(std::thread::scope(|scope| scope.spawn(|| !is_within()).join().expect("it ends")));
        deliver_pending(Safety::None);
        assert_eq!(*seen.lock().expect("no panic"), []);
        let on_free: FreeCallback = Box::new(move |_, _| freed.store(true, Ordering::Relaxed));
        free(&registration, Safety::None, Some(on_free)).expect("once");
        keep(&registration, &event(3, 8));
        assert!(!is_freed.load(Ordering::Relaxed));
    });
    let after = counts(matching_source());
    // Only the called event counts; the one kept for a freed registration does not.
    assert_eq!([after.raised - before.raised, after.delivered - before.delivered], [1, 1]);
    count_further_delivery();
    assert_eq!(counts(matching_source()).raised, after.raised - 1);
    deliver_pending(Safety::None);
    assert!(is_freed.load(Ordering::Relaxed) && !is_within());
    assert_eq!(*seen.lock().expect("no panic"), [7]);
}

#[test]
fn a_full_buffer_drops_events_counts_them_and_calls_the_dropped_handler() {
    let _alone = alone();
    let event_type = TypeId::of_matching(0).expect("there is one");
    let options = Options { room: 4, ..Options::default() };
    let registration = calling(event_type, Safety::ThreadSafe, options, |_, _, _| {});
    let lost = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&lost);
    let on_dropped: DroppedCallback = Arc::new(move |count, source, _, _| {
        assert_eq!(source, matching_source());
        noted.fetch_add(count, Ordering::Relaxed);
    });
    set_dropped(&registration, Some(on_dropped)).expect("not freed");
    for id in 0..7 {
        keep(&registration, &event(0, id));
    }
    deliver(usize::MAX, Safety::MpiRestricted);
    assert_eq!((lost.load(Ordering::Relaxed), registration.dropped()), (3, 3));
    assert!(registration.is_direct());
    free(&registration, Safety::None, None).expect("once");
}

#[test]
fn the_engine_delivers_and_counts_events_of_the_fast_buffering_path_as_all_others() {
    let _alone = alone();
    let seen: Arc<Mutex<Vec<(u64, String)>>> = Arc::default();
    let event_type = TypeId::of_matching(5).expect("there is one");
    let noted = Arc::clone(&seen);
    let registration = calling(event_type, Safety::ThreadSafe, buffered(8), move |instance, _, _| {
        assert_eq!((instance.event_type, instance.source), (event_type, matching_source()));
        let unexpected = instance.value(8).expect("ten elements").to_string();
        noted.lock().expect("no panic").push((instance.timestamp, unexpected));
    });
    let before = counts(matching_source());
    let quickly = |time: u32| {
        let event = MatchingEvent { unexpected: 10 * time, ..MatchingEvent::default() };
        keep_quickly(&registration, u64::from(time), || event)
    };
    assert!(!quickly(0) && !registration.look_for_room());
    assert_eq!([1, 2, 3, 4, 5].map(quickly), [true, true, true, true, false]);
    assert!(registration.look_for_room() && !registration.is_direct());
    keep(&registration, &event(5, 0));
    deliver(4, Safety::MpiRestricted);
    assert!(!registration.look_for_room() && quickly(6));
    deliver(usize::MAX, Safety::MpiRestricted);
    let mut seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert!(seen.remove(4).0 > 6);
    let wanted = [1_u64, 2, 3, 4, 6].map(|time| (time, (10 * time).to_string()));
    assert_eq!(seen, wanted);
    let after = counts(matching_source());
    let grown = [after.raised - before.raised, after.buffered - before.buffered, after.delivered - before.delivered];
    assert_eq!((grown, after.dropped), ([6; 3], before.dropped));
    free(&registration, Safety::None, None).expect("once");
}

#[test]
fn the_source_of_matching_events_is_ordered() {
    assert_eq!(type_named("xfer_end").and_then(TypeId::place_in_matching), None);
    assert_eq!(TypeId::of_matching(MATCHING_TYPES), None);
    let about = source_info(matching_source());
    assert!(about.ordered && about.name == "host:matching");
    let (first, second) = (stamp(), stamp());
    assert!(first <= second);
}
