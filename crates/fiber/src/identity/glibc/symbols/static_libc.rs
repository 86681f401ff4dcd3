//! What we need of glibc that no header declares, in a program that has libc inside it.

use super::{KeyRecord, SecondLibc, Symbols};
use crate::base::unsupported::Unsupported;
use crate::identity::imp::interpose::preserving_dlerror;
use std::arch::asm;
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::sync::OnceLock;

/// libc's thread-locals are part of the program's one block: they are freed as a dying thread frees
/// them, and start over with the rest.
pub(in super::super) const LIBC_IS_A_MODULE: bool = false;

unsafe extern "C" {
    fn _dl_allocate_tls(block: *mut libc::c_void) -> *mut libc::c_void;
    fn _dl_deallocate_tls(block: *mut libc::c_void, also_block: bool);
    fn _dl_get_tls_static_info(size: *mut usize, align: *mut usize);
    fn __ctype_init();
    fn __call_tls_dtors();
    fn __libc_thread_freeres();
    static __pthread_keys: KeyRecord;
    static __rseq_offset: isize;
}

pub(in super::super) fn load() -> Result<Symbols, Unsupported> {
    let resolver_offset: isize;
    // SAFETY: reads the offset of `__resp`, a thread-local of libc.a, that the linker filled in.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + __resp@GOTTPOFF]",
            out(reg) resolver_offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    Ok(Symbols {
        allocate_tls: _dl_allocate_tls,
        deallocate_tls: _dl_deallocate_tls,
        static_info: _dl_get_tls_static_info,
        ctype_init: __ctype_init,
        call_tls_dtors: __call_tls_dtors,
        thread_freeres: Some(__libc_thread_freeres),
        keys: &raw const __pthread_keys,
        resolver_offset,
        // SAFETY: a constant of libc.a.
        rseq_offset: Some(unsafe { __rseq_offset }),
    })
}

/// Whether a module is a libc.so that a library has brought. (The program holds the other one.)
pub(in super::super) fn is_libc(
    _symbols: &Symbols,
    name: &CStr,
    _holds: impl Fn(usize) -> bool,
) -> bool {
    name.to_bytes().ends_with(b"/libc.so.6")
}

/// Set when a libc.so was seen; empty if it does not have what we need of it.
static SECOND: OnceLock<Option<SecondLibc>> = OnceLock::new();

/// The libc.so that a library has brought, if [`find_second_libc`] has seen one.
pub(in super::super) fn second_libc() -> Option<Option<SecondLibc>> {
    SECOND.get().copied()
}

/// Looks for a libc.so that a library has brought, and keeps it loaded for good. Waits for the
/// loader: no lock may be held that is taken inside a load.
pub(in super::super) fn find_second_libc() {
    if SECOND.get().is_some() {
        return;
    }
    let mut name: Option<CString> = None;
    // SAFETY: `note_libc` is called with each module in turn, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(note_libc), (&raw mut name).cast()) };
    let Some(name) = name else { return };
    preserving_dlerror(|| {
        if let Some(library) = Library::keep(&name) {
            SECOND.get_or_init(|| library.second_libc());
        }
    });
}

/// # Safety
/// - **callback**: dl_iterate_phdr calls it, with an `Option<CString>`.
unsafe extern "C" fn note_libc(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    name: *mut libc::c_void,
) -> c_int {
    // SAFETY: callback — a filled record.
    let info = unsafe { &*info };
    // SAFETY: the record's name is a string.
    let module = unsafe { CStr::from_ptr(info.dlpi_name) };
    if !module.to_bytes().ends_with(b"/libc.so.6") {
        return 0;
    }
    // SAFETY: callback — `name`'s own pointer.
    unsafe { *name.cast::<Option<CString>>() = Some(module.to_owned()) };
    1
}

unsafe extern "C" {
    fn __dlmopen(
        space: c_long,
        file: *const c_char,
        flags: c_int,
        caller: *const libc::c_void,
    ) -> *mut libc::c_void;
    fn __dlsym(
        library: *mut libc::c_void,
        name: *const c_char,
        caller: *const libc::c_void,
    ) -> *mut libc::c_void;
}

/// A library that is never unloaded.
struct Library(*mut libc::c_void);

impl Library {
    /// The library of that name, if it is loaded.
    fn keep(name: &CStr) -> Option<Library> {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: loads nothing, so that no code of a library runs.
        let library = unsafe { __dlmopen(0, name.as_ptr(), flags, std::ptr::null()) };
        (!library.is_null()).then_some(Library(library))
    }

    fn second_libc(&self) -> Option<SecondLibc> {
        Some(SecondLibc {
            // SAFETY: type — the C library's.
            use_locale: unsafe { self.function(c"uselocale") }?,
            // SAFETY: type — as above.
            errno: unsafe { self.function(c"__errno_location") }?,
            tables: [
                // SAFETY: type — as above: a pointer to a pointer.
                unsafe { self.function(c"__ctype_b_loc") }?,
                // SAFETY: type — as above.
                unsafe { self.function(c"__ctype_tolower_loc") }?,
                // SAFETY: type — as above.
                unsafe { self.function(c"__ctype_toupper_loc") }?,
            ],
        })
    }

    /// # Safety
    /// - **type**: `F` is the type of a pointer to the library's function of that name.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: a look-up by name in a library that stays loaded.
        let at = unsafe { __dlsym(self.0, name.as_ptr(), std::ptr::null()) };
        // SAFETY: type — promised by the caller; of the size of an address, checked above.
        (!at.is_null()).then(|| unsafe { std::mem::transmute_copy::<_, F>(&at) })
    }
}
