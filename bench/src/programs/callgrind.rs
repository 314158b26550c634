// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files of callgrind: the instructions of each object (a shared library, or the program itself), those that
//! it executed for another object, and the number of calls of functions.
//!
//! The format is in the Callgrind manual, "Callgrind Format Specification": `ob=` names the object of the cost lines
//! after it; a name is given once and then only its number. The line after `calls=` is the cost of the called function,
//! which has lines of its own elsewhere, and is not the caller's. `cob=` names the called function's object if it is
//! another one. A cost line is a position and counts. Called by [`super::instructions`]. Grade: setup. Tests: below.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Profile {
    /// Instructions of each object, by file name.
    pub(crate) objects: BTreeMap<String, u64>,
    /// The part of an object's instructions (the first name) that it executed for another object (the second name).
    pub(crate) on_behalf: BTreeMap<(String, String), u64>,
    /// Upper bound of the calls of each function; only 0 is exact. callgrind counts the calls from each place that the
    /// program has passed while counting was on, the earlier ones included.
    pub(super) calls: BTreeMap<String, u64>,
}

impl Profile {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (mut objects, mut functions) = (BTreeMap::new(), BTreeMap::new());
        let mut profile = Self::default();
        let (mut object, mut called_object, mut callee, mut cost_of_call) = ("", None, "", false);
        for line in text.lines() {
            if let Some(named) = line.strip_prefix("ob=") {
                object = name(named, &mut objects)?;
            } else if let Some(named) = line.strip_prefix("cob=") {
                called_object = Some(name(named, &mut objects)?);
            } else if let Some(named) = line.strip_prefix("fn=") {
                name(named, &mut functions)?;
            } else if let Some(named) = line.strip_prefix("cfn=") {
                callee = name(named, &mut functions)?;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls = calls.split(' ').next().and_then(|count| count.parse::<u64>().ok());
                let calls = calls.with_context(|| format!("callgrind wrote no number of calls: {line}"))?;
                *profile.calls.entry(callee.to_owned()).or_default() += calls;
                cost_of_call = true;
            } else if let Some(count) = cost(line) {
                let counted = if !std::mem::take(&mut cost_of_call) {
                    profile.objects.entry(file_name(object)).or_default()
                } else if let Some(called) = called_object.take() {
                    profile.on_behalf.entry((file_name(called), file_name(object))).or_default()
                } else {
                    continue;
                };
                *counted += count;
            }
        }
        profile.objects.retain(|_, count| *count > 0);
        if profile.objects.is_empty() {
            bail!("callgrind counted nothing");
        }
        Ok(profile)
    }

    /// Upper bound of the calls of these functions.
    pub(crate) fn calls(&self, functions: &[&str]) -> u64 {
        functions.iter().filter_map(|function| self.calls.get(*function)).sum()
    }
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Returns the name for `(3) /lib/x.so` or, once it was given, for `(3)`.
fn name<'a>(text: &'a str, names: &mut BTreeMap<&'a str, &'a str>) -> Result<&'a str> {
    let (number, rest) =
        text.split_once(')').with_context(|| format!("callgrind wrote a name without a number: {text}"))?;
    if let Some(given) = rest.strip_prefix(' ') {
        names.insert(number, given);
    }
    names.get(number).copied().with_context(|| format!("callgrind wrote the number of no name: {text}"))
}

/// Returns the count of a cost line: `16 4`, `+3 2`, `* 1`; a missing count is 0.
fn cost(line: &str) -> Option<u64> {
    let (position, counts) = line.split_once(' ').unwrap_or((line, "0"));
    let digits = position.strip_prefix(['+', '-']).unwrap_or(position);
    let is_position = position == "*" || (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_position { counts.split(' ').next()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
version: 1
positions: line
events: Ir
summary: 1000

ob=(1) /usr/lib/liba.so.1
fl=(1) a.c
fn=(1) outer
16 400
+3 2
cob=(2) /opt/libb.so
cfi=(2) b.c
cfn=(2) malloc
calls=50 0
* 600
-1 1

ob=(2)
fn=(2)
0 590
*
+1 10
totals: 1003
";

    #[test]
    fn each_instruction_is_counted_once_for_its_object_and_calls_by_what_is_called() {
        let profile = Profile::parse(TEXT).unwrap();
        assert_eq!(profile.objects, BTreeMap::from([("liba.so.1".to_owned(), 403), ("libb.so".to_owned(), 600)]));
        let between = ["libb.so", "liba.so.1"].map(str::to_owned).into();
        assert_eq!(profile.on_behalf, BTreeMap::from([(between, 600)]), "what an object has another do");
        assert_eq!((profile.calls(&["malloc", "calloc"]), profile.calls(&["outer"])), (50, 0));
    }

    #[test]
    fn a_file_that_counts_nothing_or_names_nothing_is_an_error() {
        assert!(Profile::parse("events: Ir\n").unwrap_err().to_string().contains("nothing"));
        assert!(Profile::parse("ob=(9)\n1 2\n").unwrap_err().to_string().contains("no name"));
    }
}
