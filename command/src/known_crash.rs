// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crashes of Open MPI's own that end a user's job, by the words of the backtrace that it prints.
//!
//! Used by `ibex doctor --output` and `ibex trace`. Grade: setup. Tests: below; the crash itself in
//! hw-tests/tests/device/recorder.rs.

/// A defect that is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownCrash {
    /// What a backtrace has in a line.
    function: &'static str,
    /// What it is.
    pub(crate) what: &'static str,
    /// What to set.
    pub(crate) mend: &'static str,
}

static KNOWN: [KnownCrash; 1] = [KnownCrash {
    function: "mca_btl_vader_emu_acswap",
    what: "MPI_Compare_and_swap crashed in Open MPI's shared-memory BTL (mca_btl_vader_emu_acswap): Open MPI 4.1 has this defect \
           between ranks of a host, with and without ibex",
    mend: "--mca btl self,ibex, so that ibex carries one-sided operations between ranks of a host, too; on a host \
           without an adapter --mca osc pt2pt, which takes no MPI_THREAD_MULTIPLE",
}];

/// The first known crash of which a line of this text is; the text need not be text.
pub(crate) fn find(text: &[u8]) -> Option<&'static KnownCrash> {
    let has = |function: &str| text.windows(function.len()).any(|window| window == function.as_bytes());
    KNOWN.iter().find(|crash| has(crash.function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_known_by_a_backtrace_of_open_mpi_or_of_a_debugger_and_other_output_is_none() {
        let printed = b"[node1:05487] [ 1] /usr/lib/openmpi3/mca_btl_vader.so(mca_btl_vader_send+0x40)[0x7f80a1a749d0]\n\
                        [node1:05487] [ 2] /usr/lib/openmpi3/mca_btl_vader.so(mca_btl_vader_emu_acswap+0x1ce)[0x7f80a1a7764e]\n";
        let debugged = b"#1  0x00007f2a in mca_btl_vader_emu_acswap () from mca_btl_vader.so\n\xff";
        for text in [&printed[..], &debugged[..]] {
            let crash = find(text).expect("it is known");
            assert!(crash.what.contains("MPI_Compare_and_swap") && crash.mend.contains("--mca btl self,ibex"));
        }
        for text in [&b""[..], b"mca_btl_vader_send+0x40", b"compared and swapped"] {
            assert_eq!(find(text), None);
        }
    }
}
