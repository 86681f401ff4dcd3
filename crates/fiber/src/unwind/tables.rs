//! Unwind tables of the program and its libraries. They are copies, so a library may be unloaded
//! while they are in use. `Tables::now` never waits for the lock of its cache: the holder may be
//! stopped.

use super::elf::{Exports, Loaded};
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, FrameDescriptionEntry, LittleEndian, UnwindSection,
};
use std::ffi::CStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The bytes of a section.
pub(super) type Bytes<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// The tables of all modules that were loaded at one point in time.
#[derive(Debug)]
pub(super) struct Tables {
    /// Sorted by address.
    pub(super) modules: Vec<Module>,
    /// How many modules had been loaded and unloaded at that time, since the program started.
    loads: (u64, u64),
}

/// The program or a library.
#[derive(Debug)]
pub(super) struct Module {
    /// Path of the file. Empty for the program.
    pub(super) path: PathBuf,
    /// Address range of the whole module.
    pub(super) range: Range<usize>,
    /// Load address: the difference between addresses in memory and addresses in the file.
    pub(super) base: usize,
    /// Address ranges of the executable segments.
    code: Vec<Range<usize>>,
    /// The section `.eh_frame_hdr`: its address and a copy of its bytes.
    header: (usize, Vec<u8>),
    /// The section `.eh_frame`: its address and a copy of its bytes.
    frames: (usize, Vec<u8>),
    /// Build id, which only this module and its file have. Empty if the module has none.
    pub(super) id: Vec<u8>,
    pub(super) exports: Exports,
}

impl Tables {
    /// Returns the tables of the modules that are loaded now.
    pub(super) fn now() -> Arc<Tables> {
        static LAST: Mutex<Option<Arc<Tables>>> = Mutex::new(None);
        // Does not wait for the lock, whose holder may be stopped. Without the lock, the tables are
        // read again.
        let mut last = LAST.try_lock().ok();
        let known = last.as_ref().and_then(|last| last.as_ref());
        if let Some(known) = known.filter(|known| known.loads == load_counts()) {
            return known.clone();
        }
        let new = Arc::new(Tables::read());
        if let Some(last) = &mut last {
            **last = Some(new.clone());
        }
        new
    }

    fn read() -> Tables {
        let mut tables = Tables { modules: Vec::new(), loads: (0, 0) };
        for_each_module(|info| {
            tables.loads = (info.dlpi_adds, info.dlpi_subs);
            tables.modules.extend(Module::copy(info));
            true
        });
        tables.modules.sort_by_key(|module| module.range.start);
        tables
    }

    /// Returns the module that contains the code at `pc`.
    pub(super) fn module(&self, pc: usize) -> Option<&Module> {
        let after = self.modules.partition_point(|module| module.range.start <= pc);
        let module = self.modules[..after].last()?;
        module.code.iter().any(|code| code.contains(&pc)).then_some(module)
    }
}

/// Returns how many modules have been loaded and unloaded since the program started.
fn load_counts() -> (u64, u64) {
    let mut loads = (0, 0);
    for_each_module(|info| {
        loads = (info.dlpi_adds, info.dlpi_subs);
        false
    });
    loads
}

/// Calls `each` with each loaded module until `each` returns `false`. No module is unloaded
/// meanwhile.
fn for_each_module(mut each: impl FnMut(&libc::dl_phdr_info) -> bool) {
    type Each<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> bool;
    /// # Safety
    /// - **callback**: called by `dl_iterate_phdr`, with an [`Each`].
    unsafe extern "C" fn call(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        each: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: callback — the `Each` below, which lives until `dl_iterate_phdr` returns.
        let each = unsafe { &mut *each.cast::<Each<'_>>() };
        // SAFETY: callback — the loader passes a valid record.
        i32::from(!each(unsafe { &*info }))
    }
    let mut each: Each<'_> = &mut each;
    // SAFETY: callback — `each` is an `Each` that lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(call), (&raw mut each).cast()) };
}

impl Module {
    /// Copies what stack walks need. Returns `None` if the module has no unwind tables, or has them
    /// in an unusual form.
    fn copy(info: &libc::dl_phdr_info) -> Option<Module> {
        let base = info.dlpi_addr as usize;
        // SAFETY: the loader's record has the address and the number of the headers.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let range = |header: &libc::Elf64_Phdr| {
            let start = base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        };
        let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let whole = loaded()
            .map(range)
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?;
        let code = loaded().filter(|header| header.p_flags & libc::PF_X != 0).map(range).collect();
        let table = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let table = range(table);
        // SAFETY: the headers list this segment, and the module stays loaded during this call.
        let header = unsafe { copy(&table) };
        let frames = frames_of(&header, table.start)?;
        // No header records where the section ends: `length` searches its segment for the last
        // entry.
        let segment = loaded().map(range).find(|segment| segment.contains(&frames))?;
        // SAFETY: as above.
        let size = unsafe { length(frames..segment.end) };
        // SAFETY: as above.
        let section = unsafe { copy(&(frames..frames + size)) };
        // SAFETY: as above.
        let loaded = unsafe { Loaded::new(base, headers) };
        // SAFETY: the loader's record has a C string.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
        Some(Module {
            path: path.into(),
            range: whole,
            base,
            code,
            header: (table.start, header),
            frames: (frames, section),
            id: loaded.id().unwrap_or_default().to_vec(),
            exports: loaded.exports().unwrap_or_default(),
        })
    }

    /// Returns whether all of `range` lies in one executable segment.
    pub(super) fn has_code(&self, range: &Range<usize>) -> bool {
        self.code.iter().any(|code| code.start <= range.start && range.end <= code.end)
    }

    /// Returns the table entry of the function that contains the address `at`.
    pub(super) fn entry(&self, at: usize) -> Option<FrameDescriptionEntry<Bytes<'_>>> {
        let (bases, frames) = (self.bases(), self.frames());
        let header = EhFrameHdr::new(&self.header.1, LittleEndian).parse(&bases, 8).ok()?;
        let found =
            header.table()?.fde_for_address(&frames, &bases, at as u64, EhFrame::cie_from_offset);
        found.ok()
    }

    pub(super) fn frames(&self) -> EhFrame<Bytes<'_>> {
        EhFrame::new(&self.frames.1, LittleEndian)
    }

    /// Returns the addresses of the sections in memory. Addresses in the tables are relative to
    /// them.
    pub(super) fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame_hdr(self.header.0 as u64)
            .set_eh_frame(self.frames.0 as u64)
    }
}

/// Returns the address of the section `.eh_frame`. `header` is the section `.eh_frame_hdr` at `at`.
fn frames_of(header: &[u8], at: usize) -> Option<usize> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(at as u64);
    let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).ok()?;
    header.eh_frame_ptr().direct().ok().map(|at| at as usize)
}

/// Returns the length of the section `.eh_frame` at the start of `range`, up to its last entry,
/// which is empty.
///
/// # Safety
/// - **mapped**: `range` is readable.
unsafe fn length(range: Range<usize>) -> usize {
    let mut at = range.start;
    while at + 4 <= range.end {
        // SAFETY: mapped — promised by the caller.
        let length = unsafe { (at as *const u32).read_unaligned() } as usize;
        at += 4;
        if length == 0 {
            break;
        }
        at += length;
    }
    at.min(range.end) - range.start
}

/// Copies the memory in `range`.
///
/// # Safety
/// - **mapped**: `range` is readable.
unsafe fn copy(range: &Range<usize>) -> Vec<u8> {
    // SAFETY: mapped — promised by the caller.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }.to_vec()
}
