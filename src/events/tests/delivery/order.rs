// SPDX-License-Identifier: MIT OR Apache-2.0
//! A delivery from buffers keeps the order of each source's events, however many registrations have them.

use crate::events::tests::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

fn matching(place: usize) -> TypeId {
    TypeId::of_matching(place).expect("there is one")
}

fn raise_one(which: usize, port: SourceId, raw: u64, registrations: &[Arc<Registration>]) {
    match which {
        0 => raise_number(1),
        1 => raise(Safety::MpiRestricted, PortAsync::default),
        2 => stage_stamped(port, raw, PutComplete::default),
        3 => stage_stamped(port, raw, GetComplete::default),
        place => {
            let event_type = matching(place);
            let instance = MatchingEvent::default().instance(event_type, matching_source(), stamp());
            let wanting = registrations.iter().filter(|registration| registration.event_type == event_type);
            wanting.for_each(|registration| keep(registration, &instance));
        }
    }
}

const TYPES: usize = 7;

static RAW: AtomicU64 = AtomicU64::new(1);

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_source_goes_back_in_time_however_events_are_raised_and_delivered(
        wanted in proptest::collection::vec((0..TYPES, any::<bool>(), any::<bool>()), 1..12),
        steps in proptest::collection::vec((0..TYPES + 3, 1_usize..20), 1..60),
    ) {
        let _alone = alone();
        let clock = PortClock {
            name: "order:1".to_owned(),
            gid: [0; 16],
            ticks_per_second: 1_000_000_000,
            bits: 63,
            room: 4096,
            read_clock: None,
        };
        let port = open_port(clock).expect("there is room");
        // Neither events for callbacks that may do anything nor events delivered in place hold back the others.
        let (here, in_place, elsewhere) = (Seen::default(), Seen::default(), Seen::default());
        let event_type = |which| match which {
            0 => DeviceAsync::TYPE,
            1 => PortAsync::TYPE,
            2 => PutComplete::TYPE,
            3 => GetComplete::TYPE,
            place => matching(place),
        };
        let registrations: Vec<_> = wanted
            .iter()
            .map(|&(which, is_here, is_buffered)| {
                let (seen, level) = match (is_here, is_buffered) {
                    (true, true) => (&here, Safety::ThreadSafe),
                    (true, false) => (&in_place, Safety::ThreadSafe),
                    (false, _) => (&elsewhere, Safety::None),
                };
                let options = Options { buffered: is_buffered, ..buffered(4096) };
                listen_to(event_type(which), level, options, seen.callback())
            })
            .collect();
        for (step, count) in steps {
            match step {
                which if which < TYPES => {
                    for _ in 0..count {
                        // The adapter's clock continues from case to case.
                        let raw = RAW.fetch_add(10, Ordering::Relaxed);
                        raise_one(which, port, raw, &registrations);
                    }
                }
                TYPES => deliver(count, Safety::MpiRestricted),
                _ => deliver_pending(Safety::None),
            }
        }
        let waiting = |registrations: &[Arc<Registration>]| registrations.iter().map(|one| one.waiting()).sum::<u64>();
        close_port(port, Safety::MpiRestricted);
        prop_assert!(flush(Safety::None));
        prop_assert_eq!([&here, &in_place, &elsewhere].map(|seen| steps_back(&seen.lock())), [0; 3]);
        prop_assert_eq!(waiting(&registrations), 0);
        prop_assert_eq!(registrations.iter().map(|one| one.dropped()).sum::<u64>(), 0);
    }
}

#[test]
fn a_delivery_keeps_the_order_of_each_source_while_threads_raise() {
    const EACH: usize = if cfg!(miri) { 50 } else { 20_000 };
    let _alone = alone();
    let together = Seen::default();
    let registrations = [DeviceAsync::TYPE, PortAsync::TYPE, DeviceAsync::TYPE]
        .map(|event_type| listen_to(event_type, Safety::ThreadSafe, buffered(1024), together.callback()));
    let running = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for number in 0..EACH {
                    if number % 2 == 0 {
                        raise_number(1);
                    } else {
                        raise(Safety::MpiRestricted, PortAsync::default);
                    }
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        while running.load(Ordering::Acquire) > 0 {
            // Without a budget, so that an event that enters a buffer during the merge could be missed.
            deliver_counted(usize::MAX, Safety::ThreadSafe);
        }
    });
    assert!(flush(Safety::ThreadSafe));
    assert_eq!(steps_back(&together.lock()), 0);
    let lost: u64 = registrations.iter().map(|one| one.dropped()).sum();
    assert_eq!(together.lock().len() + lost as usize, 3 * (EACH + EACH / 2));
}

#[test]
fn a_freed_registration_delivers_its_events_after_earlier_ones_of_other_registrations() {
    let _alone = alone();
    let together = Seen::default();
    let first = listen(buffered(8), together.callback());
    let _second = listen_to(PortAsync::TYPE, Safety::ThreadSafe, buffered(8), together.callback());
    raise(Safety::MpiRestricted, PortAsync::default);
    raise_number(1);
    raise(Safety::MpiRestricted, PortAsync::default);
    free(&first, Safety::ThreadSafe, None).expect("live");
    deliver_all();
    let seen = together.lock();
    assert_eq!((seen.len(), steps_back(&seen)), (3, 0));
}

#[test]
fn a_callback_that_replaces_another_leaves_the_rest_to_the_new_one_in_order() {
    let _alone = alone();
    let together = Seen::default();
    let changed = listen_to(PortAsync::TYPE, Safety::ThreadSafe, buffered(8), together.callback());
    let (later, also) = (together.clone(), Arc::clone(&changed));
    let _changes = calling(NUMBERED, Safety::ThreadSafe, buffered(8), move |instance, _, _| {
        later.lock().push(*instance);
        set_callback(&also, Safety::ThreadSafe, Some(later.callback())).expect("it is not freed");
    });
    for _ in 0..3 {
        raise_number(1);
        raise(Safety::MpiRestricted, PortAsync::default);
    }
    assert_eq!(deliver_all(), 6);
    let seen = together.lock();
    assert_eq!((seen.len(), steps_back(&seen)), (6, 0));
    assert_eq!(changed.waiting(), 0);
}

#[test]
fn events_that_enter_the_buffers_during_a_delivery_wait_for_the_next_one() {
    let _alone = alone();
    let together = Seen::default();
    let _first = listen(buffered(8), together.callback());
    let (seen, raised) = (together.clone(), Mutex::new(false));
    let _second = calling(PortAsync::TYPE, Safety::ThreadSafe, buffered(8), move |instance, _, _| {
        seen.lock().push(*instance);
        if !std::mem::replace(&mut *raised.lock().expect("no panic"), true) {
            raise_number(1);
            raise(Safety::MpiRestricted, PortAsync::default);
        }
    });
    (0..2).for_each(|_| raise(Safety::MpiRestricted, PortAsync::default));
    assert_eq!((deliver_all(), deliver_all()), (2, 2));
    let seen = together.lock();
    assert_eq!((seen.len(), steps_back(&seen)), (4, 0));
}
