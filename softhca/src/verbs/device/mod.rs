// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices before and after they are opened: the list of them (`list`), and a program's queries (`query`).

pub(crate) mod list;
pub(crate) mod query;
