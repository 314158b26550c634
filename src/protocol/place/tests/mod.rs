// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of places: the machines in a world of processes, wires and matching by lists (`world.rs`, `moves.rs`), all of
//! whose histories are explored up to a number of sends and receives (`explore.rs`, its states made comparable by
//! `shape.rs`), and random ones that are longer (`random.rs`). Each rule left out gives a counterexample
//! (`mutations.rs`). What is simple is tested where it is, or here.

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
    let first = offered.offer(0, true, 0, 'x', &mut ids).expect("the first");
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
        let offer = offered.offer(tag, false, place, 'r', &mut ids).expect("there are few");
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
        let offer = offered.offer(1, false, 1, 'r', &mut ids).expect("not too many");
        assert_eq!(accepted.offered(offer, &mut epochs), None);
    }
    assert_eq!(offered.offer(1, false, 1, 'r', &mut ids), None);
}

#[test]
fn a_withdrawal_is_answered_unless_the_place_was_used() {
    let (mut accepted, mut offered, mut ids, mut epochs) = counting();
    let offers = [1, 2].map(|tag| offered.offer(tag, true, 1, 'r', &mut ids).expect("there are few"));
    assert!(offers.iter().all(|offer| accepted.offered(*offer, &mut epochs).is_none()));
    assert!(matches!(accepted.send(1, |_| true), Going::Placed(..)));
    let [used, free] = offers.map(|offer| offer.id);
    assert!(offered.withdraw(used) && !offered.withdraw(used) && offered.withdraw(free));
    assert_eq!([used, free].map(|id| accepted.withdraw(id)), [false, true]);
    assert_eq!([used, free].map(|id| offered.end(id).is_some_and(|offer| offer.is_withdrawn)), [true, true]);
    assert_eq!(offered.end(used), None);
}

#[test]
fn a_receive_that_is_not_offered_holds_back_those_of_its_tag_until_one_is_the_first_again() {
    let (_, mut offered, mut ids, _) = counting();
    assert!(offered.may_offer(1, true) && !offered.may_offer(1, false));
    let first = offered.offer(1, true, 0, 'a', &mut ids).expect("the first");
    assert!(offered.may_offer(1, false) && !offered.may_offer(2, false));
    offered.hold_back(Some(2));
    assert!(offered.may_offer(1, false));
    offered.hold_back(None);
    assert!(!offered.may_offer(1, false));
    assert!(offered.end(first.id).is_some() && !offered.may_offer(1, false));
    offered.offer(1, true, 0, 'b', &mut ids).expect("the first again");
    assert!(offered.may_offer(1, false));
}

#[test]
fn those_that_are_refused_hold_back_others_until_all_of_them_are_offered_again() {
    let (mut accepted, mut offered, mut ids, mut epochs) = counting();
    let first = offered.offer(1, true, 0, 'a', &mut ids).expect("the first");
    offered.offer(1, false, 0, 'b', &mut ids).expect("the second");
    let void = offered.refused(accepted.refuse(first.id, &mut epochs));
    assert_eq!(void.iter().map(|offer| offer.request).collect::<Vec<_>>(), ['a', 'b']);
    assert!(offered.offer_again(void[0], 0, &mut ids).is_some() && !offered.may_offer(1, false));
    assert!(offered.offer_again(void[1], 0, &mut ids).is_some() && offered.may_offer(1, false));
}
