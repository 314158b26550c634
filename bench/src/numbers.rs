// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes quantiles, and formats numbers and sizes for the report. Grade: setup. Tests: below.

/// Returns the quantile `at` in 0..=1 of ascending values, at least one, interpolated between neighbours.
pub(crate) fn quantile(ascending: &[f64], at: f64) -> f64 {
    let position = at * (ascending.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    ascending[below] + (ascending[above] - ascending[below]) * (position - position.floor())
}

/// Rounds to six significant digits, which is more than any measurement has.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Writes a size for a reader: `8 B`, `64 KiB`, `4 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Writes a number with three or four significant digits: `0.451`, `1.53`, `46.2`, `812`, `21 345`.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude < 1.0 => format!("{value:.3}"),
        magnitude if magnitude < 10.0 => format!("{value:.2}"),
        magnitude if magnitude < 100.0 => format!("{value:.1}"),
        _ => grouped(value.round() as i64),
    }
}

/// Writes a whole number with its digits in groups of three.
pub(crate) fn grouped(value: i64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Writes a value with its spread, which has no more digits: `46.2 ±1.1`, `2.95 ±0.14 M`.
pub(crate) fn with_spread(value: f64, spread: f64) -> String {
    let (scale, suffix) = match value {
        value if value >= 1e6 => (1e6, " M"),
        value if value >= 1e5 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let (value, spread) = (number(value / scale), spread / scale);
    let spread = match value.split_once('.') {
        Some((_, digits)) => format!("{spread:.*}", digits.len()),
        None => grouped(spread.round() as i64),
    };
    format!("{value} ±{spread}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_short_and_exact_enough() {
        assert_eq!([0, 8, 1000, 4096, 1 << 20, 4 << 20].map(size), ["0 B", "8 B", "1000 B", "4 KiB", "1 MiB", "4 MiB"]);
        assert_eq!(
            [0.4512, 1.534, 46.25, 812.4, 21345.4, 1234567.0].map(number),
            ["0.451", "1.53", "46.2", "812", "21 345", "1 234 567"]
        );
    }

    #[test]
    fn a_spread_has_no_more_digits_than_its_value() {
        assert_eq!(with_spread(0.451, 0.0123), "0.451 ±0.012");
        assert_eq!(with_spread(46.25, 0.123), "46.2 ±0.1");
        assert_eq!(with_spread(9644.0, 683.4), "9 644 ±683");
        assert_eq!(with_spread(9644.0, 0.4), "9 644 ±0");
        assert_eq!(with_spread(543_954.0, 224_066.0), "544 ±224 k");
        assert_eq!(with_spread(2_948_320.0, 1_404_480.0), "2.95 ±1.40 M");
    }
}
