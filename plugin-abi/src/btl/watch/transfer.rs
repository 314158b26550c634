// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which message a piece belongs to, and whether it is its first or its last: the transfers of this process under way.
//!
//! Fed with every header that is sent or has arrived (`watch`), says what of a transfer that is ([`Step`]). A message
//! is known by requests: by the sender's in its announcement and what the sender does, by the receiver's as soon as
//! that has one (the sender's may by then be another message's, whose announcement comes by another port). Pieces that
//! the adapter reads or writes are told to the other side by ob1 with the fragment they were announced with, to both
//! sides in the same words; so the reads of a message are pieces of it here. Every byte is counted in one step; of a
//! message of one piece the last step has none.
//!
//! Messages are followed while anybody is registered for them. Who registers first finds some under way: of those that
//! their receiver reads ob1 has noted what they are ([`Transfers::adopt_read`], [`Transfers::adopt_sent`]); of others
//! nothing is shown. Path: behind the branch of a site; no allocation below [`ROOM`] messages at a time, beyond
//! [`MOST`] further ones are not followed. Threads: any; one lock, never held while a callback runs. Tests:
//! `transfer/tests.rs`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use engine::events;
use engine::peer::PeerName;

use super::hasher::PointerHasher;
use super::message::{Key, Message, Piece, PieceKey, whole};
use super::ob1::{self, Envelope, Header};
use super::step::{Read, Sent, Step};

/// Messages under way for which there is room from the start.
const ROOM: usize = 1024;

/// The most that are followed.
const MOST: usize = 1 << 20;

/// The messages under way.
#[derive(Debug, Default)]
struct Transfers {
    messages: HashMap<Key, Message, BuildHasherDefault<PointerHasher>>,
    pieces: HashMap<PieceKey, Piece, BuildHasherDefault<PointerHasher>>,
    /// Announced by a peer, to be read from this address on; until the first read.
    unread: HashMap<(PeerName, u64), Key, BuildHasherDefault<PointerHasher>>,
    /// What the engine said when the first of them was seen ([`engine::events::activation_epoch`]).
    since: u64,
}

/// The next message's number.
static NEXT: AtomicU64 = AtomicU64::new(1);

static TRANSFERS: OnceLock<Mutex<Transfers>> = OnceLock::new();

/// Whether a message with this tag is to be looked at: somebody listens to messages, or it says something of one that
/// is followed.
pub(crate) fn is_of_use(tag: u8) -> bool {
    let active = events::interest();
    active.has_messages() || active.is_registered_for_messages() && !ob1::is_whole(tag)
}

/// What a header that is being sent (`received`: has arrived), with so many `bytes` behind it, is of a transfer;
/// `None`: nothing. `activation_epoch` as the engine says now.
pub(crate) fn step(header: Header, bytes: u64, peer: PeerName, received: bool, activation_epoch: u64) -> Option<Step> {
    if let Header::Match(envelope) = header {
        let message = NEXT.fetch_add(1, Ordering::Relaxed);
        return Some(whole(Message { number: message, ..Message::new(envelope, bytes, 0, peer) }, received));
    }
    followed(activation_epoch).step(header, bytes, peer, received)
}

/// What the read of a peer's memory from `remote` on, which is just begun, is of a transfer: the begin of a message, or
/// nothing. `read` is what ob1 has noted of it.
pub(crate) fn reading(from: PeerName, remote: u64, read: Option<Read>, activation_epoch: u64) -> Option<Step> {
    let mut transfers = followed(activation_epoch);
    if let Some(read) = read {
        transfers.adopt_read(from, read, false);
    }
    transfers.reading(from, remote)
}

/// A read of a message is complete, and its receiver is about to tell the sender: what ob1 has noted of it.
pub(crate) fn was_read(from: PeerName, read: Read, activation_epoch: u64) {
    followed(activation_epoch).adopt_read(from, read, true);
}

/// The receiver of a message is about to be heard of bytes that it has read of `fragment`: `noted` says what ob1 has
/// noted of that.
pub(crate) fn is_told(
    by: PeerName,
    fragment: u64,
    noted: impl FnOnce() -> Option<(Envelope, Sent)>,
    activation_epoch: u64,
) {
    followed(activation_epoch).adopt_sent(by, fragment, noted);
}

/// The messages under way; none, if nobody has listened meanwhile.
fn followed(activation_epoch: u64) -> MutexGuard<'static, Transfers> {
    let transfers = TRANSFERS.get_or_init(|| Mutex::new(Transfers::with_room(ROOM)));
    let mut transfers = transfers.lock().unwrap_or_else(PoisonError::into_inner);
    if transfers.since != activation_epoch {
        transfers.messages.clear();
        transfers.pieces.clear();
        transfers.unread.clear();
        transfers.since = activation_epoch;
    }
    transfers
}

impl Transfers {
    fn with_room(room: usize) -> Transfers {
        Transfers {
            messages: HashMap::with_capacity_and_hasher(room, BuildHasherDefault::default()),
            pieces: HashMap::with_capacity_and_hasher(room, BuildHasherDefault::default()),
            unread: HashMap::with_capacity_and_hasher(room, BuildHasherDefault::default()),
            since: 0,
        }
    }

    fn step(&mut self, header: Header, bytes: u64, peer: PeerName, received: bool) -> Option<Step> {
        // Whose header it is, and to whom; `None` is this process.
        let (from, to) = if received { (Some(peer), None) } else { (None, Some(peer)) };
        let announced = |sender| if received { Key::Announced(peer, sender) } else { Key::Sent(sender) };
        match header {
            Header::Match(_) => None,
            Header::Rendezvous { envelope, total, sender } => {
                let request = if received { 0 } else { sender };
                self.announced(announced(sender), Message::new(envelope, total, request, peer), bytes)
            }
            Header::Get { envelope, total, sender, address, fragment } => {
                let key = announced(sender);
                let piece = (from, fragment);
                let request = if received { 0 } else { sender };
                let (piece_of, address) = (Some(piece), received.then_some(address));
                let message = Message { piece: piece_of, address, ..Message::new(envelope, total, request, peer) };
                let step = self.announced(key, message, 0);
                if self.messages.contains_key(&key) {
                    self.pieces.insert(piece, Piece { of: key, offset: None });
                    if let Some(address) = address {
                        // Of two at one address the first is taken for the one that is read first.
                        self.unread.entry((peer, address)).or_insert(key);
                    }
                }
                step
            }
            // From the receiver of a message to its sender.
            Header::Acknowledgement { sender, receiver } => {
                if !received {
                    self.accepted(peer, sender, receiver);
                }
                None
            }
            Header::Fragment { offset, sender, receiver } => {
                let key = if received { Key::Received(receiver) } else { Key::Sent(sender) };
                self.moved(key, Some(offset), bytes)
            }
            // From the receiver of a message to its sender.
            Header::Put { offset, sender, receiver, fragment, .. } => {
                let key = if received { Key::Sent(sender) } else { self.accepted(peer, sender, receiver) };
                if !self.messages.contains_key(&key) {
                    return None;
                }
                if self.pieces.len() < MOST {
                    self.pieces.insert((from, fragment), Piece { of: key, offset: Some(offset) });
                }
                None
            }
            // From who read or wrote, with the name the other has given.
            Header::Finished { fragment, bytes } => {
                let bytes = u64::try_from(bytes).ok()?;
                let name = (to, fragment);
                let piece = *self.pieces.get(&name)?;
                if piece.offset.is_some() {
                    self.pieces.remove(&name);
                }
                self.moved(piece.of, piece.offset, bytes)
            }
        }
    }

    /// This process has a request for a message of a peer's: it is known by that from now on.
    fn accepted(&mut self, peer: PeerName, sender: u64, receiver: u64) -> Key {
        let key = Key::Received(receiver);
        let Some(mut message) = self.messages.remove(&Key::Announced(peer, sender)) else { return key };
        message.request = receiver;
        if let Some(piece) = message.piece.and_then(|piece| self.pieces.get_mut(&piece)) {
            piece.of = key;
        }
        // It is not read after all.
        self.was_read(Key::Announced(peer, sender), &message);
        self.replace(key, message);
        key
    }

    /// Follows a message, in place of one of the same name of which nothing was heard any more.
    fn replace(&mut self, key: Key, message: Message) {
        if let Some(old) = self.messages.insert(key, message) {
            self.forget(key, &old);
        }
    }

    /// Forgets what a message that is followed no more was known by beside its key.
    fn forget(&mut self, key: Key, message: &Message) {
        if let Some(piece) = message.piece {
            self.pieces.remove(&piece);
        }
        self.was_read(key, message);
    }

    /// A message waits for its first read no more.
    fn was_read(&mut self, key: Key, message: &Message) {
        if let Some(address) = message.address
            && self.unread.get(&(message.peer, address)) == Some(&key)
        {
            self.unread.remove(&(message.peer, address));
        }
    }

    /// A message begins, with so many bytes.
    fn announced(&mut self, key: Key, mut message: Message, bytes: u64) -> Option<Step> {
        message.number = NEXT.fetch_add(1, Ordering::Relaxed);
        let received = key.is_received();
        if bytes >= message.total {
            if let Some(old) = self.messages.remove(&key) {
                self.forget(key, &old);
            }
            return Some(whole(message, received));
        }
        if self.messages.len() >= MOST {
            return received.then(|| Step { arrives: true, ..message.step(0, 0, true) });
        }
        message.done = bytes;
        message.begun = bytes > 0 || !received;
        let step = Step { first: message.begun, arrives: received, ..message.step(0, bytes, received) };
        self.replace(key, message);
        Some(step)
    }

    /// Follows a message that is read here and was announced when nobody was registered; `is_begun`: a read of it was
    /// begun then, too.
    fn adopt_read(&mut self, from: PeerName, read: Read, is_begun: bool) {
        let Header::Get { envelope, total, sender, address, fragment } = read.announcement else { return };
        let piece = (Some(from), fragment);
        if self.pieces.contains_key(&piece) || self.messages.len() >= MOST {
            return;
        }
        let key = Key::Announced(from, sender);
        let begun = is_begun || read.offset > 0;
        let address = (!begun).then_some(address);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Its reads are complete in the order in which they were begun.
        let done = read.offset;
        self.replace(
            key,
            Message { number, done, begun, piece: Some(piece), address, ..Message::new(envelope, total, 0, from) },
        );
        self.pieces.insert(piece, Piece { of: key, offset: None });
        if let Some(address) = address {
            self.unread.entry((from, address)).or_insert(key);
        }
    }

    /// Follows a message that was announced by this process when nobody was registered.
    fn adopt_sent(&mut self, to: PeerName, fragment: u64, noted: impl FnOnce() -> Option<(Envelope, Sent)>) {
        let piece = (None, fragment);
        if self.pieces.contains_key(&piece) || self.messages.len() >= MOST {
            return;
        }
        let Some((envelope, Sent { request, total, done })) = noted() else { return };
        let key = Key::Sent(request);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.replace(key, Message { number, done, piece: Some(piece), ..Message::new(envelope, total, request, to) });
        self.pieces.insert(piece, Piece { of: key, offset: None });
    }

    /// A read of a peer's memory begins.
    fn reading(&mut self, from: PeerName, remote: u64) -> Option<Step> {
        let key = self.unread.remove(&(from, remote))?;
        let message = self.messages.get_mut(&key).filter(|message| !message.begun)?;
        message.begun = true;
        Some(Step { first: true, ..message.step(0, 0, true) })
    }

    /// So many bytes of a message have moved.
    fn moved(&mut self, key: Key, offset: Option<u64>, bytes: u64) -> Option<Step> {
        let message = self.messages.get_mut(&key)?;
        let done = message.done.checked_add(bytes).filter(|done| *done <= message.total)?;
        let step = message.step(offset.unwrap_or(message.done), bytes, key.is_received());
        message.done = done;
        let first = !std::mem::replace(&mut message.begun, true);
        let last = done == message.total;
        if last && let Some(message) = self.messages.remove(&key) {
            self.forget(key, &message);
        }
        Some(Step { first, last, ..step })
    }
}

#[cfg(test)]
mod tests;
