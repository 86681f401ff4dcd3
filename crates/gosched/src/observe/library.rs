//! Names of functions in a shared library, read from the library's file.
//!
//! A file is used only if it has the build id of the loaded library: by now the path may belong to
//! another file.
//!
//! The loader maps neither debug information nor the full symbol table, so this module reads the
//! sections of a file. The data that the loader has mapped is read by `gosched_fiber::base::elf`,
//! which also decodes the notes and symbols of both.
//!
//! This module never reads the memory of the loaded library, which may be unloaded meanwhile.

use super::symbols::{Symbol, demangled};
use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use gosched_fiber::unwind;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Bytes = EndianSlice<'static, LittleEndian>;

/// The debug information and symbols in the file of a library.
pub(super) struct Library {
    /// The debug information. It refers to the bytes in `_sections`, so it must be dropped first.
    context: Option<Context<Bytes>>,
    /// Symbol tables, each with its string table.
    tables: Vec<[Arc<[u8]>; 2]>,
    _sections: Vec<Arc<[u8]>>,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

impl Library {
    /// Reads the separate debug file that the distribution provides for the library, or else the
    /// library at `path`. Returns `None` if neither file has the build id `id`.
    pub(super) fn open(path: &Path, id: &[u8]) -> Option<Library> {
        let files = [apart(id), path.to_owned()];
        let mut files = files.iter().filter_map(|path| Elf::open(path));
        files.find(|file| file.id().is_some_and(|its| its == id)).map(|file| Library::read(&file))
    }

    fn read(file: &Elf) -> Library {
        let mut sections: Vec<Arc<[u8]>> = Vec::new();
        let dwarf = Dwarf::load(|section| {
            let bytes = file.named(section.name()).and_then(|section| file.contents(section));
            let bytes: Arc<[u8]> = bytes.unwrap_or_default().into();
            // SAFETY: the bytes do not move while the `Library` owns them, and the context is part
            // of that `Library` and returns only copies.
            let all: &'static [u8] = unsafe { &*Arc::as_ptr(&bytes) };
            sections.push(bytes);
            Ok::<Bytes, std::convert::Infallible>(EndianSlice::new(all, LittleEndian))
        });
        let Ok(dwarf) = dwarf;
        let tables = [SYMTAB, DYNSYM].into_iter().filter_map(|kind| file.symbols(kind)).collect();
        Library { context: Context::from_dwarf(dwarf).ok(), tables, _sections: sections }
    }

    /// Returns the functions at an offset, the innermost first. Returns an empty list if they are
    /// not known.
    pub(super) fn at(&self, offset: usize) -> Vec<Symbol> {
        let mut found = Vec::new();
        let frames = self.context.as_ref().map(|context| context.find_frames(offset as u64));
        if let Some(Ok(mut frames)) = frames.map(|frames| frames.skip_all_loads()) {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.map(|function| demangled(function.name.slice()));
                let Some(name) = name.or_else(|| self.function_at(offset)) else { continue };
                let place = frame.location.and_then(|place| place.file.zip(place.line));
                found.push(Symbol::new(name, place.map(|(file, line)| (file.to_owned(), line))));
            }
        }
        if found.is_empty() {
            found.extend(self.function_at(offset).map(|name| Symbol::new(name, None)));
        }
        found
    }

    fn function_at(&self, offset: usize) -> Option<String> {
        let find = |[symbols, names]: &[Arc<[u8]>; 2]| {
            unwind::function_at(symbols, names, offset as u64).map(demangled)
        };
        self.tables.iter().find_map(find)
    }
}

/// Returns the path at which distributions install the debug file for a build id.
fn apart(id: &[u8]) -> PathBuf {
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = digits.split_at(digits.len().min(2));
    Path::new("/usr/lib/debug/.build-id").join(folder).join(format!("{name}.debug"))
}

const SYMTAB: u32 = 2;
const NOTE: u32 = 7;
const NOBITS: u32 = 8;
const DYNSYM: u32 = 11;
const COMPRESSED: u64 = 1 << 11;

/// An ELF file with its section headers.
struct Elf {
    file: File,
    size: u64,
    sections: Vec<Section>,
    names: Vec<u8>,
}

struct Section {
    name: usize,
    kind: u32,
    flags: u64,
    at: u64,
    size: u64,
    link: usize,
}

impl Elf {
    /// Opens an ELF file. Returns `None` if it does not exist, or is not a 64-bit little-endian ELF
    /// file.
    fn open(path: &Path) -> Option<Elf> {
        /// The first bytes of a 64-bit little-endian ELF file.
        const KIND: &[u8] = b"\x7fELF\x02\x01";
        let file = File::open(path).ok()?;
        let size = file.metadata().ok().filter(|file| file.is_file())?.len();
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let number = |at, size| number(&header, at, size);
        let (count, names) = (number(60, 2) as usize, number(62, 2) as usize);
        if !header.starts_with(KIND) || number(58, 2) != 64 {
            return None;
        }
        let mut table = vec![0; count * 64];
        file.read_exact_at(&mut table, number(40, 8)).ok()?;
        let (sections, _) = table.as_chunks::<64>();
        let sections = sections.iter().map(Section::new).collect();
        let mut elf = Elf { file, size, sections, names: Vec::new() };
        elf.names = elf.contents(elf.sections.get(names)?)?;
        Some(elf)
    }

    fn contents(&self, section: &Section) -> Option<Vec<u8>> {
        let is_there = section.kind != NOBITS && section.flags & COMPRESSED == 0;
        if !is_there || section.size > self.size {
            return None;
        }
        let mut bytes = vec![0; section.size as usize];
        self.file.read_exact_at(&mut bytes, section.at).ok()?;
        Some(bytes)
    }

    fn named(&self, name: &str) -> Option<&Section> {
        let is_its = |rest: &[u8]| {
            rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        self.sections.iter().find(|section| self.names.get(section.name..).is_some_and(is_its))
    }

    fn id(&self) -> Option<Vec<u8>> {
        let mut notes = self.sections.iter().filter(|section| section.kind == NOTE);
        notes
            .find_map(|notes| unwind::build_id_of_notes(&self.contents(notes)?).map(<[u8]>::to_vec))
    }

    /// Returns the symbol table of this kind, and its string table.
    fn symbols(&self, kind: u32) -> Option<[Arc<[u8]>; 2]> {
        let symbols = self.sections.iter().find(|section| section.kind == kind)?;
        let names = self.contents(self.sections.get(symbols.link)?)?;
        Some([self.contents(symbols)?.into(), names.into()])
    }
}

impl Section {
    fn new(bytes: &[u8; 64]) -> Section {
        Section {
            name: number(bytes, 0, 4) as usize,
            kind: number(bytes, 4, 4) as u32,
            flags: number(bytes, 8, 8),
            at: number(bytes, 24, 8),
            size: number(bytes, 32, 8),
            link: number(bytes, 40, 4) as usize,
        }
    }
}

/// Reads a little-endian number of `size` bytes.
fn number(bytes: &[u8; 64], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
