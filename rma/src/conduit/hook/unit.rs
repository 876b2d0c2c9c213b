//! Numbers with units, in the text of hooks and links.

#![forbid(unsafe_code)]

use std::fmt;

/// Reads a number with one of these units, as a product.
pub(super) fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Units of time, in microseconds.
pub(super) const TIMES: &[(&str, u64)] = &[("us", 1), ("ms", 1_000), ("s", 1_000_000)];
/// Units of memory, in bytes.
pub(super) const RATES: &[(&str, u64)] = &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Writes a number with the largest unit that needs no fraction.
pub(super) fn write_with_unit(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().rev().find(|(_, factor)| number.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", number / factor),
        None => write!(f, "{number}"),
    }
}
