// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of communicators by context, the number that messages carry. Contexts are small numbers: Open MPI takes
//! the lowest that is free on all members, and reuses those of freed communicators. So the table is an array, and a
//! lookup one load. Communicators created without a parent have large numbers, from [`Contexts::EXTENDED`] on, which a
//! lookup finds in a map.
//!
//! A message may arrive for a context that this process has not added yet. The table keeps it, and `add` returns such
//! messages in order of arrival; a thread that adds a context delivers them before another thread looks up, so that no
//! later message overtakes them. A message never makes the array longer, so a damaged context costs only its own
//! memory. Messages that a communicator has not received when it ends are lost. The table keeps later ones for the next
//! communicator of that context; MPI forbids a program to send them. Called by `receive/search.rs` and the host. Grade:
//! hot for a lookup, else setup. Threads: the owner's. Tests: `tests/contexts.rs`.

use std::collections::BTreeMap;

/// Communicators (`C`) by context, and messages (`M`) for contexts not yet added.
#[derive(Debug)]
pub struct Contexts<C, M> {
    communicators: Vec<Option<C>>,
    extended: BTreeMap<u32, C>,
    /// By context, in order of arrival. The cost of `add` does not depend on the messages for other contexts.
    pub(super) kept: BTreeMap<u32, Vec<M>>,
}

impl<C, M> Default for Contexts<C, M> {
    fn default() -> Self {
        Contexts::new()
    }
}

impl<C, M> Contexts<C, M> {
    /// Upper bound, exclusive, of the small contexts.
    pub const LIMIT: u32 = 1 << 20;

    /// The first of the large contexts.
    pub const EXTENDED: u32 = 1 << 23;

    /// Upper bound, exclusive: headers have 24 bits for a context (`messenger/header`).
    const END: u32 = 1 << 24;

    /// Makes a table without communicators.
    pub const fn new() -> Self {
        Contexts { communicators: Vec::new(), extended: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// Returns the communicator with this context.
    #[inline]
    pub fn get(&self, context: u32) -> Option<&C> {
        match self.communicators.get(context as usize) {
            Some(one) => one.as_ref(),
            None => self.get_extended(context),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_extended(&self, context: u32) -> Option<&C> {
        self.extended.get(&context)
    }

    /// Adds a communicator. Returns the messages that arrived for it, in order, to be delivered before any other.
    /// `None`: another communicator has this context, or the context is out of both ranges.
    pub fn add(&mut self, context: u32, communicator: C) -> Option<Vec<M>> {
        if self.get(context).is_some() {
            return None;
        }
        match context {
            0..Self::LIMIT => {
                let at = context as usize;
                if at >= self.communicators.len() {
                    self.communicators.resize_with(at + 1, || None);
                }
                self.communicators[at] = Some(communicator);
            }
            Self::EXTENDED..Self::END => {
                self.extended.insert(context, communicator);
            }
            _ => return None,
        }
        Some(self.kept.remove(&context).unwrap_or_default())
    }

    /// Removes a communicator; its context can be added again.
    pub fn remove(&mut self, context: u32) -> Option<C> {
        match self.communicators.get_mut(context as usize) {
            Some(one) => one.take(),
            None => self.extended.remove(&context),
        }
    }

    /// Returns the communicators.
    pub fn all(&self) -> impl Iterator<Item = &C> {
        self.communicators.iter().flatten().chain(self.extended.values())
    }

    /// Returns the messages that arrived before their communicators, those of each in order.
    pub fn kept(&mut self) -> impl Iterator<Item = &mut Vec<M>> {
        self.kept.values_mut()
    }

    /// Keeps a message whose context has no communicator.
    pub fn keep(&mut self, context: u32, message: M) {
        debug_assert!(self.get(context).is_none(), "context {context} has a communicator");
        self.kept.entry(context).or_default().push(message);
    }
}
