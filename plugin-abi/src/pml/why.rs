// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the PML ends the job.
//!
//! Noted where it is found (`transmit`), with the PML entered, and said by `progress` when nothing is. Grade: errors.
//! Plain data. Tests: below.

/// The first reason that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A peer is lost. Its port has the reason.
    PeerLost,
    /// The data of a message of this length cannot be packed.
    CannotPack { length: u64 },
    /// The receiver of an announced message asks for what it cannot have.
    AskedFor { wanted: u64, length: u64 },
}

impl Why {
    /// What is said; `None`: a port says it.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            Why::PeerLost => None,
            Why::CannotPack { length } => Some(format!(
                "the data of a message of {length} bytes cannot be packed: Open MPI's convertor refuses its datatype, or there\n\
                 is no memory for a convertor"
            )),
            Why::AskedFor { wanted, length } => Some(format!(
                "the receiver of a message of {length} bytes asks for {wanted} bytes of it: it runs another ibex, or has a\n\
                 defect. Install the same ibex on every host of the job"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_port_says_has_a_text_with_its_numbers() {
        assert_eq!(Why::PeerLost.text(), None);
        let packed = Why::CannotPack { length: 71 }.text().expect("a text");
        assert!(packed.contains("71 bytes cannot be packed"), "{packed}");
        let asked = Why::AskedFor { wanted: 101, length: 100 }.text().expect("a text");
        assert!(asked.contains("100 bytes asks for 101 bytes"), "{asked}");
    }
}
