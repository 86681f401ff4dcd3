//! The first bytes of a name, in words that any thread may read at any time. Reading a name never
//! takes a lock, and never reads freed memory.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 4;

/// A name of at most 32 bytes; the first byte is 0 if there is no name. A reader may see half of a
/// new name, but never reads freed memory.
#[derive(Debug)]
pub(crate) struct ShortName([AtomicU64; WORDS]);

impl ShortName {
    pub(crate) const fn new() -> ShortName {
        ShortName([const { AtomicU64::new(0) }; WORDS])
    }

    #[inline]
    pub(crate) fn set(&self, name: Option<&str>) {
        match name {
            None => self.0[0].store(0, Ordering::Relaxed),
            Some(name) => self.copy(name),
        }
    }

    #[cold]
    fn copy(&self, name: &str) {
        let end = name.floor_char_boundary(WORDS * 8);
        let mut bytes = [0; WORDS * 8];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        for (word, chunk) in self.0.iter().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
        }
    }
}

/// Writes ` (name)`, or nothing if there is no name.
impl fmt::Display for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; WORDS * 8];
        for (word, chunk) in self.0.iter().zip(bytes.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        if end == 0 {
            return Ok(());
        }
        f.write_str(" (")?;
        for chunk in bytes[..end].utf8_chunks() {
            f.write_str(chunk.valid())?;
        }
        f.write_char(')')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_in_parentheses_and_cut_at_a_character_boundary() {
        let name = ShortName::new();
        assert_eq!(name.to_string(), "");
        name.set(Some("worker"));
        assert_eq!(name.to_string(), " (worker)");
        name.set(Some("ö23456789012345678901234567890ö"));
        assert_eq!(name.to_string(), " (ö23456789012345678901234567890)");
        name.set(Some("12345678901234567890123456789012345"));
        assert_eq!(name.to_string(), " (12345678901234567890123456789012)");
        name.set(None);
        assert_eq!(name.to_string(), "");
    }
}
