// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers: registered memory of a port, to which a message is copied before the port sends it.
//!
//! There are two sizes: the eager limit, and a receive slot for fragments of long messages. Used by `transmit`,
//! `fragment`, `failover` and `completions`, and by hosts that copy messages themselves. Grade: hot (a pop, a push); an
//! empty list grows (pending). Threads: the one that has entered the messenger. Tests: below.

use ibex_ffi::verbs::LocalSpan;

use crate::transport::Port;
use crate::transport::adapter::Adapter;

/// Names a buffer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(pub u32);

impl BufferId {
    /// Names no buffer.
    pub const NONE: BufferId = BufferId(END);
}

/// Contents of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<T> {
    /// A message that no request waits for, or nothing.
    Silent,
    /// A fragment of this send's message.
    Fragment(T),
}

struct Buffer<T> {
    span: LocalSpan,
    content: Content<T>,
    /// Index of the next free buffer; [`END`]: none.
    next: u32,
    is_large: bool,
}

/// End of a list of free buffers.
const END: u32 = u32::MAX;

/// The send buffers of a port. `T` names a request.
pub struct SendBuffers<T> {
    all: Vec<Buffer<T>>,
    eager: Free,
    large: Free,
}

/// Free buffers of one size.
struct Free {
    /// Index of the buffer that was given back last; [`END`]: none is free.
    first: u32,
    /// Length of a buffer, bytes.
    size: usize,
    made: u32,
    most: u32,
}

const GROW_BY: u32 = 32;

/// Most send buffers of each size per port.
pub const MOST: u32 = 256;

impl<T: Copy> SendBuffers<T> {
    /// Makes empty lists for buffers of `eager` and of `large` bytes, headers included; at most `most` of each.
    pub fn new(eager: usize, large: usize, most: u32) -> Self {
        let free = |size| Free { first: END, size, made: 0, most };
        SendBuffers { all: Vec::new(), eager: free(eager), large: free(large) }
    }

    /// Takes a buffer for a message of `length` bytes, header included. Returns it with these bytes of it. `None`: the
    /// message is too long, or no buffer is free and none can be made.
    #[inline]
    pub fn take<A: Adapter>(&mut self, port: &mut Port<A>, length: usize) -> Option<(BufferId, LocalSpan)> {
        if length > self.eager.size || self.eager.first as usize >= self.all.len() && !self.grow(port, false) {
            return None;
        }
        let (buffer, known) = (self.eager.first, &self.all[self.eager.first as usize]);
        self.eager.first = known.next;
        Some((BufferId(buffer), known.span.first(length as u32)))
    }

    /// Takes a buffer for a fragment. Returns it with all its bytes.
    pub fn take_large<A: Adapter>(&mut self, port: &mut Port<A>) -> Option<(BufferId, LocalSpan)> {
        if self.large.first == END && !self.grow(port, true) {
            return None;
        }
        let (buffer, known) = (self.large.first, &self.all[self.large.first as usize]);
        self.large.first = known.next;
        Some((BufferId(buffer), known.span))
    }

    /// Whether buffers for fragments exist, so that one will become free.
    pub fn has_large(&self) -> bool {
        self.large.made > 0
    }

    /// Whether a buffer for fragments is free.
    pub fn has_free_large(&self) -> bool {
        self.large.first != END
    }

    /// Notes that a buffer contains a fragment of this send's message. Returns the first `length` bytes of the buffer.
    pub fn set_fragment(&mut self, buffer: BufferId, send: T, length: usize) -> LocalSpan {
        let known = &mut self.all[buffer.0 as usize];
        known.content = Content::Fragment(send);
        known.span.first(length as u32)
    }

    /// Gives back a buffer that the adapter does not use any more. Returns what it contained.
    #[inline(never)]
    pub fn give_back(&mut self, buffer: BufferId) -> Content<T> {
        let known = &mut self.all[buffer.0 as usize];
        let free = if known.is_large { &mut self.large } else { &mut self.eager };
        known.next = std::mem::replace(&mut free.first, buffer.0);
        std::mem::replace(&mut known.content, Content::Silent)
    }

    /// Gives back a buffer whose message was sent. Returns false for a buffer with a fragment, as only large ones have,
    /// and for [`BufferId::NONE`].
    #[inline]
    pub fn give_back_silent(&mut self, buffer: BufferId) -> bool {
        let Some(known) = self.all.get_mut(buffer.0 as usize) else { return false };
        let is_silent = matches!(known.content, Content::Silent);
        if is_silent {
            known.next = std::mem::replace(&mut self.eager.first, buffer.0);
        }
        is_silent
    }

    /// Returns the number of buffers that are not free.
    pub fn in_use(&self) -> usize {
        let after = |buffer: u32| self.all.get(buffer as usize).map(|known| known.next);
        let free = |list: &Free| std::iter::successors(Some(list.first), |at| after(*at)).count() - 1;
        self.all.len() - free(&self.eager) - free(&self.large)
    }

    /// Makes more buffers of a size. Returns false if none can be made.
    #[cold]
    fn grow<A: Adapter>(&mut self, port: &mut Port<A>, is_large: bool) -> bool {
        let free = if is_large { &mut self.large } else { &mut self.eager };
        let count = GROW_BY.min(free.most - free.made);
        if count == 0 {
            return false;
        }
        let Ok(spans) = port.grow(free.size as u32, count) else { return false };
        free.made += spans.len() as u32;
        for span in spans {
            let next = std::mem::replace(&mut free.first, self.all.len() as u32);
            self.all.push(Buffer { span, content: Content::Silent, next, is_large });
        }
        free.first != END
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerName;
    use crate::select::address::PortEntry;
    use crate::select::address::tests::ethernet;
    use crate::select::key::Key;
    use crate::transport::adapter::simulated::{self, Script, Sizes};
    use crate::transport::{Atomics, Directory, Setup};
    use crate::tunables::Tunables;

    /// A job of one process.
    struct Alone;

    impl Directory for Alone {
        fn entry(&self, _peer: PeerName, _port: u8) -> Option<PortEntry> {
            None
        }
        fn host(&self, _peer: PeerName) -> String {
            String::new()
        }
    }

    fn port() -> Port<simulated::Adapter> {
        let sizes = Sizes { inline: 64, bounce: 1024, receive: 4096, slots: 16, bounces: 64, depth: 8 };
        let entry = PortEntry { address: ethernet(), key: Key::from_bytes([1; Key::SIZE]) };
        let setup = Setup {
            index: 0,
            me: PeerName { job: 1, rank: 0 },
            instance: None,
            processes: 1,
            ports: 1,
            receive_size: sizes.receive,
            bounce_size: sizes.bounce,
            sleeps: false,
            directory: Box::new(Alone),
        };
        let device = Script::default().device(sizes, Atomics::None, entry);
        Port::of_stand_in(device, &Tunables::default(), setup).expect("the script refuses nothing")
    }

    #[test]
    fn each_size_has_as_many_buffers_as_are_taken_at_a_time_up_to_its_limit() {
        const MOST: u32 = GROW_BY + 8;
        let (mut port, mut buffers) = (port(), SendBuffers::<char>::new(64, 256, MOST));
        let has_large = |buffers: &SendBuffers<char>| [buffers.has_large(), buffers.has_free_large()];
        assert!(buffers.take(&mut port, 65).is_none(), "the message is too long");
        let taken: Vec<BufferId> = std::iter::from_fn(|| Some(buffers.take(&mut port, 64)?.0)).collect();
        assert_eq!((taken.len(), buffers.in_use(), has_large(&buffers)), (MOST as usize, MOST as usize, [false; 2]));
        let large: Vec<BufferId> = std::iter::from_fn(|| Some(buffers.take_large(&mut port)?.0)).collect();
        assert_eq!(
            (large.len(), buffers.in_use(), has_large(&buffers)),
            (MOST as usize, 2 * MOST as usize, [true, false])
        );
        // A buffer that comes back is used again before another is made.
        buffers.give_back(large[3]);
        assert_eq!(has_large(&buffers), [true; 2]);
        assert_eq!(buffers.take_large(&mut port).map(|(buffer, _)| buffer), Some(large[3]));
    }

    fn buffers() -> SendBuffers<char> {
        let mut buffers = SendBuffers::new(64, 256, 4);
        for (index, is_large) in [false, true, false, true].into_iter().enumerate() {
            let free = if is_large { &mut buffers.large } else { &mut buffers.eager };
            let next = std::mem::replace(&mut free.first, index as u32);
            buffers.all.push(Buffer { span: LocalSpan::EMPTY, content: Content::Silent, next, is_large });
        }
        buffers
    }

    fn take(buffers: &mut SendBuffers<char>, is_large: bool) -> u32 {
        let free = if is_large { &mut buffers.large } else { &mut buffers.eager };
        let taken = free.first;
        free.first = buffers.all[taken as usize].next;
        taken
    }

    #[test]
    fn a_buffer_returns_to_the_list_of_its_size_and_forgets_its_content() {
        let mut buffers = buffers();
        assert_eq!([take(&mut buffers, true), take(&mut buffers, false)], [3, 2]);
        assert_eq!((buffers.in_use(), buffers.has_free_large()), (2, true));
        buffers.set_fragment(BufferId(3), 'a', 0);
        assert!(!buffers.give_back_silent(BufferId(3)) && buffers.give_back_silent(BufferId(2)));
        assert_eq!((buffers.in_use(), take(&mut buffers, false)), (1, 2));
        assert_eq!(buffers.give_back(BufferId(3)), Content::Fragment('a'));
        assert_eq!((take(&mut buffers, true), take(&mut buffers, true)), (3, 1));
        assert!(!buffers.has_free_large());
        assert_eq!(buffers.give_back(BufferId(3)), Content::Silent);
    }
}
