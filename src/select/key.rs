// SPDX-License-Identifier: MIT OR Apache-2.0
//! The key of a port: a process must know it so that the port accepts its hellos.
//!
//! Owns [`Key`] and the keyed hash ([`Seal`]) that ends every hello. A port draws its key when it is opened, and
//! publishes it in the modex; its hellos have it masked, for the receiver alone. So a sender that makes the right hash
//! has read the modex, or got a hello from this port: it belongs to the job. It is the *receiver's* key, so a port
//! checks a hello without asking another process.
//!
//! The hash is SipHash-2-4 with 128 bits: made as a message authentication code for short messages, in one small crate
//! without dependencies (BLAKE3 and HMAC need more code for no more proof here). It keeps nothing secret: hellos are
//! readable, and a recorded one can be sent again, which the handshake detects by its epoch. Grade: setup. Threads:
//! plain data. Tests: at the end of the file.

use siphasher::sip128::{Hash128, SipHasher24};
use std::fmt;
use std::io;

/// 128 random bits that only the processes of the job know.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Key([u8; Key::SIZE]);

/// The keyed hash of some bytes, as it is sent: little-endian.
pub type Seal = [u8; Key::SIZE];

impl Key {
    /// Number of bytes of a key, and of a seal.
    pub const SIZE: usize = 16;

    /// Draws a new key. Linux gives random bytes once it has booted.
    pub(crate) fn random() -> io::Result<Key> {
        let mut bytes = [0; Key::SIZE];
        getrandom::fill(&mut bytes)?;
        Ok(Key(bytes))
    }

    /// The key that another process has published.
    pub const fn from_bytes(bytes: [u8; Key::SIZE]) -> Key {
        Key(bytes)
    }

    /// The bytes to publish.
    pub fn to_bytes(self) -> [u8; Key::SIZE] {
        self.0
    }

    /// The hash of `bytes` under this key.
    pub fn seal(&self, bytes: &[u8]) -> Seal {
        SipHasher24::new_with_key(&self.0).hash(bytes).as_bytes()
    }

    /// Whether `seal` was made of `bytes` with this key. Takes the same time for any wrong seal.
    #[must_use]
    pub fn made(&self, seal: &Seal, bytes: &[u8]) -> bool {
        SipHasher24::new_with_key(&self.0).hash(bytes) == Hash128::from(u128::from_le_bytes(*seal))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_of_the_authors_of_siphash() {
        // vectors_sip128 of the reference implementation: key 00 01 .. 0f, messages of 0 and 15 bytes 00 01 ...
        let key = Key::from_bytes(std::array::from_fn(|index| index as u8));
        let text: [u8; 15] = std::array::from_fn(|index| index as u8);
        let hex = |seal: Seal| format!("{:032x}", u128::from_be_bytes(seal));
        assert_eq!(hex(key.seal(&[])), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(key.seal(&text)), "5493e99933b0a8117e08ec0f97cfc3d9");
    }

    #[test]
    fn only_the_same_bytes_under_the_same_key_have_the_seal() {
        let (key, other) = (Key::random().expect("random"), Key::random().expect("random"));
        let text = [7; 40];
        let seal = key.seal(&text);
        assert!(key.made(&seal, &text));
        assert!(!other.made(&seal, &text));
        assert!(!key.made(&seal, &text[1..]));
        for bit in 0..128 {
            let mut forged = seal;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.made(&forged, &text), "bit {bit}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", Key::from_bytes([0xab; 16])), "Key(not shown)");
    }
}
