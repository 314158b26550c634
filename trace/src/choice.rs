// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list in which a user names the events to record: its separators, the groups, and names with or without ibex's
//! prefix. `ibex trace` and the recorder (event-log) read it. Grade: setup. Threads: plain data. Tests: below; in
//! event-log/src/settings.rs and command/src/trace.rs.

/// Groups of events; the recorder says which events each has.
pub const GROUPS: [&str; 11] = [
    "all",
    "default",
    "messages",
    "calls",
    "searches",
    "communicators",
    "transfers",
    "operations",
    "connections",
    "waits",
    "incidents",
];

/// The names in a list.
pub fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ':', ';', ' ', '\t', '\n']).filter(|name| !name.is_empty())
}

/// The name of an event without its prefix, `ibex_`.
pub fn short(name: &str) -> &str {
    name.strip_prefix("ibex_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comma_colon_semicolon_and_white_space_separate_names() {
        assert_eq!(listed(" a, ,b:c;d e\tf\n").collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(listed(" ,;: ").next(), None);
    }

    #[test]
    fn a_name_has_the_prefix_or_none() {
        assert_eq!(["ibex_xfer_end", "xfer_end"].map(short), ["xfer_end"; 2]);
    }
}
