//! Reads a loaded module's ELF data in memory: its build id and the functions that it exports. This
//! module never opens a file: callers pass bytes, or describe a module that is mapped.

use std::ops::Range;

/// Functions that a module exports: copies of its symbol table and the table of names.
#[derive(Debug, Default)]
pub(super) struct Exports {
    symbols: Vec<u8>,
    names: Vec<u8>,
}

impl Exports {
    pub(super) fn function_at(&self, address: usize) -> Option<&[u8]> {
        function_at(&self.symbols, &self.names, address as u64)
    }
}

/// A module in memory, as the loader describes it.
pub(super) struct Loaded<'a> {
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Loaded<'a> {
    /// Creates a reader for the module at `base`.
    ///
    /// # Safety
    /// - **mapped**: the segments in `headers` are mapped, relative to `base`, while this value
    ///   exists.
    pub(super) unsafe fn new(base: usize, headers: &'a [libc::Elf64_Phdr]) -> Loaded<'a> {
        Loaded { base, headers }
    }

    /// Returns the module's build id.
    pub(super) fn id(&self) -> Option<&'a [u8]> {
        let notes = self.headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        let mut notes = notes.filter_map(|notes| {
            let bytes = self.bytes(self.base + notes.p_vaddr as usize)?;
            build_id_of_notes(bytes.get(..notes.p_memsz as usize)?)
        });
        notes.next()
    }

    /// Returns the functions that the module exports.
    pub(super) fn exports(&self) -> Option<Exports> {
        const STRTAB: u64 = 5;
        const SYMTAB: u64 = 6;
        const STRSZ: u64 = 10;
        const GNU_HASH: u64 = 0x6fff_fef5;
        let dynamic = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let entries = self.bytes(self.base + dynamic.p_vaddr as usize)?;
        let (entries, _) = entries.get(..dynamic.p_memsz as usize)?.as_chunks::<16>();
        let value = |tag: u64| {
            let entry = entries.iter().find(|entry| u64_at(&entry[..], 0) == Some(tag))?;
            u64_at(entry, 8).map(|value| value as usize)
        };
        // Most loaders replace the offsets in this section by addresses. Some loaders do not, or
        // not in every module.
        let table = |tag| {
            let at = value(tag)?;
            self.bytes(if at < self.base { self.base + at } else { at })
        };
        let count = count(table(GNU_HASH)?)?;
        let symbols = table(SYMTAB)?.get(..count.checked_mul(SYMBOL)?)?;
        let names = table(STRTAB)?.get(..value(STRSZ)?)?;
        Some(Exports { symbols: symbols.to_vec(), names: names.to_vec() })
    }

    /// Returns the memory from `at` to the end of its segment.
    fn bytes(&self, at: usize) -> Option<&'a [u8]> {
        let is_readable = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0
        };
        let range = |header: &libc::Elf64_Phdr| -> Range<usize> {
            let start = self.base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        };
        let mut parts = self.headers.iter().filter(is_readable).map(range);
        let part = parts.find(|part| part.contains(&at))?;
        // SAFETY: mapped — promised by the caller of `new`.
        Some(unsafe { std::slice::from_raw_parts(at as *const u8, part.end - at) })
    }
}

/// Size of an entry in the symbol table, in bytes.
const SYMBOL: usize = 24;

/// Returns the number of symbols, derived from the GNU hash table. No other table records it.
fn count(hash: &[u8]) -> Option<usize> {
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

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
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
