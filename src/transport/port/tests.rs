// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port over a scripted adapter.
