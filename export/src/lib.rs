// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job in the formats of other tools.

#![forbid(unsafe_code)]
