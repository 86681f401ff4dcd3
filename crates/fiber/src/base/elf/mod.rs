//! The ELF data of the program and its libraries, read where the loader has mapped them. This
//! module never opens a file.

mod symbols;

pub(crate) use symbols::Exports;
pub use symbols::{build_id_of_notes, function_at};

use std::ffi::{CStr, c_int, c_void};
use std::ops::{ControlFlow, Range};
use symbols::{SYMBOL, count, u64_at};

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// A loaded module: the program or a library, as the loader describes it.
pub(crate) struct Loaded<'a> {
    info: &'a libc::dl_phdr_info,
    headers: &'a [libc::Elf64_Phdr],
    /// The number of the module among those with thread-locals; 0 if it has none, or if the loader
    /// is too old to tell.
    tls_id: usize,
}

/// Calls `each` with each loaded module, the program first, until `each` returns `Break`. No module
/// is loaded or unloaded meanwhile.
pub(crate) fn for_each_loaded(mut each: impl FnMut(&Loaded<'_>) -> ControlFlow<()>) {
    type Each<'a> = &'a mut dyn FnMut(&Loaded<'_>) -> ControlFlow<()>;
    /// # Safety
    /// - **callback**: `dl_iterate_phdr` calls this function, with an [`Each`].
    unsafe extern "C" fn call(
        info: *mut libc::dl_phdr_info,
        size: usize,
        each: *mut c_void,
    ) -> c_int {
        // SAFETY: callback — the `Each` below, which lives until `dl_iterate_phdr` returns.
        let each = unsafe { &mut *each.cast::<Each<'_>>() };
        // SAFETY: callback — the loader passes a valid record.
        let info = unsafe { &*info };
        // SAFETY: callback — the record has the address and the number of the headers, which stay
        // as long as the module is loaded.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let has_tls_fields = size >= size_of::<libc::dl_phdr_info>();
        let tls_id = if has_tls_fields { info.dlpi_tls_modid } else { 0 };
        c_int::from(each(&Loaded { info, headers, tls_id }).is_break())
    }
    let mut each: Each<'_> = &mut each;
    // SAFETY: callback — `each` is an `Each` that lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(call), (&raw mut each).cast()) };
}

impl<'a> Loaded<'a> {
    /// Returns the load address: the difference between addresses in memory and addresses in the
    /// file.
    pub(crate) fn base(&self) -> usize {
        self.info.dlpi_addr as usize
    }

    /// Returns the path of the file; empty for the program.
    pub(crate) fn path(&self) -> &'a CStr {
        // SAFETY: the loader's record has a C string.
        unsafe { CStr::from_ptr(self.info.dlpi_name) }
    }

    /// Returns how many modules have been loaded and unloaded since the program started.
    pub(crate) fn load_counts(&self) -> (u64, u64) {
        (self.info.dlpi_adds, self.info.dlpi_subs)
    }

    /// Returns whether the loader has loaded the program: a program that needs no loader contains
    /// libc.
    pub(crate) fn has_interpreter(&self) -> bool {
        self.segments(libc::PT_INTERP).next().is_some()
    }

    /// Returns the number of the module among those with thread-locals, and the size of its
    /// thread-locals in bytes. Returns `None` if it has none.
    pub(crate) fn thread_locals(&self) -> Option<(usize, usize)> {
        let range = self.segments(libc::PT_TLS).next()?;
        (self.tls_id != 0).then_some((self.tls_id, range.len()))
    }

    /// Returns the address ranges of the segments of this kind.
    pub(crate) fn segments(&self, kind: u32) -> impl Iterator<Item = Range<usize>> {
        self.with_flags(kind, 0)
    }

    /// Returns the address ranges of the executable segments.
    pub(crate) fn code(&self) -> impl Iterator<Item = Range<usize>> {
        self.with_flags(libc::PT_LOAD, libc::PF_X)
    }

    /// Returns the address ranges of the segments of this kind that have all of these flags.
    fn with_flags(&self, kind: u32, flags: u32) -> impl Iterator<Item = Range<usize>> {
        let is_wanted = move |header: &&libc::Elf64_Phdr| {
            header.p_type == kind && header.p_flags & flags == flags
        };
        self.headers.iter().filter(is_wanted).map(|header| {
            let start = self.base() + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        })
    }

    /// Returns the module's build id.
    pub(crate) fn build_id(&self) -> Option<&'a [u8]> {
        self.segments(libc::PT_NOTE).find_map(|notes| build_id_of_notes(self.bytes(notes)?))
    }

    /// Returns the functions that the module exports.
    pub(crate) fn exports(&self) -> Option<Exports> {
        let count = count(self.table(DT_GNU_HASH)?)?;
        let symbols = self.table(DT_SYMTAB)?.get(..count.checked_mul(SYMBOL)?)?;
        Some(Exports { symbols: symbols.to_vec(), names: self.names()?.to_vec() })
    }

    /// Returns the table of names, which contains the names that the module refers to.
    pub(crate) fn names(&self) -> Option<&'a [u8]> {
        self.table(DT_STRTAB)?.get(..self.dynamic_value(DT_STRSZ)?)
    }

    /// Returns the memory from the table with this tag to the end of its segment.
    fn table(&self, tag: u64) -> Option<&'a [u8]> {
        let at = self.dynamic_value(tag)?;
        // Most loaders replace the offsets in this section by addresses. Some loaders do not, or
        // not in every module.
        self.bytes_from(if at < self.base() { self.base() + at } else { at })
    }

    /// Returns the value of the first entry with this tag in the dynamic section.
    fn dynamic_value(&self, tag: u64) -> Option<usize> {
        let dynamic = self.bytes(self.segments(libc::PT_DYNAMIC).next()?)?;
        let (entries, _) = dynamic.as_chunks::<16>();
        let entry = entries.iter().find(|entry| u64_at(&entry[..], 0) == Some(tag))?;
        u64_at(entry, 8).map(|value| value as usize)
    }

    /// Returns the memory of a segment. Returns `None` if it is not readable.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&'a [u8]> {
        self.bytes_from(range.start)?.get(..range.len())
    }

    /// Returns the memory from `at` to the end of its segment.
    pub(crate) fn bytes_from(&self, at: usize) -> Option<&'a [u8]> {
        let mut readable = self.with_flags(libc::PT_LOAD, libc::PF_R);
        let part = readable.find(|part| part.contains(&at))?;
        // SAFETY: the loader has mapped its segments, and the module stays loaded while `'a` lasts.
        Some(unsafe { std::slice::from_raw_parts(at as *const u8, part.end - at) })
    }
}
