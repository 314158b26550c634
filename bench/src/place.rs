// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a bench runs: programs, libraries, the device.
//!
//! Given by the caller of the bench; read by what makes command lines. Grade: setup. Plain data.

use super::plan::Kind;
use std::path::Path;

/// What a run over a transport needs to know of the place it runs in.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// The folder of the compiled programs.
    pub programs: &'a Path,
    /// The folder of the component links.
    pub components: &'a Path,
    /// The same of the build without events.
    pub without_events: &'a Path,
    /// The folder of what a run leaves.
    pub reports: &'a Path,
    /// The RDMA device.
    pub device: &'a str,
    /// Its network interface, for the tcp BTL; empty where it has none.
    pub interface: &'a str,
    /// What sort of device it is.
    pub kind: Kind,
    /// Where both sides of a program that does not choose its processor itself are bound to.
    pub processors: Option<[usize; 2]>,
}
