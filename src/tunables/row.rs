// SPDX-License-Identifier: MIT OR Apache-2.0
//! One parameter: its type and permitted values ([`Row`]), the user's value ([`Value`]), and the refusal of a value
//! ([`OutOfBounds`]). Grade: setup. Threads: plain data. Tests: `tests.rs`.

/// The type of a parameter, its default, and its permitted values.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A whole number from `min` to `max`, both included.
    Count {
        /// The default.
        default: u64,
        /// The smallest permitted value.
        min: u64,
        /// The greatest permitted value.
        max: u64,
    },
    /// Words.
    Text {
        /// The default.
        default: &'static str,
        /// The permitted words; empty: any text. A choice written `a..=b` stands for every whole number from a to b.
        choices: &'static [&'static str],
    },
    /// Yes or no.
    Flag {
        /// The default.
        default: bool,
    },
}

/// The components of ibex that a parameter concerns, which determine its name in Open MPI.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Faces {
    /// Both, or whichever is loaded: `btl_ibex_<name>`.
    Both,
    /// The BTL alone: `btl_ibex_<name>`.
    Btl,
    /// The PML alone: `pml_ibex_<name>`.
    Pml,
}

impl Faces {
    /// The prefix of the parameters' names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Faces::Both | Faces::Btl => "btl_ibex_",
            Faces::Pml => "pml_ibex_",
        }
    }
}

/// Which processes must have matching values: the scope of a control variable (MPI 4.1, section 15.3.6).
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Each process may have its own value.
    Local,
    /// The values of all processes must match.
    All,
}

/// Until when a tool may write a parameter as a control variable.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Writable {
    /// Until `MPI_Init` reads it.
    UntilInit,
    /// At any time; the value is read wherever it matters.
    Always,
}

/// One parameter.
#[derive(Copy, Clone, Debug)]
pub struct Row {
    /// The components that it concerns.
    pub faces: Faces,
    /// Name, without the prefix.
    pub name: &'static str,
    /// Type, default and bounds.
    pub kind: Kind,
    /// Unit of a count; empty if there is none.
    pub unit: &'static str,
    /// What it sets, in one sentence.
    pub help: &'static str,
    /// Benefit and cost of a change.
    pub effect: &'static str,
    /// Which processes must have matching values.
    pub scope: Scope,
    /// Until when a tool may write it.
    pub writable: Writable,
    /// Audience: the verbosity level of `MPI_T` (MPI 4.1, section 15.3.1), 1 = every user ... 9 = developers of ibex.
    pub level: u8,
}

impl Row {
    /// The full name.
    pub fn full_name(&self) -> String {
        format!("{}{}", self.faces.prefix(), self.name)
    }

    /// The permitted values in words: `16 to 16384 entries`, `one of auto, ud, tcp`, `any text`, `true or false`.
    pub fn permitted(&self) -> String {
        match self.kind {
            Kind::Count { min, max, .. } if self.unit.is_empty() => format!("{min} to {max}"),
            Kind::Count { min, max, .. } => format!("{min} to {max} {}", self.unit),
            Kind::Text { choices: [], .. } => "any text".to_owned(),
            Kind::Text { choices, .. } => {
                let words: Vec<String> = choices.iter().map(|choice| choice.replace("..=", " to ")).collect();
                format!("one of {}", words.join(", "))
            }
            Kind::Flag { .. } => "true or false".to_owned(),
        }
    }

    /// The default.
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Count { default, .. } => Value::Count(default),
            Kind::Text { default, .. } => Value::Text(default.to_owned()),
            Kind::Flag { default } => Value::Flag(default),
        }
    }

    /// Returns the value, if there is one, it is of the row's type, and it is permitted.
    pub(super) fn checked<'value>(&self, value: Option<&'value Value>) -> Result<&'value Value, OutOfBounds> {
        let value = value.ok_or_else(|| OutOfBounds::new(self, "missing".to_owned(), self.permitted()))?;
        let permitted = match (self.kind, value) {
            (Kind::Count { min, max, .. }, Value::Count(given)) => (min..=max).contains(given),
            (Kind::Text { choices, .. }, Value::Text(given)) => {
                choices.is_empty() || choices.iter().any(|choice| admits(choice, given))
            }
            (Kind::Flag { .. }, Value::Flag(_)) => true,
            _ => false,
        };
        if permitted { Ok(value) } else { Err(OutOfBounds::value(self, value)) }
    }

    /// Returns the permitted count nearest to `given`, which may be at most `most`, and the refusal; `None`: permitted.
    #[inline]
    pub fn nearest(&self, given: u64, most: u64) -> Option<(u64, OutOfBounds)> {
        let Kind::Count { default, min, max } = self.kind else { return None };
        let max = max.min(most).max(min);
        if (min..=max).contains(&given) {
            return None;
        }
        let row = Row { kind: Kind::Count { default: default.clamp(min, max), min, max }, ..*self };
        Some((given.clamp(min, max), OutOfBounds::value(&row, &Value::Count(given))))
    }
}

/// Whether `given` is the word `choice`, or a whole number in the range if that is written `a..=b`.
fn admits(choice: &str, given: &str) -> bool {
    let Some((low, high)) = choice.split_once("..=") else { return choice == given };
    let (Ok(low), Ok(high)) = (low.parse::<u64>(), high.parse::<u64>()) else { return false };
    // `parse` also takes a plus sign, which the users of the value do not.
    let digits = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit());
    digits && given.parse::<u64>().is_ok_and(|number| (low..=high).contains(&number))
}

/// A value of a parameter, as the plugin read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// Value of a [`Kind::Count`].
    Count(u64),
    /// Value of a [`Kind::Text`].
    Text(String),
    /// Value of a [`Kind::Flag`].
    Flag(bool),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Count(number) => write!(f, "{number}"),
            Value::Text(text) => write!(f, "\"{text}\""),
            Value::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// The refusal of a value. The text names the parameter, the value, the permitted values, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the parameter {name} is {given}, but may be {permitted}: set it so \
     (mpirun --mca {name} VALUE) or leave it out to get {default}"
)]
pub struct OutOfBounds {
    /// The components that the row concerns.
    pub faces: Faces,
    name: String,
    given: String,
    permitted: String,
    default: String,
}

impl OutOfBounds {
    pub(super) fn new(row: &Row, given: String, permitted: String) -> OutOfBounds {
        let (name, default) = (row.full_name(), row.default_value().to_string());
        OutOfBounds { faces: row.faces, name, given, permitted, default }
    }

    pub(super) fn value(row: &Row, given: &Value) -> OutOfBounds {
        OutOfBounds::new(row, given.to_string(), row.permitted())
    }
}
