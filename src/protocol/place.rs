// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver first: a receiver that waits for a message tells its sender where to, and the sender writes it there once.
//! No request, no read, no copy.
//!
//! One [`Accepted`] at the sender and one [`Offered`] at the receiver for each pair of them in a communicator; the
//! caller carries what they say, matches, and writes (`placing` and `offering` of the plugin's `pml`). Pending grade: a
//! sender to whom nothing is offered has none of it. Threads: the owner's. Tests: `place/tests/`, an exploration of all
//! histories up to a length, and random ones that are longer.
//!
//! ```text
//! receive posted   Offer(id, epoch, after, tag, place) ---->   accepted: waits for a message with this tag
//!                  <======= write, with id =================   sent: the oldest place of its tag is its
//! done
//!                  Offer(id, epoch, after, tag, place) ---->   something crosses it, or there is no room
//!                  <----------------- Refused(id, epoch')      it and all later ones are void
//!                  Withdraw(id) --------------------------->   not used yet
//! cancelled        <------------------------ Withdrawn(id)
//! ```
//!
//! # Rules
//!
//! Messages that are not written to a place are *unplaced*: they come as ever and are matched as ever.
//!
//! - **W, who may offer.** A posted receive may be offered to S at any time, if it names S and a tag t, and each
//!   receive posted before it that could take a message (S, t) has an offer to S outstanding. So a wildcard, or a
//!   receive that was not offered, holds back those behind it, of its tag. One behind it, posted later, holds back
//!   nothing. The receiver's machine knows enough of that if it is told what is posted while offers are outstanding,
//!   and whether a receive is the first of its kind ([`Offered::may_offer`]); it offers less than it might.
//! - **N, nothing crosses.** S counts the unplaced messages that it sends after it has told an epoch, R those that it
//!   deals with after it has heard it. An offer has R's epoch and R's count. S accepts it only if both are its own.
//! - **E, epochs.** What S does not accept it refuses: it tells a new epoch, which no offer has had, and counts from 0.
//!   All offers of other epochs are void, and S need not say so: R takes each outstanding offer that is not older than
//!   the refused one for not made. The receives stay posted, and may be offered again, in order. S begins so as well:
//!   the first offer is refused.
//! - **F, in order.** A message with tag t uses up the oldest accepted offer of t, whether it is written there or not:
//!   too long a one, or one that cannot be written, goes unplaced.
//! - **M.** An unplaced message goes to the first receive that takes it. If that was offered, the offer is forgotten.
//! - **C, cancel.** An offered receive stays posted until S has answered that the place is not used, or the offer is
//!   refused, or the connection has gone, or a message comes: then it is received, and was not cancelled.
//!
//! # Why this is right
//!
//! What S says (messages of either kind, epochs, answers) arrives in order, as does what R says. To be shown: a message
//! that is written to a place is one that its receive would get by matching when it arrives; and no place is written to
//! after its receive has gone.
//!
//! 1. *An offer O of tag t that S accepts crosses no unplaced message.* It has the epoch that S told last, so R had
//!    heard that when it made the offer, and all that S had sent before. By the count it had all unplaced messages
//!    since.
//! 2. *Each offer of t that was outstanding at R when O was made, S has accepted before O.* If it had refused one, then
//!    in the epoch of O or before; R had heard of that before it made O, so that one was not outstanding any more (E).
//! 3. *The accepted offers of t at S are those of the first receives at R that could take a message (S, t) sent now, in
//!    order*, once what is under way has been dealt with. It holds when O comes: by W and 2 whatever is posted before
//!    its receive was accepted before. S uses them up from the front (F); each message takes at R what it used up at S,
//!    as all before it have (induction, and channels in order). What R posts later is behind. A receive between them
//!    leaves by C alone, at both sides. A message of another sender takes none of them, as each names S.
//! 4. *A written message meets the first receive that takes it*: by 3, it used up the first.
//! 5. *An unplaced message that meets an offered receive leaves no offer of it at S.* It used the offer up (F), or it
//!    was sent when S had none of its tag; then the offer was not accepted yet, and it never will be, by 1, as the
//!    message came after the offer was made.
//! 6. *No place is written to after its receive has gone*: it goes by its own message, by another (5: no offer is left)
//!    or by C.
//!
//! # What else there is
//!
//! - **Wildcards posted after an offer** are behind it. Messages for which there is no place left go to them.
//! - **Probes** see unexpected messages. A written message is never unexpected: its receive was posted, and MPI lets no
//!   probe see it.
//! - **Longer than the place**: unplaced, so that the receiver truncates as ever. Shorter: the write says how long it
//!   is.
//! - **Synchronous sends** need no acknowledgement when written: an accepted offer is of a receive that is posted and
//!   will have it.
//! - **Several communicators** have each their own machines, with ids and epochs out of one counter of the process.
//! - **A communicator that S does not know** (yet, or any more): its offers are refused with a new epoch ([`refusal`]),
//!   not dropped, as R would take them for accepted; a withdrawal is answered. A context that is used again may get an
//!   offer, or a refusal, of its former life: as no id and no epoch comes twice, the offer is not accepted, and the
//!   refusal voids offers which S, that has told nothing yet, refuses anyway.
//! - **Several paths** for a pair: all that S says is numbered and dealt with in its turn (`matching/sequence.rs`), and
//!   R says what is said here by one path. A write that lands before its turn does no harm, as its receive stays posted
//!   (the exploration has writes land in any order).
//! - **A connection that is lost**: both sides void all offers before the new one carries anything ([`Accepted::void`],
//!   [`Offered::void`]). What was not received goes again, unplaced. What the adapter has written, the receiver deals
//!   with first.
//! - **Messages to oneself** are copied; nothing is offered.
//! - **Nothing is paid where nothing is offered**: S counts from the first refusal on, and a message says that it is
//!   counted. Once it has no place left S may stop counting ([`Accepted::stop`]): the next offer is refused.
//!
//! # The price of a cancel
//!
//! MPI wants that a cancelled receive ends without the other process' help (3.8.4). An answer needs its help. What can
//! be done:
//!
//! | way | price |
//! |---|---|
//! | offer only what cannot be cancelled: blocking receives, and the library's own (negative tags) | nonblocking ones go sender first |
//! | a key for each place, revoked by a cancel | a registration for each offer; a write that crosses the cancel breaks the connection |
//! | ask, and after a while without an answer break the connection | nothing, until a sender is silent; then a connection made anew |
//!
//! The last is chosen for whoever can make a connection anew: breaking it is local, as a queue pair that is destroyed
//! writes nothing any more, and a cancel in a thousand programs pays it. Whoever cannot offers only what cannot be
//! cancelled.

mod accepted;
mod offer;
mod offered;
#[cfg(test)]
mod tests;

pub use accepted::{Accepted, Going, refusal};
pub use offer::{Epoch, Epochs, MOST, Offer, OfferId, OfferIds, Refused};
pub use offered::{Offered, Outstanding};
