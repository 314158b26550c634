// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changed bytes of a trace, with matching checksums. Used by `damage.rs`, ibex-messages and the command.

/// Gives each block the checksums of its content.
pub(crate) fn seal(bytes: &mut [u8]) {
    let mut at = 16;
    while at + 32 <= bytes.len() {
        let number = |place: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[place + byte])) as usize;
        let summary = at + 32..at + 32 + number(at + 12);
        let payload = summary.end..summary.end + number(at + 16);
        if payload.end > bytes.len() {
            return;
        }
        let sum = crc32c::crc32c(&bytes[payload.clone()]);
        bytes[at + 24..at + 28].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 28]), &bytes[summary]);
        bytes[at + 28..at + 32].copy_from_slice(&sum.to_le_bytes());
        at = payload.end;
    }
}
