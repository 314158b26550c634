// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered memory: the table that all processes read (`table`), memory regions (`object`), windows (`window`).

pub(crate) mod object;
pub(crate) mod table;
pub(crate) mod window;
