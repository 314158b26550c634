// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for adapters: protection domains, registered memory with the spans of it that work requests name, and ibex's
//! own memory (pages, mappings, arenas of slots). The engine calls it for its buffers, the plugin for user memory.
//! Grade: setup; naming a slot or a span is hot. Threads: any; an arena one at a time.

pub(super) mod arena;
pub(super) mod domain;
pub(super) mod fork;
mod mapping;
pub(super) mod pages;
pub(super) mod registration;
mod slots;
