// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks: columns of numbers, small enough for a page and quick for a browser to read (`page/block.js`). A column is a
//! sequence of numbers of variable length (LEB128). A block has the number of columns, the length of each in bytes (all
//! little-endian, four bytes each), then the columns. The page contains it compressed with zlib, in base64. Called by
//! the files with columns. Tests: below.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::{self, Write};

#[derive(Default, Clone)]
pub(crate) struct Column(Vec<u8>);

impl Column {
    pub(crate) fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a number zigzag-encoded, so that small negative numbers are short, too.
    pub(crate) fn push_signed(&mut self, value: i64) {
        self.push(zigzag(value));
    }

    /// `None` is 0.
    pub(crate) fn push_place(&mut self, place: Option<u32>) {
        self.push(place.map_or(0, |place| u64::from(place) + 1));
    }

    /// `None` is 0.
    pub(crate) fn push_distance(&mut self, distance: Option<i64>) {
        self.push(distance.map_or(0, |distance| zigzag(distance).saturating_add(1)));
    }
}

impl FromIterator<u64> for Column {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Column {
        let mut column = Column::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Writes the columns as an element of the page with this name.
pub(crate) fn write(name: &str, columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::new(6));
    packed.write_all(&(columns.len() as u32).to_le_bytes())?;
    for column in columns {
        packed.write_all(&(column.0.len() as u32).to_le_bytes())?;
    }
    for column in columns {
        packed.write_all(&column.0)?;
    }
    let text = STANDARD.encode(packed.finish()?);
    writeln!(out, "<script type=\"text/plain\" id=\"{name}\">{text}</script>")
}

#[cfg(test)]
pub(crate) mod reading {

    use super::{Engine, STANDARD};
    use flate2::read::ZlibDecoder;
    use std::io::{self, Read, Write};

    pub(crate) fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut page = Vec::new();
        write(&mut page).expect("memory");
        String::from_utf8(page).expect("text")
    }

    pub(crate) fn columns(page: &str, name: &str) -> Vec<Vec<u64>> {
        let begin = format!("<script type=\"text/plain\" id=\"{name}\">");
        let text = page.split_once(&begin).expect("the block").1.split_once("</script>").expect("its end").0;
        let mut bytes = Vec::new();
        ZlibDecoder::new(&STANDARD.decode(text).expect("base64")[..]).read_to_end(&mut bytes).expect("zlib");
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let mut at = 4 + 4 * number(0);
        let column = |place| {
            let column = numbers(&bytes[at..at + number(4 + 4 * place)]);
            at += number(4 + 4 * place);
            column
        };
        (0..number(0)).map(column).collect()
    }

    pub(crate) fn signed(value: u64) -> i64 {
        (value >> 1) as i64 ^ -((value & 1) as i64)
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut shift = 0;
        let mut value = 0;
        for byte in bytes {
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                numbers.push(value);
                (value, shift) = (0, 0);
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_block_is_read_again() {
        let mut signed = Column::default();
        let values = [0, 1, -1, 63, 64, -64, -65, i64::MAX, i64::MIN];
        for value in values {
            signed.push_signed(value);
        }
        let mut distances = Column::default();
        for distance in [None, Some(0), Some(-1), Some(5)] {
            distances.push_distance(distance);
        }
        let page = reading::text(|out| write("some", &[signed, Column::default(), distances], out));
        let columns = reading::columns(&page, "some");
        assert_eq!(columns.len(), 3);
        assert_eq!(columns[0].iter().map(|value| reading::signed(*value)).collect::<Vec<_>>(), values);
        assert!(columns[1].is_empty());
        assert_eq!(columns[2], [0, 1, 2, 11]);
    }
}
