// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads numbers from untrusted bytes, and writes them: fixed sizes in little-endian order, or varints (LEB128). Path:
//! pending. Threads: plain data. Tests: below.

/// Bytes that violate the format, and the expected ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("more bytes"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed("more bytes"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number of at most 64 bits"))
    }

    pub(crate) fn varint_up_to(&mut self, most: usize, what: &'static str) -> Result<usize, Malformed> {
        usize::try_from(self.varint()?).ok().filter(|value| *value <= most).ok_or(Malformed(what))
    }

    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("no more bytes")) }
    }
}

pub(crate) fn push_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_returns_the_written_number() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            let mut rest = Bytes(&bytes);
            assert_eq!(rest.varint(), Ok(value));
            assert_eq!(rest.end(), Ok(()));
        }
    }

    #[test]
    fn a_reader_refuses_a_number_that_ends_too_early_or_never() {
        assert!(Bytes(&[0x80]).varint().is_err());
        assert!(Bytes(&[0xff; 10]).varint().is_err());
        assert!(Bytes(&[0xff; 11]).varint().is_err());
        assert!(Bytes(&[1, 2, 3]).u32().is_err());
        assert!(Bytes(&[5]).varint_up_to(4, "x").is_err());
    }
}
