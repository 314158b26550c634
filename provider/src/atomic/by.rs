// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who does the atomic operations on a domain's memory: the processors of the targets, or the adapters. An adapter's are
//! not atomic with a processor's (`IBV_ATOMIC_HCA`), so a domain has one kind, which the user chooses for the whole job
//! (`FI_IBEX_ATOMICS`). A domain refuses the other kind: its regions have no right to the adapter's, or it answers
//! messages that there is no such operation.
//!
//! Called by `domain`. Grade: setup. Threads: any. Tests: `hw-tests/libfabric/atomics.c`.

use ibex::transport::Atomics;

use super::adapter;
use super::arithmetic::Datatype;
use super::valid::LONGEST;
use crate::domain::Domain;
use crate::entry::Result;
use crate::{log, sys};

/// The environment variable with the user's choice, and what asks for adapters.
const VARIABLE: &str = "FI_IBEX_ATOMICS";
const ADAPTER: &str = "adapter";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Processor,
    Adapter,
    /// The user wants the adapter's, and it has none.
    Nobody,
}

impl By {
    /// Returns the choice for a domain; asks its adapter only if the user wants the adapter's.
    pub(crate) fn of(domain: &Domain) -> Result<By> {
        match std::env::var(VARIABLE) {
            Ok(choice) if choice == ADAPTER => {}
            Ok(choice) if choice != "processor" => {
                let text = format!("{VARIABLE}: {choice:?} is neither \"{ADAPTER}\" nor \"processor\", which is taken");
                log::line(sys::FI_LOG_WARN, sys::FI_LOG_DOMAIN, &text);
                return Ok(By::Processor);
            }
            _ => return Ok(By::Processor),
        }
        if domain.device()?.atomics() != Atomics::None {
            return Ok(By::Adapter);
        }
        let text = format!("{VARIABLE}={ADAPTER}: this adapter has no atomic operations, so there are none");
        log::line(sys::FI_LOG_WARN, sys::FI_LOG_DOMAIN, &text);
        Ok(By::Nobody)
    }

    /// Returns the most elements of this type that an operation may have; `None`: there are no operations on it.
    pub(super) fn most(self, datatype: Datatype) -> Option<usize> {
        match self {
            By::Processor => Some(LONGEST / datatype.size),
            By::Adapter => (datatype.size == adapter::SIZE).then_some(1),
            By::Nobody => None,
        }
    }
}
