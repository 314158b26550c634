// SPDX-License-Identifier: MIT OR Apache-2.0
//! A timed rule for faults given by command (`softhca ctl`) instead of by the file: the same actions, the same keys and
//! the same checks as of `[[fault]]`.
//!
//! Called by: the command. Grade: setup. Tests: at the end of the file.

use serde::Deserialize;
use toml::{Table, Value};

use super::Config;
use super::faults::Fault;
use crate::engine::faults::FaultRule;

impl Config {
    /// The rule of `action` for a port (`DEVICE` or `DEVICE:PORT`), with further keys, each as `KEY=VALUE`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn command(&self, action: &str, place: &str, keys: &[String]) -> Result<FaultRule, String> {
        let (device, port) = place.split_once(':').unwrap_or((place, "1"));
        let port: u8 = port.parse().map_err(|_| format!("{place:?} is no port: write DEVICE or DEVICE:PORT"))?;
        let mut table = Table::new();
        table.insert("action".to_owned(), action.into());
        table.insert("device".to_owned(), device.into());
        table.insert("port".to_owned(), i64::from(port).into());
        table.insert("at_ns".to_owned(), 0.into());
        for given in keys {
            let (key, value) = given.split_once('=').ok_or_else(|| format!("{given:?} is no KEY=VALUE"))?;
            if table.insert(key.to_owned(), value_of(value)).is_some() {
                return Err(format!("{key} is given already: a command is for one port, now"));
            }
        }
        Fault::deserialize(table).map_err(|error| error.message().trim_end().to_owned())?.rule(&self.devices)
    }
}

/// A number or table as TOML has it, or else a word.
fn value_of(text: &str) -> Value {
    let read = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    read.unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Change;
    use crate::engine::codes::event;
    use crate::engine::faults::FaultAction;

    fn command(action: &str, place: &str, keys: &[&str]) -> Result<FaultRule, String> {
        let config = Config::parse("[[device]]\n[[device]]\n[[device.port]]\n[[device.port]]\n").unwrap();
        config.command(action, place, &keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_is_a_rule_that_is_due() {
        let rule =
            |device, port, action| FaultRule { device: Some(device), port: Some(port), ..FaultRule::always(action) };
        let down = FaultAction::LinkDown { at_ns: 0, for_ns: 5 };
        assert_eq!(command("link-down", "softhca1:2", &["for_ns=5"]), Ok(rule(1, 2, down)));
        assert_eq!(command("link-up", "softhca0", &[]), Ok(rule(0, 1, FaultAction::LinkUp { at_ns: 0 })));
        let (kind, change) = (event::PKEY_CHANGE, Change::Pkey(0, 0x8001));
        let keys = ["event=PKEY_CHANGE", "pkey=0x8001"];
        let change = FaultAction::Change { kind, at_ns: 0, change };
        assert_eq!(command("event", "softhca0", &keys), Ok(rule(0, 1, change)));
        let gid = command("event", "softhca0:1", &["event=GID_CHANGE", "gid=fe80::9"]).unwrap();
        assert!(matches!(gid.action, FaultAction::Change { change: Change::Gid(0, gid), .. } if gid.raw[15] == 9));
    }

    #[test]
    fn what_is_wrong_with_a_command_is_said() {
        for (action, place, keys, words) in [
            ("link-down", "softhca7", &[][..], "softhca0, softhca1"),
            ("link-down", "softhca0:2", &[], "port = 2"),
            ("link-down", "softhca0:x", &[], "DEVICE:PORT"),
            ("link-down", "softhca0", &["lid=3"], "lid"),
            ("link-up", "softhca0", &["for_ns=3"], "for_ns"),
            ("link-up", "softhca0", &["at_ns=3"], "now"),
            ("link-up", "softhca0", &["soon"], "KEY=VALUE"),
            ("link-up", "softhca0", &["color=3"], "color"),
            ("event", "softhca0", &["event=LID_CHANGED"], "LID_CHANGE"),
            ("event", "softhca0", &["event=LID_CHANGE", "lid=0"], "lid = 0"),
        ] {
            let error = command(action, place, keys).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
