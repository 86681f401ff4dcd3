//! The loaded modules with thread-locals, and the first values of the static ones.
//!
//! A *static* module's thread-locals lie at a fixed distance below the thread pointer, on every
//! thread; the others are allocated per thread when first used. Which is which, and the first
//! values, only ld.so knows for sure: it is asked to fill a scratch block, as for a new thread. The
//! values are copies, so an [`Image`] stays good when a library is unloaded.

use super::GLOBAL_LOCALE;
use super::control_block::{DynamicVector, Layout};
use super::symbols::{self, LIBC_IS_A_MODULE, SecondLibc, Symbols};
use crate::arch;
use std::ffi::{CStr, c_int};

/// One module's static thread-locals.
#[derive(Clone, Debug)]
struct Module {
    /// Distance of its first byte below the thread pointer.
    below: usize,
    values: Vec<u8>,
    /// libc.so or ld.so, of the program or brought by a library: kept as they are when a slot is used
    /// again.
    libc: bool,
}

/// All that is known of the modules at one time.
#[derive(Debug)]
pub(super) struct Modules {
    modules: Vec<Module>,
    /// Something besides libc reads the restartable-sequence area.
    pub(super) rseq_readers: bool,
}

impl Modules {
    /// Looks at every loaded module. `None`: no memory to do it.
    pub(super) fn scan(symbols: &Symbols, layout: &Layout) -> Option<Modules> {
        let mut scan = Scan { symbols, found: Vec::new(), rseq_readers: !LIBC_IS_A_MODULE };
        // SAFETY: `module` is called with each module in turn, before this returns.
        unsafe { libc::dl_iterate_phdr(Some(module), (&raw mut scan).cast()) };
        let scratch = Scratch::new(symbols, layout)?;
        Some(Modules { modules: scratch.read(&scan.found), rseq_readers: scan.rseq_readers })
    }

    /// What to write over a used block: everything static, except libc's own.
    pub(super) fn image(&self) -> Image {
        self.image_of(|module| !module.libc)
    }

    /// What is kept when a slot is used again: libc's own, where it is a module.
    ///
    /// With a libc.so that a library has brought, the caller is a thread, not a goroutine: libc.so's
    /// pointers into character tables are read off its variables.
    pub(super) fn kept(&self) -> Option<LibcTls> {
        let second = symbols::second_libc()?;
        let mut first = self.image_of(|module| module.libc);
        if let Some(second) = second {
            first.set_tables(&second);
        }
        (!first.is_empty()).then_some(LibcTls { first, second })
    }

    fn image_of(&self, belongs: impl Fn(&Module) -> bool) -> Image {
        let modules = self.modules.iter().filter(|module| belongs(module));
        Image { runs: modules.map(|module| (module.below, module.values.clone().into())).collect() }
    }
}

/// libc's own thread-locals: what a new identity has there, and what an old one had.
#[derive(Debug)]
pub(super) struct LibcTls {
    first: Image,
    /// Whose they are, if not the program's libc's.
    second: Option<SecondLibc>,
}

impl LibcTls {
    /// Writes what an earlier identity had; first values if there is none.
    ///
    /// # Safety
    /// - **quiet**: as for [`Image::write`].
    pub(super) unsafe fn write(&self, tp: usize, saved: Option<&[u8]>) {
        let Some(mut rest) = saved else {
            // SAFETY: quiet — promised by the caller.
            return unsafe { self.first.write(tp) };
        };
        for (below, values) in &self.first.runs {
            let (part, behind) = rest.split_at(values.len().min(rest.len()));
            rest = behind;
            let to = (tp - below) as *mut u8;
            // SAFETY: quiet — promised by the caller.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
        }
    }

    /// # Safety
    /// - **quiet**: as for [`Image::write`].
    pub(super) unsafe fn save(&self, tp: usize) -> Box<[u8]> {
        let runs = &self.first.runs;
        let mut saved = Vec::with_capacity(runs.iter().map(|(_, values)| values.len()).sum());
        for (below, values) in runs {
            // SAFETY: quiet — promised by the caller.
            saved.extend_from_slice(unsafe {
                std::slice::from_raw_parts((tp - below) as *const u8, values.len())
            });
        }
        saved.into()
    }

    /// Takes back what a goroutine has set in a libc.so that a library has brought.
    ///
    /// # Safety
    /// - **own**: the caller runs with an identity that has these variables.
    pub(super) unsafe fn retire(&self) {
        if let Some(second) = self.second {
            // SAFETY: the global locale always exists.
            unsafe { (second.use_locale)(GLOBAL_LOCALE) };
            // SAFETY: errno has an address, always.
            let errno = unsafe { (second.errno)() };
            // SAFETY: own — promised by the caller.
            unsafe { *errno = 0 };
        }
    }
}

/// First values of static thread-locals: runs of bytes, each with its distance below the thread
/// pointer.
#[derive(Debug)]
pub(super) struct Image {
    runs: Vec<(usize, Box<[u8]>)>,
}

impl Image {
    /// Writes the values.
    ///
    /// # Safety
    /// - **quiet**: `tp` is an identity's, and nothing uses the variables meanwhile.
    #[inline]
    pub(super) unsafe fn write(&self, tp: usize) {
        for (below, values) in &self.runs {
            let to = (tp - below) as *mut u8;
            // SAFETY: quiet — promised by the caller; the run lies in the identity's static area.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
        }
    }

    /// The runs that `other` does not have.
    pub(super) fn without(&self, other: &Image) -> Image {
        let rest = self.runs.iter().filter(|run| !other.runs.contains(run));
        Image { runs: rest.cloned().collect() }
    }

    /// Sets a libc.so's pointers into character tables. libc.so does so only on the thread that has
    /// loaded it.
    fn set_tables(&mut self, second: &SecondLibc) {
        let tp = arch::thread_pointer();
        // Sets this thread's pointers too.
        // SAFETY: the global locale always exists.
        let before = unsafe { (second.use_locale)(GLOBAL_LOCALE) };
        for table in second.tables {
            // SAFETY: has no precondition.
            let at = unsafe { table() };
            // SAFETY: this thread's own variable.
            let value = unsafe { *at }.to_ne_bytes();
            for (below, values) in &mut self.runs {
                let offset = (at as usize).wrapping_sub(tp - *below);
                let place = offset..offset.wrapping_add(value.len());
                if let Some(place) = values.get_mut(place) {
                    place.copy_from_slice(&value);
                }
            }
        }
        // SAFETY: the thread's own locale, as it was.
        unsafe { (second.use_locale)(before) };
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// No values at all.
    #[cfg(test)]
    pub(super) fn empty() -> Image {
        Image { runs: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// A block that ld.so filled as for a new thread, and nothing runs with.
struct Scratch<'a> {
    symbols: &'a Symbols,
    below: usize,
    /// What `tp` points into.
    _memory: Vec<u64>,
    tp: usize,
}

impl<'a> Scratch<'a> {
    fn new(symbols: &'a Symbols, layout: &Layout) -> Option<Scratch<'a>> {
        let below = layout.extent.below;
        // Some room behind, for the few words of the block that ld.so writes.
        let mut memory = vec![0; (below + layout.align + 256) / 8];
        let tp = (memory.as_mut_ptr() as usize + below).next_multiple_of(layout.align);
        // SAFETY: glibc's own function; `tp` ends a zeroed block of the size it asked for.
        let made = unsafe { (symbols.allocate_tls)(tp as *mut libc::c_void) };
        (!made.is_null()).then_some(Scratch { symbols, below, _memory: memory, tp })
    }

    /// The static modules, with their first values. One that is not among those `found` (it is in
    /// another name space) is taken to reach up to the next.
    fn read(&self, found: &[TlsModule]) -> Vec<Module> {
        // SAFETY: own — the block is ours alone.
        let vector = unsafe { DynamicVector::of(self.tp) };
        let place = |id| {
            let below = self.tp.checked_sub(vector.address(id)?)?;
            (below <= self.below).then_some((below, id))
        };
        let mut places: Vec<(usize, usize)> = (1..=vector.len()).filter_map(place).collect();
        places.sort_unstable();
        let mut next = 0;
        let modules = places.into_iter().map(|(below, id)| {
            let known = found.iter().find(|found| found.id == id);
            let room = below - std::mem::replace(&mut next, below);
            let len = known.map_or(room, |found| found.len.min(room));
            let at = (self.tp - below) as *const u8;
            // SAFETY: inside the scratch block: `len` bytes from `below` bytes below its end.
            let values = unsafe { std::slice::from_raw_parts(at, len) }.to_vec();
            Module { below, values, libc: known.is_some_and(|found| found.libc) }
        });
        modules.collect()
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`; `false`: the memory is ours to free.
        unsafe { (self.symbols.deallocate_tls)(self.tp as *mut libc::c_void, false) };
    }
}

/// A loaded module with thread-locals.
struct TlsModule {
    id: usize,
    len: usize,
    libc: bool,
}

struct Scan<'a> {
    symbols: &'a Symbols,
    found: Vec<TlsModule>,
    rseq_readers: bool,
}

const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// # Safety
/// - **callback**: dl_iterate_phdr calls it, with a [`Scan`].
unsafe extern "C" fn module(
    info: *mut libc::dl_phdr_info,
    size: usize,
    scan: *mut libc::c_void,
) -> c_int {
    // SAFETY: callback — `scan`'s own pointer.
    let scan = unsafe { &mut *scan.cast::<Scan<'_>>() };
    // SAFETY: callback — a filled record.
    let info = unsafe { &*info };
    let has_tls_fields = size >= size_of::<libc::dl_phdr_info>();
    // SAFETY: the record's program headers live as long as the module is loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let address = |header: &libc::Elf64_Phdr| (info.dlpi_addr + header.p_vaddr) as usize;
    let holds = |wanted: usize| {
        headers.iter().any(|header| {
            let start = address(header);
            header.p_type == libc::PT_LOAD
                && (start..start + header.p_memsz as usize).contains(&wanted)
        })
    };
    // SAFETY: the record's name is a string.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    let libc = symbols::is_libc(scan.symbols, name, holds);
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
    if let Some(dynamic) = dynamic.filter(|_| !libc) {
        // SAFETY: section — a loaded module's own.
        let strings = unsafe { Strings::of(address(dynamic), info.dlpi_addr) };
        // librseq finds the area by a look-up at run time, which no table shows.
        let named = name.to_bytes().windows(7).any(|part| part == b"librseq");
        scan.rseq_readers |= named || strings.refers_to_rseq();
    }
    let tls = headers.iter().find(|header| header.p_type == libc::PT_TLS);
    if let Some(tls) = tls.filter(|_| has_tls_fields && info.dlpi_tls_modid != 0) {
        scan.found.push(TlsModule { id: info.dlpi_tls_modid, len: tls.p_memsz as usize, libc });
    }
    0
}

/// The names that a module refers to.
#[derive(Debug)]
struct Strings {
    at: usize,
    len: usize,
}

impl Strings {
    /// # Safety
    /// - **section**: `at` is a loaded module's dynamic section; `base` its load address.
    unsafe fn of(at: usize, base: u64) -> Strings {
        let mut found = Strings { at: 0, len: 0 };
        let mut entry = at as *const [u64; 2];
        loop {
            // SAFETY: section — promised by the caller; the loop ends at the null entry.
            let [tag, value] = unsafe { *entry };
            match tag {
                0 => return found,
                // ld.so makes it an address, except where the section is read-only.
                DT_STRTAB if value < base => found.at = (base + value) as usize,
                DT_STRTAB => found.at = value as usize,
                DT_STRSZ => found.len = value as usize,
                _ => {}
            }
            // SAFETY: section — the null entry was not reached.
            entry = unsafe { entry.add(1) };
        }
    }

    /// Whether the module refers to the area that the kernel shares with each thread.
    fn refers_to_rseq(&self) -> bool {
        const NAME: &[u8] = b"\0__rseq_offset\0";
        if self.at == 0 || self.len < NAME.len() {
            return false;
        }
        let strings = self.at as *const libc::c_void;
        // SAFETY: the module's string table, readable while it is loaded.
        let name = unsafe { libc::memmem(strings, self.len, NAME.as_ptr().cast(), NAME.len()) };
        !name.is_null()
    }
}
