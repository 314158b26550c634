// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of all event types with their elements, and of all sources. Called by `session.rs`. Grade: setup. Threads:
//! any. Tests: tests/log.rs; hw-tests/tests/device/tools.rs.

use crate::catalogue;
use crate::mpi;

pub(crate) fn lines() -> Vec<String> {
    let mut lines = vec!["event types (IBEX_LOG_EVENTS takes their names):".to_owned()];
    for kind in catalogue::types() {
        lines.push(kind.name.clone());
        lines.push(format!("    {}", kind.description));
        for element in &kind.elements {
            lines.push(format!("    {:>4} {:<14} {}", element.at, element.type_name(), element.name));
        }
    }
    lines.push("sources:".to_owned());
    for index in 0..mpi::source_count() {
        let Ok(source) = mpi::source(index) else { continue };
        let order = if source.ordered { "ordered" } else { "unordered" };
        lines.push(format!("{}: {order}, {} ticks per second", source.name, source.ticks_per_second));
        lines.push(format!("    {}", source.description));
    }
    lines
}
