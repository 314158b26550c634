// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each rule is needed: the exploration finds what goes wrong without it. So it also is shown that the exploration sees
//! what it is to see.

use super::explore::{First, choices, explore};
use super::world::{Budget, LeftOut, World};

/// A message is received by another receive than matching says, or memory is written to that is not its own any more.
fn goes_wrong(left_out: LeftOut, budget: Budget) {
    find(World { is_compared: false, ..World::new(1, budget, left_out) });
}

/// Or the two sides do not know the same places, though nothing is under way: some would never be used.
fn differs(left_out: LeftOut, budget: Budget) {
    find(World::new(1, budget, left_out));
}

fn find(world: World) {
    let (left_out, in_order) = (world.left_out, world.budget.losses > 0);
    match explore(world, &choices(in_order), First::Shortest) {
        Ok(found) => panic!("nothing goes wrong without {left_out:?} in {} states", found.states),
        Err(found) => println!("without {left_out:?}: {}, by {:?}", found.what, found.moves),
    }
}

const FEW: Budget = Budget { posts: 3, sends: 2, offers: 3, ..Budget::NONE };

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn what_crosses_an_offer_must_be_counted() {
    goes_wrong(LeftOut::Count, FEW);
    differs(LeftOut::Reset, FEW);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_refusal_must_void_what_was_offered_before_it_was_heard() {
    goes_wrong(LeftOut::Epoch, FEW);
    goes_wrong(LeftOut::LaterOnes, FEW);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn what_is_posted_before_must_have_been_offered() {
    goes_wrong(LeftOut::Wildcards, FEW);
    goes_wrong(LeftOut::NotOffered, FEW);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_receiver_must_note_what_it_does_not_offer() {
    let world = World::new(1, Budget { posts: 4, ..FEW }, LeftOut::HeldBack);
    find(World { offers_at_once: true, ..world });
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_message_must_use_up_the_oldest_place_of_its_tag() {
    goes_wrong(LeftOut::UsedUp, FEW);
    goes_wrong(LeftOut::Oldest, FEW);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_cancel_must_wait_for_its_answer() {
    goes_wrong(LeftOut::Answer, Budget { cancels: 1, ..FEW });
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn an_offer_in_an_unknown_communicator_must_be_refused() {
    goes_wrong(LeftOut::Unknown, Budget { posts: 2, sends: 1, offers: 3, lives: 1, ..Budget::NONE });
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_lost_connection_must_void_what_was_accepted() {
    goes_wrong(LeftOut::Void, Budget { posts: 1, sends: 1, offers: 2, losses: 1, ..Budget::NONE });
}
