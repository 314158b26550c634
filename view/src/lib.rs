// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as one page of HTML.

#![forbid(unsafe_code)]
