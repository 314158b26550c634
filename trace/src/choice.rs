// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list in which a user names the events to record: its separators, the groups, and names with or without ibex's
//! prefix. `ibex trace` and the recorders (event-log, provider) read it. Grade: setup. Threads: plain data. Tests:
//! below; in command/src/trace.rs.

/// Groups of events.
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

/// Groups, and the beginnings of their events' names; the first group with one counts.
const BEGINNINGS: [(&str, &[&str]); 9] = [
    ("searches", &["comm_search_"]),
    ("transfers", &["xfer_begin", "xfer_continue"]),
    ("messages", &["comm_", "xfer_", "msg_"]),
    ("calls", &["mpi_call_"]),
    ("communicators", &["communicator_"]),
    ("operations", &["put_", "get_", "atomic_", "flush_"]),
    ("connections", &["connection_"]),
    ("waits", &["queued_", "receiver_not_ready", "registration_"]),
    ("incidents", &["device_", "port_"]),
];

/// Returns the group of an event, by its name. Events of later versions that belong to no group are in `default`.
fn group(name: &str) -> &'static str {
    let has = |beginnings: &[&str]| beginnings.iter().any(|beginning| short(name).starts_with(beginning));
    BEGINNINGS.iter().find(|(_, beginnings)| has(beginnings)).map_or("default", |(group, _)| group)
}

/// The names in a list, or in the default.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen(Vec<String>);

impl Chosen {
    /// Reads the value of a variable. Without names in it, it is read as `default`.
    pub fn from(value: Option<&str>, default: &str) -> Chosen {
        let value = value.filter(|value| listed(value).next().is_some()).unwrap_or(default);
        let mut seen = std::collections::BTreeSet::new();
        Chosen(listed(value).filter(|name| seen.insert(*name)).map(str::to_owned).collect())
    }

    /// Whether no name was chosen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the indexes of the chosen types among these names, and the chosen names that no type or group has.
    ///
    /// The group `default` lacks events that add little: searches; beginnings of transfers; the
    /// freeing of a request, usually at its end; flushes, because the ends of one-sided operations show the wait.
    pub fn choose(&self, types: &[&str]) -> (Vec<usize>, Vec<String>) {
        let is = |name: &str, known: &str| match name {
            "all" => true,
            "default" => {
                group(known) != "searches"
                    && !matches!(short(known), "xfer_begin" | "comm_req_free" | "flush_started" | "flush_complete")
            }
            name => short(known) == short(name) || group(known) == name,
        };
        let wanted = |known: &&str| self.0.iter().any(|name| is(name, known));
        let chosen = types.iter().enumerate().filter(|(_, known)| wanted(known)).map(|(index, _)| index).collect();
        let is_known = |name: &str| GROUPS.contains(&name) || types.iter().any(|known| is(name, known));
        let unknown = self.0.iter().filter(|name| !is_known(name)).cloned().collect();
        (chosen, unknown)
    }
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

    #[test]
    fn a_value_without_names_is_read_as_the_default() {
        let names = |value| Chosen::from(value, "default").0;
        assert_eq!(names(Some("a,b:c;d e")), ["a", "b", "c", "d", "e"]);
        assert_eq!(names(Some(" a, ,b a")), ["a", "b"]);
        for nothing in [None, Some(""), Some(" ,;: ")] {
            assert_eq!(names(nothing), ["default"]);
            assert!(Chosen::from(nothing, "").is_empty());
        }
    }

    #[test]
    fn choose_accepts_the_prefix_and_returns_unknown_names() {
        let types = ["ibex_xfer_begin", "ibex_xfer_end", "other"];
        let chosen = |text| Chosen::from(Some(text), "").choose(&types);
        assert_eq!(chosen("xfer_end,ibex_xfer_begin"), (vec![0, 1], vec![]));
        assert_eq!(chosen("ibex_xfer_end"), (vec![1], vec![]));
        assert_eq!(chosen("other xfer"), (vec![2], vec!["xfer".to_owned()]));
        assert_eq!(chosen("all"), (vec![0, 1, 2], vec![]));
        assert_eq!(chosen(""), (vec![], vec![]));
    }

    #[test]
    fn groups_stand_for_their_events_and_searches_are_left_out_unless_they_are_named() {
        let types = "ibex_xfer_end ibex_comm_msg_arrived ibex_comm_search_unex_q_end ibex_new ibex_queued_end \
                     ibex_xfer_begin ibex_comm_req_cancel ibex_comm_req_free ibex_flush_started ibex_flush_complete";
        let types: Vec<&str> = types.split(' ').collect();
        let chosen = |text| Chosen::from(text, "default").choose(&types);
        assert_eq!(chosen(None), (vec![0, 1, 3, 4, 6], vec![]));
        assert_eq!(chosen(Some("messages")), (vec![0, 1, 6, 7], vec![]));
        assert_eq!(chosen(Some("waits,searches,new")), (vec![2, 3, 4], vec![]));
        assert_eq!(chosen(Some("default,searches,transfers,comm_req_free,operations")), chosen(Some("all")));
        assert_eq!(chosen(Some("mesages,xfer_end,operations")), (vec![0, 8, 9], vec!["mesages".to_owned()]));
    }
}
