//! The loaded modules that have thread-locals, and the initial values of the static ones.
//!
//! The thread-locals of a *static* module lie at a fixed distance below the thread pointer on every
//! thread. Those of other modules are allocated per thread on first use. Only ld.so knows for
//! certain which modules are static and what their initial values are, so it is made to fill a
//! scratch block as for a new thread. The values are copied, so an [`Image`] stays valid when a
//! library is unloaded.
//!
//! This module never decides when values are written into an identity: `loading` and the functions
//! of `glibc/mod.rs` do.

use super::GLOBAL_LOCALE;
use super::control_block::{DynamicVector, Layout};
use super::symbols::{self, LIBC_IS_A_MODULE, SecondLibc, Symbols};
use crate::arch;
use crate::base::elf::{self, Loaded};
use std::ops::ControlFlow;

/// The static thread-locals of one module.
#[derive(Clone, Debug)]
struct Module {
    /// Distance of the first byte below the thread pointer, in bytes.
    below: usize,
    values: Vec<u8>,
    /// Whether the module is libc.so or ld.so, either the program's or one that a library brought.
    /// Its thread-locals are kept when a slot is reused.
    libc: bool,
}

/// The result of one scan of the modules.
#[derive(Debug)]
pub(super) struct Modules {
    modules: Vec<Module>,
    /// Whether a module other than libc reads the restartable-sequence area.
    pub(super) rseq_readers: bool,
}

impl Modules {
    /// Scans all loaded modules. Returns `None` if there is no memory for the scan.
    pub(super) fn scan(symbols: &Symbols, layout: &Layout) -> Option<Modules> {
        let mut scan = Scan { symbols, found: Vec::new(), rseq_readers: !LIBC_IS_A_MODULE };
        elf::for_each_loaded(|loaded| {
            scan.add(loaded);
            ControlFlow::Continue(())
        });
        let scratch = Scratch::new(symbols, layout)?;
        Some(Modules { modules: scratch.read(&scan.found), rseq_readers: scan.rseq_readers })
    }

    /// Returns the values that a wipe writes: those of all static modules except libc.
    pub(super) fn image(&self) -> Image {
        self.image_of(|module| !module.libc)
    }

    /// Returns the thread-locals that are kept when a slot is reused: libc's own, if libc is a
    /// module.
    ///
    /// If a library brought libc.so, the caller must be a thread, not a goroutine: the pointers
    /// into libc.so's character tables are read from the caller's thread-locals.
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

/// libc's own thread-locals: writes and saves their values.
#[derive(Debug)]
pub(super) struct LibcTls {
    /// Initial values.
    first: Image,
    /// The libc.so that the thread-locals belong to, if it is not the program's libc.
    second: Option<SecondLibc>,
}

impl LibcTls {
    /// Writes the values that were saved from an earlier identity, or the initial values if `saved`
    /// is `None`.
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

    /// Returns a copy of the identity's values.
    ///
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

    /// Resets the locale and errno that a goroutine set in a libc.so that a library brought.
    ///
    /// # Safety
    /// - **own**: the caller runs with an identity that has these variables.
    pub(super) unsafe fn retire(&self) {
        if let Some(second) = self.second {
            // SAFETY: the global locale always exists.
            unsafe { (second.use_locale)(GLOBAL_LOCALE) };
            // SAFETY: __errno_location has no precondition.
            let errno = unsafe { (second.errno)() };
            // SAFETY: own — promised by the caller.
            unsafe { *errno = 0 };
        }
    }
}

/// Initial values of static thread-locals: runs of bytes, each with the distance of its first byte
/// below the thread pointer.
#[derive(Debug)]
pub(super) struct Image {
    runs: Vec<(usize, Box<[u8]>)>,
}

impl Image {
    /// Writes the values into an identity.
    ///
    /// # Safety
    /// - **quiet**: `tp` is the thread pointer of an identity, and no code uses the variables
    ///   during the call.
    #[inline]
    pub(super) unsafe fn write(&self, tp: usize) {
        for (below, values) in &self.runs {
            let to = (tp - below) as *mut u8;
            // SAFETY: quiet — promised by the caller; the run lies in the identity's static
            // thread-locals.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
        }
    }

    /// Returns the runs of `self` that `other` does not contain.
    pub(super) fn without(&self, other: &Image) -> Image {
        let rest = self.runs.iter().filter(|run| !other.runs.contains(run));
        Image { runs: rest.cloned().collect() }
    }

    /// Copies the calling thread's pointers into libc.so's character tables into the initial
    /// values. libc.so itself sets them only on the thread that loads it.
    fn set_tables(&mut self, second: &SecondLibc) {
        let tp = arch::thread_pointer();
        // Also sets this thread's pointers.
        // SAFETY: the global locale always exists.
        let before = unsafe { (second.use_locale)(GLOBAL_LOCALE) };
        for table in second.tables {
            // SAFETY: the function has no precondition.
            let at = unsafe { table() };
            // SAFETY: a variable of this thread.
            let value = unsafe { *at }.to_ne_bytes();
            for (below, values) in &mut self.runs {
                let offset = (at as usize).wrapping_sub(tp - *below);
                let place = offset..offset.wrapping_add(value.len());
                if let Some(place) = values.get_mut(place) {
                    place.copy_from_slice(&value);
                }
            }
        }
        // SAFETY: the locale that this thread had before.
        unsafe { (second.use_locale)(before) };
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns an image without values.
    #[cfg(test)]
    pub(super) fn empty() -> Image {
        Image { runs: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// A block that ld.so filled as for a new thread. No code runs with it.
struct Scratch<'a> {
    symbols: &'a Symbols,
    below: usize,
    /// The memory that `tp` points into.
    _memory: Vec<u64>,
    tp: usize,
}

impl<'a> Scratch<'a> {
    fn new(symbols: &'a Symbols, layout: &Layout) -> Option<Scratch<'a>> {
        let below = layout.extent.below;
        // Leaves room after `tp` for the few words of the control block that ld.so writes.
        let mut memory = vec![0; (below + layout.align + 256) / 8];
        let tp = (memory.as_mut_ptr() as usize + below).next_multiple_of(layout.align);
        // SAFETY: glibc's own function; the area below `tp` is zero and has the size that
        // `static_info` returned.
        let made = unsafe { (symbols.allocate_tls)(tp as *mut libc::c_void) };
        (!made.is_null()).then_some(Scratch { symbols, below, _memory: memory, tp })
    }

    /// Returns the static modules with their initial values. A module that is not in `found`
    /// belongs to another name space; it is assumed to extend up to the next module.
    fn read(&self, found: &[TlsModule]) -> Vec<Module> {
        // SAFETY: own — only this function uses the block.
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
            // SAFETY: inside the scratch block: `len` bytes that begin `below` bytes below `tp`.
            let values = unsafe { std::slice::from_raw_parts(at, len) }.to_vec();
            Module { below, values, libc: known.is_some_and(|found| found.libc) }
        });
        modules.collect()
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; `false`, because `_memory` owns the block.
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

impl Scan<'_> {
    fn add(&mut self, loaded: &Loaded<'_>) {
        let name = loaded.path();
        let holds = |at: usize| loaded.segments(libc::PT_LOAD).any(|part| part.contains(&at));
        let libc = symbols::is_libc(self.symbols, name, holds);
        if !libc {
            // librseq looks `__rseq_offset` up by name at run time, so its string table need not
            // contain the name.
            let is_librseq = name.to_bytes().windows(7).any(|part| part == b"librseq");
            self.rseq_readers |= is_librseq || refers_to_rseq(loaded);
        }
        if let Some((id, len)) = loaded.thread_locals() {
            self.found.push(TlsModule { id, len, libc });
        }
    }
}

/// Returns whether the module refers to the restartable-sequence area.
fn refers_to_rseq(loaded: &Loaded<'_>) -> bool {
    const NAME: &[u8] = b"\0__rseq_offset\0";
    let names = loaded.names().unwrap_or_default();
    // SAFETY: both slices are readable.
    let found = unsafe {
        libc::memmem(names.as_ptr().cast(), names.len(), NAME.as_ptr().cast(), NAME.len())
    };
    !found.is_null()
}
