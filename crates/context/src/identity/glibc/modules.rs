//! The loaded modules with thread-locals, and the first values of the static ones.
//!
//! A *static* module's thread-locals lie at a fixed distance below the thread pointer, on every
//! thread; the others are allocated per thread when first used. Values are copied out of the
//! modules, so that an [`Image`] stays good when a library is unloaded.

use super::symbols::{LIBC_IS_A_MODULE, Symbols, thread_local_address};
use crate::arch;
use std::ffi::c_int;

/// One module's static thread-locals.
#[derive(Clone, Debug)]
struct Module {
    /// Distance of its first byte below the thread pointer.
    below: usize,
    values: Vec<u8>,
    /// libc.so or ld.so: kept as they are when a slot is used again.
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
    /// Looks at every loaded module. `room` is the size of the static area.
    pub(super) fn scan(symbols: &Symbols, room: usize) -> Modules {
        let mut scan = Scan {
            room,
            libc: [symbols.call_tls_dtors as usize, symbols.allocate_tls as usize],
            found: Modules { modules: Vec::new(), rseq_readers: !LIBC_IS_A_MODULE },
        };
        // SAFETY: `module` is called with each module in turn, before this returns.
        unsafe { libc::dl_iterate_phdr(Some(module), (&raw mut scan).cast()) };
        scan.found
    }

    /// What to write over a used block: everything static, except libc's own.
    pub(super) fn image(&self) -> Image {
        let ours = self.modules.iter().filter(|module| !(module.libc && LIBC_IS_A_MODULE));
        Image { runs: ours.map(|module| (module.below, module.values.clone().into())).collect() }
    }

    /// What is kept: place and size of libc's own, where it is a module.
    pub(super) fn kept(&self) -> Vec<(usize, usize)> {
        let kept = self.modules.iter().filter(|module| module.libc && LIBC_IS_A_MODULE);
        kept.map(|module| (module.below, module.values.len())).collect()
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

    /// The runs that `older` does not have.
    pub(super) fn newer_than(&self, older: &Image) -> Image {
        let new = self.runs.iter().filter(|run| !older.runs.contains(run));
        Image { runs: new.cloned().collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

struct Scan {
    room: usize,
    libc: [usize; 2],
    found: Modules,
}

/// `DT_FLAGS` bit: the module's thread-locals must be static.
const DF_STATIC_TLS: u64 = 0x10;

const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_FLAGS: u64 = 30;

/// # Safety
/// - **callback**: dl_iterate_phdr calls it, with a [`Scan`].
unsafe extern "C" fn module(
    info: *mut libc::dl_phdr_info,
    size: usize,
    scan: *mut libc::c_void,
) -> c_int {
    // SAFETY: dl_iterate_phdr passes a filled record and `scan`'s own pointer.
    let scan = unsafe { &mut *scan.cast::<Scan>() };
    // SAFETY: as above.
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
    let libc = scan.libc.iter().any(|&function| holds(function));
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
    // SAFETY: a loaded module's dynamic section is readable and ends with a null entry.
    let dynamic = dynamic.map(|header| unsafe { Dynamic::read(address(header), info.dlpi_addr) });
    if !libc && dynamic.as_ref().is_some_and(Dynamic::names_rseq) {
        scan.found.rseq_readers = true;
    }
    let tls = headers.iter().find(|header| header.p_type == libc::PT_TLS);
    let Some(tls) = tls.filter(|_| has_tls_fields && info.dlpi_tls_modid != 0) else {
        return 0;
    };
    let mut data = info.dlpi_tls_data as usize;
    if data == 0 && dynamic.is_some_and(|dynamic| dynamic.static_tls) {
        // A library loaded later whose variables are static: this thread has not met it yet.
        // SAFETY: module — it is loaded and has thread-locals.
        data = unsafe { thread_local_address(info.dlpi_tls_modid) };
    }
    let below = arch::thread_pointer().wrapping_sub(data);
    if data != 0 && below <= scan.room {
        let mut values = vec![0; tls.p_memsz as usize];
        let filled = address(tls) as *const u8;
        // SAFETY: the module's first values, readable while it is loaded.
        let filled = unsafe { std::slice::from_raw_parts(filled, tls.p_filesz as usize) };
        values[..filled.len()].copy_from_slice(filled);
        scan.found.modules.push(Module { below, values, libc });
    }
    0
}

/// What is read of a module's dynamic section.
#[derive(Debug)]
struct Dynamic {
    static_tls: bool,
    strings: usize,
    strings_len: usize,
}

impl Dynamic {
    /// # Safety
    /// - **section**: `at` is a loaded module's dynamic section; `base` its load address.
    unsafe fn read(at: usize, base: u64) -> Dynamic {
        let mut found = Dynamic { static_tls: false, strings: 0, strings_len: 0 };
        let mut entry = at as *const [u64; 2];
        loop {
            // SAFETY: section — promised by the caller; the loop ends at the null entry.
            let [tag, value] = unsafe { *entry };
            match tag {
                0 => break,
                DT_FLAGS => found.static_tls = value & DF_STATIC_TLS != 0,
                // ld.so makes it an address, except where the section is read-only.
                DT_STRTAB if value < base => found.strings = (base + value) as usize,
                DT_STRTAB => found.strings = value as usize,
                DT_STRSZ => found.strings_len = value as usize,
                _ => {}
            }
            // SAFETY: section — the null entry was not reached.
            entry = unsafe { entry.add(1) };
        }
        found
    }

    /// Whether the module refers to the area that the kernel shares with each thread.
    fn names_rseq(&self) -> bool {
        const NAME: &[u8] = b"\0__rseq_offset\0";
        if self.strings == 0 || self.strings_len < NAME.len() {
            return false;
        }
        let strings = self.strings as *const libc::c_void;
        // SAFETY: the module's string table, readable while it is loaded.
        let name =
            unsafe { libc::memmem(strings, self.strings_len, NAME.as_ptr().cast(), NAME.len()) };
        !name.is_null()
    }
}
