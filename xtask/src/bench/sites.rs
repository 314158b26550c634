// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where libibex.so looks whether a tool wants something: the instructions that read one of the two words of the event engine,
//! found in the disassembly. How often they are executed is how many sites a message passes.
//!
//! Grade: setup. Called by [`super::run`]. Tests: at the end of this file.

use crate::command::output;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// The words, as their symbols end: the types somebody listens to (`registry.rs`), and whether something waits (`deliver.rs`).
const WORDS: [&str; 2] = ["8registry6ACTIVE", "7deliver4WORK"];

/// The addresses of those instructions, in the file.
///
/// # Errors
/// When the library cannot be disassembled.
pub(crate) fn addresses(library: &Path) -> Result<Vec<u64>> {
    let listing = output(Command::new("objdump").args(["--disassemble", "--no-show-raw-insn"]).arg(library))?;
    Ok(listing.lines().filter_map(reads_word).collect())
}

/// `    4a10:  cmpq  $0x0,0x1b2c(%rip)   # 6b540 <_ZN4ibex6events8registry6ACTIVE17h...E>`: the address.
fn reads_word(line: &str) -> Option<u64> {
    let (address, rest) = line.trim_start().split_once(':')?;
    let (_, symbol) = rest.split_once("# ")?;
    let read = WORDS.iter().any(|word| symbol.contains(word));
    read.then(|| u64::from_str_radix(address, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_reads_a_word_is_told_from_others() {
        let line =
            "   4a10:\tcmpq   $0x0,0x1b2c(%rip)        # 6b540 <_ZN4ibex6events8registry6ACTIVE17h0123456789abcdefE>";
        assert_eq!(reads_word(line), Some(0x4a10));
        assert_eq!(reads_word(&line.replace("8registry6ACTIVE", "7deliver4WORK")), Some(0x4a10));
        assert_eq!(reads_word(&line.replace("ACTIVE", "OTHERS")), None);
        assert_eq!(reads_word("   4a10:\tret"), None);
        assert_eq!(reads_word("0000000000004a10 <_ZN4ibex6events8registry6ACTIVE17h0E>:"), None);
    }
}
