//! Parses ELF tables in bytes: symbols and notes. This module never reads memory that callers do
//! not pass.

/// Functions that a module exports: copies of its symbol table and the table of names.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    pub(super) symbols: Vec<u8>,
    pub(super) names: Vec<u8>,
}

impl Exports {
    /// Returns the name of the function that contains `address`.
    pub(crate) fn function_at(&self, address: usize) -> Option<&[u8]> {
        function_at(&self.symbols, &self.names, address as u64)
    }
}

/// Size of an entry in the symbol table, in bytes.
pub(super) const SYMBOL: usize = 24;

/// Returns the number of symbols, derived from the GNU hash table. No other table records it.
pub(super) fn count(hash: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(u32::from_le_bytes(*hash.get(at..)?.first_chunk()?) as usize);
    let (buckets, first, filter) = (word(0)?, word(4)?, word(8)?);
    let buckets_at = 16 + filter * 8;
    let chains_at = buckets_at + buckets * 4;
    let mut last = 0;
    for bucket in 0..buckets {
        last = last.max(word(buckets_at + bucket * 4)?);
    }
    if last < first {
        return Some(first);
    }
    // The last entry of a hash chain is odd.
    while word(chains_at + (last - first) * 4)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

/// Returns the name of the function that contains `address`, from an ELF symbol table and its table
/// of names. Of several names, returns the one with the fewest leading underscores: `read`, not
/// `__libc_read`.
pub fn function_at<'a>(symbols: &[u8], names: &'a [u8], address: u64) -> Option<&'a [u8]> {
    const FUNCTION: u8 = 2;
    let is_there = |symbol: &&[u8; SYMBOL]| {
        let (start, size) = (u64_at(&symbol[..], 8), u64_at(&symbol[..], 16));
        let is_defined = [symbol[6], symbol[7]] != [0, 0];
        let offset = start.and_then(|start| address.checked_sub(start));
        symbol[4] & 0xf == FUNCTION && is_defined && offset.is_some() && offset < size
    };
    let name = |symbol: &[u8; SYMBOL]| {
        let at = u32::from_le_bytes(*symbol.first_chunk()?) as usize;
        let name = names.get(at..)?.split(|&byte| byte == 0).next()?;
        (!name.is_empty()).then_some(name)
    };
    let (symbols, _) = symbols.as_chunks::<SYMBOL>();
    let found = symbols.iter().filter(is_there).filter_map(name);
    found.min_by_key(|name| name.iter().take_while(|&&byte| byte == b'_').count())
}

/// Returns the build id contained in ELF notes.
pub fn build_id_of_notes(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    const OWNER: &[u8] = b"GNU\0";
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(*notes.get(at..)?.first_chunk()?));
        let (owner, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let id_at = 12 + owner.next_multiple_of(4);
        let id = notes.get(id_at..id_at.checked_add(size)?)?;
        if kind == BUILD_ID && notes.get(12..12 + owner)? == OWNER {
            return Some(id);
        }
        notes = notes.get(id_at + size.next_multiple_of(4)..)?;
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: u32, info: u8, section: u16, start: u64, size: u64) -> Vec<u8> {
        let words = [&name.to_le_bytes()[..], &[info, 0], &section.to_le_bytes()];
        [&words.concat()[..], &start.to_le_bytes(), &size.to_le_bytes()].concat()
    }

    #[test]
    fn a_function_is_found_from_its_first_to_its_last_byte() {
        let names = b"\0__libc_a\0a\0data\0other\0";
        let all = [
            symbol(1, 2, 1, 100, 10),
            symbol(10, 0x12, 1, 100, 10),
            symbol(12, 1, 1, 110, 10),
            symbol(17, 2, 0, 110, 10),
            symbol(99, 2, 1, 120, 10),
            symbol(17, 2, 1, u64::MAX, 10),
        ];
        let symbols = all.concat();
        let found = |address| function_at(&symbols, names, address);
        assert_eq!([found(99), found(110), found(115), found(125)], [None; 4]);
        assert_eq!([found(100), found(109)], [Some(&b"a"[..]); 2]);
        assert_eq!(function_at(&symbols[..SYMBOL], names, 100), Some(&b"__libc_a"[..]));
        assert_eq!(function_at(&symbols[..SYMBOL - 1], names, 100), None);
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let note = |owner: &[u8], kind: u32, text: &[u8]| {
            let sizes = [owner.len() as u32, text.len() as u32, kind].map(u32::to_le_bytes);
            let padded = |bytes: &[u8]| [bytes, &[0; 3][..bytes.len().wrapping_neg() % 4]].concat();
            [sizes.concat(), padded(owner), padded(text)].concat()
        };
        let notes = [note(b"X\0", 3, b"12345"), note(b"GNU\0", 5, b"1"), note(b"GNU\0", 3, b"id")];
        let notes = notes.concat();
        assert_eq!(build_id_of_notes(&notes), Some(&b"id"[..]));
        for end in 0..notes.len() - 2 {
            assert_eq!(build_id_of_notes(&notes[..end]), None, "{end}");
        }
    }
}
