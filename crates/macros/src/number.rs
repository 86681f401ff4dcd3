//! Rust's number literals: `60`, `1_000u64`, `0x10`, `2.5`, `1e3`. A leading sign is never
//! accepted: in source code it is a token of its own.

/// The value of a number literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(u128),
    Float(f64),
}

const SUFFIXES: [&str; 14] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64",
];

impl Number {
    /// Parses a literal. Returns `None` if it is not a number, or is too large.
    pub(crate) fn read(literal: &str) -> Option<Number> {
        if !literal.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let text = literal.replace('_', "");
        for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
            if let Some(digits) = text.strip_prefix(prefix) {
                // Only integer suffixes are removed: in `0xf32`, `f32` is part of the digits.
                let digits = without_suffix(digits, &SUFFIXES[..12]);
                return u128::from_str_radix(digits, radix).ok().map(Number::Integer);
            }
        }
        let digits = without_suffix(&text, &SUFFIXES);
        match digits.parse() {
            Ok(integer) => Some(Number::Integer(integer)),
            Err(_) => {
                digits.parse().ok().filter(|float: &f64| float.is_finite()).map(Number::Float)
            }
        }
    }

    /// Converts seconds to milliseconds, rounded, but at least 1. Returns `None` for 0 seconds, and
    /// if the result does not fit in a `u64`.
    pub(crate) fn seconds_to_millis(self) -> Option<u64> {
        match self {
            Number::Integer(0) => None,
            Number::Integer(seconds) => seconds.checked_mul(1000)?.try_into().ok(),
            Number::Float(seconds) => {
                let millis = (seconds * 1000.0).round().max(1.0);
                (seconds > 0.0 && millis < u64::MAX as f64).then_some(millis as u64)
            }
        }
    }
}

fn without_suffix<'a>(text: &'a str, suffixes: &[&str]) -> &'a str {
    suffixes.iter().find_map(|suffix| text.strip_suffix(suffix)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_every_spelling() {
        for (text, value) in [
            ("0", 0),
            ("60", 60),
            ("1_000", 1000),
            ("4usize", 4),
            ("4_u8", 4),
            ("0x1F", 31),
            ("0xf32", 0xf32),
            ("0b1_01u8", 5),
            ("0o17", 15),
        ] {
            assert_eq!(Number::read(text), Some(Number::Integer(value)), "{text}");
        }
    }

    #[test]
    fn floats_are_read_in_every_spelling() {
        for (text, value) in
            [("2.5", 2.5), ("2.", 2.0), ("1e3", 1000.0), ("1_2.5e-1f64", 1.25), ("0.25f32", 0.25)]
        {
            assert_eq!(Number::read(text), Some(Number::Float(value)), "{text}");
        }
    }

    #[test]
    fn other_literals_are_no_numbers() {
        for text in ["\"4\"", "'4'", "b'4'", "true", "inf", "1e999", ""] {
            assert_eq!(Number::read(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_become_milliseconds() {
        for (text, millis) in [
            ("60", Some(60_000)),
            ("2.5", Some(2500)),
            ("1.1", Some(1100)),
            ("0.00001", Some(1)),
            ("0", None),
            ("0.0", None),
            ("1e300", None),
            ("340282366920938463463374607431768211455", None),
            ("18446744073709552", None),
        ] {
            assert_eq!(Number::read(text).unwrap().seconds_to_millis(), millis, "{text}");
        }
    }
}
