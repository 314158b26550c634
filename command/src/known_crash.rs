// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognises known crashes of Open MPI by their backtrace. Used by `ibex doctor --output` and `ibex trace`. Grade:
//! setup. Tests: below; the crash itself in hw-tests/tests/device/recorder.rs.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownCrash {
    function: &'static str,
    pub(crate) what: &'static str,
    pub(crate) mend: &'static str,
}

static KNOWN: [KnownCrash; 1] = [KnownCrash {
    function: "mca_btl_vader_emu_acswap",
    what: "MPI_Compare_and_swap crashed in Open MPI's shared-memory BTL (mca_btl_vader_emu_acswap): Open MPI 4.1 has this defect \
           between ranks of a host where it carries one-sided operations, as it does where ibex has no port",
    mend: "--mca osc pt2pt, which does not support MPI_THREAD_MULTIPLE; on a host with an adapter leave ibex among the \
           transports (--mca btl), and it carries one-sided operations between ranks of a host, too",
}];

/// Returns the first known crash in this output, which need not be valid UTF-8.
pub(crate) fn find(text: &[u8]) -> Option<&'static KnownCrash> {
    let has = |function: &str| text.windows(function.len()).any(|window| window == function.as_bytes());
    KNOWN.iter().find(|crash| has(crash.function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_recognised_in_a_backtrace_and_not_in_other_output() {
        let printed = b"[node1:05487] [ 1] /usr/lib/openmpi3/mca_btl_vader.so(mca_btl_vader_send+0x40)[0x7f80a1a749d0]\n\
                        [node1:05487] [ 2] /usr/lib/openmpi3/mca_btl_vader.so(mca_btl_vader_emu_acswap+0x1ce)[0x7f80a1a7764e]\n";
        let debugged = b"#1  0x00007f2a in mca_btl_vader_emu_acswap () from mca_btl_vader.so\n\xff";
        for text in [&printed[..], &debugged[..]] {
            let crash = find(text).expect("it is known");
            assert!(crash.what.contains("MPI_Compare_and_swap") && crash.mend.contains("--mca osc pt2pt"));
        }
        for text in [&b""[..], b"mca_btl_vader_send+0x40", b"compared and swapped"] {
            assert_eq!(find(text), None);
        }
    }
}
