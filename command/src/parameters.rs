// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of ibex that a job started here would have: from the command line, the environment and the user's
//! parameter file, in Open MPI's order. Called by commands that use the engine. Grade: setup. Tests: below.

use anyhow::{Context, Result, bail};
use ibex::tunables::{Faces, Kind, Row, TABLE, Tunables, Value};
use std::collections::HashMap;
use std::path::PathBuf;
use std::{env, fs};
use strsim::levenshtein;

const PREFIXES: [&str; 2] = [Faces::Both.prefix(), Faces::Pml.prefix()];

/// Parameters on the command line.
#[derive(Default, clap::Args)]
pub(crate) struct Given {
    /// Set a parameter as `mpirun --mca` does
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], action = clap::ArgAction::Append)]
    mca: Vec<String>,
}

impl Given {
    pub(crate) fn words(&self) -> Vec<String> {
        let pairs = self.mca.chunks_exact(2);
        pairs.flat_map(|pair| ["--mca".to_owned(), pair[0].clone(), pair[1].clone()]).collect()
    }
}

/// The parameters that differ from the defaults, and all of them.
pub(crate) struct Parameters {
    /// Full names, and values.
    pub(crate) set: Vec<(String, String)>,
    pub(crate) tunables: Tunables,
}

pub(crate) fn of_a_job(given: &Given) -> Result<Parameters> {
    let mut texts = of_file(&fs::read_to_string(file()).unwrap_or_default());
    let variables =
        env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.extend(variables.filter_map(|(name, value)| Some((own(name.strip_prefix("OMPI_MCA_")?)?, value))));
    for pair in given.mca.chunks_exact(2) {
        // Parameters of other components are allowed, as in mpirun.
        if let Some(name) = own(&pair[0]) {
            if !is_known(&name) {
                bail!("ibex has no parameter {}{}", pair[0], alike(&name));
            }
            texts.insert(name, pair[1].clone());
        }
    }
    let values = TABLE.iter().map(|row| match texts.get(&row.full_name()) {
        None => Ok(row.default_value()),
        Some(text) => value(row.kind, text)
            .with_context(|| format!("{} is {text:?}, and not {}", row.full_name(), row.permitted())),
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    let tunables = Tunables::from_values(&values)?;
    let mut set: Vec<_> = texts.into_iter().filter(|(name, _)| is_known(name)).collect();
    set.sort();
    Ok(Parameters { set, tunables })
}

/// Returns the user's file; the system's, which Open MPI reads first, rarely sets parameters of ibex.
fn file() -> PathBuf {
    env::home_dir().unwrap_or_default().join(".openmpi/mca-params.conf")
}

fn own(name: &str) -> Option<String> {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)).then(|| name.to_owned())
}

fn is_known(name: &str) -> bool {
    TABLE.iter().any(|row| row.full_name() == name)
}

fn of_file(text: &str) -> HashMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split('#').next()?.split_once('='));
    lines.filter_map(|(name, value)| Some((own(name.trim())?, value.trim().to_owned()))).collect()
}

fn value(kind: Kind, text: &str) -> Option<Value> {
    Some(match kind {
        Kind::Count { .. } => Value::Count(text.parse().ok()?),
        Kind::Text { .. } => Value::Text(text.to_owned()),
        Kind::Flag { .. } => Value::Flag(match text {
            "1" | "true" | "yes" | "t" | "y" | "enabled" => true,
            "0" | "false" | "no" | "f" | "n" | "disabled" => false,
            _ => return None,
        }),
    })
}

fn alike(name: &str) -> String {
    let names: Vec<String> = TABLE.iter().map(Row::full_name).collect();
    let meant = nearest(name, names.iter().map(String::as_str));
    meant.map_or_else(String::new, |meant| format!("; {meant} is meant, perhaps"))
}

/// Returns the most similar known name, if it is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.min_by_key(|known| levenshtein(known, name)).filter(|known| levenshtein(known, name) <= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_obeyed_and_unknown_names_get_a_suggestion() {
        let given = |name: &str, value: &str| Given { mca: vec![name.to_owned(), value.to_owned()] };
        let parameters = of_a_job(&given("btl_ibex_if_include", "mlx5_*")).expect("a parameter of ibex");
        assert_eq!(parameters.tunables.if_include, "mlx5_*");
        assert!(of_a_job(&given("btl", "self")).is_ok());
        let refused =
            |name, value| of_a_job(&given(name, value)).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(refused("btl_ibex_if_inclide", "x").contains("btl_ibex_if_include is meant"));
        assert!(refused("btl_ibex_min_rate", "fast").contains("0 to 100 percent"));
        assert!(refused("btl_ibex_min_rate", "101").contains("101"));
    }

    #[test]
    fn a_file_of_parameters_has_comments_and_others_names() {
        let text = "# mine\nbtl_ibex_verbose = 1 # loud\nbtl = self\n\nbtl_ibex_mtu=1024\n";
        let found = of_file(text);
        assert_eq!((found.len(), found["btl_ibex_verbose"].as_str(), found["btl_ibex_mtu"].as_str()), (2, "1", "1024"));
    }
}
