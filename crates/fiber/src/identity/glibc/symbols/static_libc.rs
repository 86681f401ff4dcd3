//! Access to glibc's undeclared functions and data in a static program, by linking to them. This
//! file never loads a library: `find_second_libc` only keeps a loaded libc.so from being unloaded.

use super::{KeyRecord, SecondLibc, Symbols};
use crate::base::elf;
use crate::base::unsupported::Unsupported;
use crate::identity::imp::interpose::preserving_dlerror;
use std::arch::asm;
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// Whether libc's thread-locals are a module of their own. In a static program they are part of the
/// program's block, so they are freed as on an exiting thread and reset with the rest.
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
    // SAFETY: reads the offset of `__resp`, a thread-local of libc.a, which the linker filled in.
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

/// Returns whether a module is a libc.so that a library brought. The program's own libc is part of
/// the program's module.
pub(in super::super) fn is_libc(
    _symbols: &Symbols,
    name: &CStr,
    _holds: impl Fn(usize) -> bool,
) -> bool {
    name.to_bytes().ends_with(b"/libc.so.6")
}

/// The libc.so that a library brought. Set when one is first seen; holds `None` if that libc.so
/// lacks a function that we need.
static SECOND: OnceLock<Option<SecondLibc>> = OnceLock::new();

/// Returns the libc.so that a library brought, if [`find_second_libc`] has seen one.
pub(in super::super) fn second_libc() -> Option<Option<SecondLibc>> {
    SECOND.get().copied()
}

/// Finds a libc.so that a library brought, and keeps it loaded forever. Waits for the loader, so
/// the caller must hold no lock that is taken during a load.
pub(in super::super) fn find_second_libc() {
    if SECOND.get().is_some() {
        return;
    }
    let mut name: Option<CString> = None;
    elf::for_each_loaded(|module| {
        if !module.path().to_bytes().ends_with(b"/libc.so.6") {
            return ControlFlow::Continue(());
        }
        name = Some(module.path().to_owned());
        ControlFlow::Break(())
    });
    let Some(name) = name else { return };
    preserving_dlerror(|| {
        if let Some(library) = Library::keep(&name) {
            SECOND.get_or_init(|| library.second_libc());
        }
    });
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
    /// Returns the library with that name, or `None` if it is not loaded.
    fn keep(name: &CStr) -> Option<Library> {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: RTLD_NOLOAD: no library is loaded, so no library code runs.
        let library = unsafe { __dlmopen(0, name.as_ptr(), flags, std::ptr::null()) };
        (!library.is_null()).then_some(Library(library))
    }

    fn second_libc(&self) -> Option<SecondLibc> {
        Some(SecondLibc {
            // SAFETY: type — as the C library declares it.
            use_locale: unsafe { self.function(c"uselocale") }?,
            // SAFETY: type — as above.
            errno: unsafe { self.function(c"__errno_location") }?,
            tables: [
                // SAFETY: type — as above; the function returns a pointer to a pointer.
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
        // SAFETY: a lookup by name in a library that stays loaded.
        let at = unsafe { __dlsym(self.0, name.as_ptr(), std::ptr::null()) };
        // SAFETY: type — promised by the caller; it has the size of an address, checked above.
        (!at.is_null()).then(|| unsafe { std::mem::transmute_copy::<_, F>(&at) })
    }
}
