// SPDX-License-Identifier: MIT OR Apache-2.0
//! One parameter: what it may be, and the check of a value against that.
//!
//! Owns what the table of `rows.rs` consists of ([`Row`], [`Kind`], [`Faces`], [`Scope`], [`Writable`]), the values that are given ([`Value`]), and the
//! refusal of one ([`OutOfBounds`]). Path: setup. Threads: plain data. Tests: `tests.rs`.

/// What a parameter is, what it is unless set, and what it may be.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A whole number from `min` to `max`, both included.
    Count {
        /// The value unless set.
        default: u64,
        /// The smallest permitted value.
        min: u64,
        /// The greatest permitted value.
        max: u64,
    },
    /// Words.
    Text {
        /// The value unless set.
        default: &'static str,
        /// What it may be; empty: anything. A choice written `a..=b` stands for every whole number from a to b.
        choices: &'static [&'static str],
    },
    /// Yes or no.
    Flag {
        /// The value unless set.
        default: bool,
    },
}

/// Which components of ibex a parameter concerns, and so the name by which Open MPI shows it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Faces {
    /// Whichever uses the ports: `btl_ibex_<name>`, also where the PML is loaded alone.
    Both,
    /// The BTL alone: `btl_ibex_<name>`.
    Btl,
    /// The PML alone: `pml_ibex_<name>`.
    Pml,
}

impl Faces {
    /// What stands before the names of its parameters.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Faces::Both | Faces::Btl => "btl_ibex_",
            Faces::Pml => "pml_ibex_",
        }
    }
}

/// Whose values must go together: the scope of a control variable (MPI 4.1, section 15.3.6).
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Each process may have its own.
    Local,
    /// Those of all processes.
    All,
}

/// Until when a tool may write a parameter as a control variable.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Writable {
    /// Until `MPI_Init` reads it.
    UntilInit,
    /// At any time; it is read wherever its value matters.
    Always,
}

/// One parameter.
#[derive(Copy, Clone, Debug)]
pub struct Row {
    /// Whom it concerns.
    pub faces: Faces,
    /// Its name, without what stands before it.
    pub name: &'static str,
    /// Its kind, default and bounds.
    pub kind: Kind,
    /// The unit of a count; empty where there is none.
    pub unit: &'static str,
    /// What it sets, in one sentence.
    pub help: &'static str,
    /// What one gets and pays when changing it.
    pub effect: &'static str,
    /// Whose values must go together.
    pub scope: Scope,
    /// Until when a tool may write it.
    pub writable: Writable,
    /// Who needs it: the verbosity level of MPI_T (MPI 4.0, section 15.3.1), 1 = every user ... 9 = developers of ibex.
    pub level: u8,
}

impl Row {
    /// Its whole name.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}{}", self.faces.prefix(), self.name)
    }

    /// The permitted values in words: `16 to 16384 entries`, `one of auto, ud, tcp`, `any text`, `true or false`.
    #[must_use]
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

    /// The value unless set.
    #[must_use]
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Count { default, .. } => Value::Count(default),
            Kind::Text { default, .. } => Value::Text(default.to_owned()),
            Kind::Flag { default } => Value::Flag(default),
        }
    }

    /// The value, if there is one and it is permitted.
    pub(super) fn checked<'value>(&self, value: Option<&'value Value>) -> Result<&'value Value, OutOfBounds> {
        let value = value.ok_or_else(|| OutOfBounds::new(self, "missing".to_owned(), self.permitted()))?;
        self.check(value)?;
        Ok(value)
    }

    /// Checks one value against this row.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the value is of another kind than the row or not permitted.
    pub fn check(&self, value: &Value) -> Result<(), OutOfBounds> {
        let permitted = match (self.kind, value) {
            (Kind::Count { min, max, .. }, Value::Count(given)) => (min..=max).contains(given),
            (Kind::Text { choices, .. }, Value::Text(given)) => {
                choices.is_empty() || choices.iter().any(|choice| admits(choice, given))
            }
            (Kind::Flag { .. }, Value::Flag(_)) => true,
            _ => false,
        };
        if permitted { Ok(()) } else { Err(OutOfBounds::value(self, value)) }
    }

    /// The nearest permitted count to one that is not, where it may be at most `most`, with the refusal; `None`: it is
    /// permitted.
    #[must_use]
    pub fn nearest(&self, given: u64, most: u64) -> Option<(u64, OutOfBounds)> {
        let Kind::Count { default, min, max } = self.kind else { return None };
        let max = max.min(most).max(min);
        let row = Row { kind: Kind::Count { default: default.clamp(min, max), min, max }, ..*self };
        let refusal = row.check(&Value::Count(given)).err()?;
        Some((given.clamp(min, max), refusal))
    }
}

/// Whether `given` is the word `choice`, or a whole number in it when it is written `a..=b`.
fn admits(choice: &str, given: &str) -> bool {
    let Some((low, high)) = choice.split_once("..=") else { return choice == given };
    let (Ok(low), Ok(high)) = (low.parse::<u64>(), high.parse::<u64>()) else { return false };
    // `parse` would also take a plus sign, which the users of the value would not.
    let digits = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit());
    digits && given.parse::<u64>().is_ok_and(|number| (low..=high).contains(&number))
}

/// A value of a parameter, as the plugin read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// Of a [`Kind::Count`].
    Count(u64),
    /// Of a [`Kind::Text`].
    Text(String),
    /// Of a [`Kind::Flag`].
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

/// A parameter has a value it may not have. The text names the parameter, the value, what is permitted, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the parameter {}{name} is {given}, but may be {permitted}: set it so \
     (mpirun --mca {}{name} VALUE) or leave it out to get {default}",
    .faces.prefix(),
    .faces.prefix()
)]
pub struct OutOfBounds {
    /// Whom the row concerns.
    pub faces: Faces,
    /// The row's name.
    pub name: &'static str,
    /// What was given, as text.
    pub given: String,
    /// What is permitted, in words.
    pub permitted: String,
    /// The value unless set, as text.
    pub default: String,
}

impl OutOfBounds {
    pub(super) fn new(row: &Row, given: String, permitted: String) -> OutOfBounds {
        OutOfBounds { faces: row.faces, name: row.name, given, permitted, default: row.default_value().to_string() }
    }

    pub(super) fn value(row: &Row, given: &Value) -> OutOfBounds {
        OutOfBounds::new(row, given.to_string(), row.permitted())
    }
}
