// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of places: the machines in a world of processes, wires and matching by lists (`world.rs`, `moves.rs`), all of whose histories are explored up to a
//! number of sends and receives (`explore.rs`, its states made comparable by `shape.rs`), and random ones that are longer (`random.rs`). Each rule
//! left out gives a counterexample (`mutations.rs`). What is simple is tested where it is, or here.

mod explore;
mod moves;
mod mutations;
mod random;
mod shape;
mod world;

use super::{Accepted, Epoch, Epochs, Going, MOST, OfferIds, Offered};

/// A pair that counts, both sides of it.
fn counting() -> (Accepted<u32>, Offered<char>, OfferIds, Epochs) {
    let (mut accepted, mut offered) = (Accepted::default(), Offered::default());
    let (mut ids, mut epochs) = (OfferIds::default(), Epochs::default());
    let first = offered.offer(0, 0, 'x', &mut ids).expect("the first");
    assert_eq!(first.epoch, Epoch::NONE);
    let refused = accepted.offered(first, &mut epochs).expect("nothing was counted");
    let void: Vec<char> = offered.refused(refused).iter().map(|offer| offer.request).collect();
    assert_eq!(void, ['x']);
    (accepted, offered, ids, epochs)
}

#[test]
fn a_sender_to_whom_nothing_is_offered_counts_nothing() {
    let mut accepted = Accepted::<u32>::default();
    assert_eq!(accepted.send(1, |_| true), Going::Unplaced { is_counted: false });
    assert!(accepted.stop());
}

#[test]
fn messages_use_up_the_places_of_their_tag_in_order_whether_they_are_written_or_not() {
    let (mut accepted, mut offered, mut ids, mut epochs) = counting();
    for (tag, place) in [(1, 10), (2, 20), (1, 11), (1, 12)] {
        let offer = offered.offer(tag, place, 'r', &mut ids).expect("there are few");
        assert_eq!(accepted.offered(offer, &mut epochs), None);
    }
    assert!(!accepted.stop());
    let place = |going| if let Going::Placed(_, place) = going { place } else { 0 };
    assert_eq!(place(accepted.send(1, |_| true)), 10);
    assert_eq!(accepted.send(1, |place| *place == 12), Going::Unplaced { is_counted: true });
    assert_eq!(place(accepted.send(1, |_| true)), 12);
    assert_eq!(accepted.send(1, |_| true), Going::Unplaced { is_counted: true });
    assert_eq!(place(accepted.send(2, |_| true)), 20);
    assert!(accepted.stop());
}

#[test]
fn no_more_are_outstanding_than_a_sender_accepts() {
    let (mut accepted, mut offered, mut ids, mut epochs) = counting();
    for _ in 0..MOST {
        let offer = offered.offer(1, 1, 'r', &mut ids).expect("not too many");
        assert_eq!(accepted.offered(offer, &mut epochs), None);
    }
    assert_eq!(offered.offer(1, 1, 'r', &mut ids), None);
}

#[test]
fn a_withdrawal_is_answered_unless_the_place_was_used() {
    let (mut accepted, mut offered, mut ids, mut epochs) = counting();
    let offers = [1, 2].map(|tag| offered.offer(tag, 1, 'r', &mut ids).expect("there are few"));
    assert!(offers.iter().all(|offer| accepted.offered(*offer, &mut epochs).is_none()));
    assert!(matches!(accepted.send(1, |_| true), Going::Placed(..)));
    let [used, free] = offers.map(|offer| offer.id);
    assert!(offered.withdraw(used) && !offered.withdraw(used) && offered.withdraw(free));
    assert_eq!([used, free].map(|id| accepted.withdraw(id)), [false, true]);
    assert_eq!([used, free].map(|id| offered.end(id).is_some_and(|offer| offer.is_withdrawn)), [true, true]);
    assert_eq!(offered.end(used), None);
}
