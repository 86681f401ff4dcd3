//! Unwind tables of the program and its libraries. They are copies, so a library may be unloaded
//! while they are in use. `Tables::now` never waits for the lock of its cache: the holder may be
//! stopped.

use crate::base::elf::{self, Exports, Loaded};
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, FrameDescriptionEntry, LittleEndian, UnwindSection,
};
use std::ops::{ControlFlow, Range};
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
        elf::for_each_loaded(|loaded| {
            tables.loads = loaded.load_counts();
            tables.modules.extend(Module::copy(loaded));
            ControlFlow::Continue(())
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
    elf::for_each_loaded(|loaded| {
        loads = loaded.load_counts();
        ControlFlow::Break(())
    });
    loads
}

impl Module {
    /// Copies what stack walks need. Returns `None` if the module has no unwind tables, or has them
    /// in an unusual form.
    fn copy(loaded: &Loaded<'_>) -> Option<Module> {
        let range = loaded
            .segments(libc::PT_LOAD)
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?;
        let table = loaded.segments(libc::PT_GNU_EH_FRAME).next()?;
        let header = loaded.bytes(table.clone())?;
        let frames = frames_of(header, table.start)?;
        // No header records where the section ends: `length` searches its segment for the last
        // entry.
        let segment = loaded.bytes_from(frames)?;
        let section = segment.get(..length(segment))?;
        Some(Module {
            path: loaded.path().to_string_lossy().into_owned().into(),
            range,
            base: loaded.base(),
            code: loaded.code().collect(),
            header: (table.start, header.to_vec()),
            frames: (frames, section.to_vec()),
            id: loaded.build_id().unwrap_or_default().to_vec(),
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

/// Returns the length of the section `.eh_frame` at the start of `segment`, up to its last entry,
/// which is empty.
fn length(segment: &[u8]) -> usize {
    let mut at = 0;
    while let Some(bytes) = segment.get(at..).and_then(<[u8]>::first_chunk) {
        let length = u32::from_le_bytes(*bytes) as usize;
        at += 4;
        if length == 0 {
            break;
        }
        at += length;
    }
    at.min(segment.len())
}
