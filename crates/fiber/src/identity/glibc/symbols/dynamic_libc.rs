//! Access to glibc's undeclared functions and data in a dynamic program, by `dlsym`. A missing
//! function never ends the process: `load` returns an error.

use super::{AllocateTls, DeallocateTls, KeyRecord, SecondLibc, StaticInfo, Symbols};
use crate::arch;
use crate::base::unsupported::Unsupported;
use std::ffi::CStr;

/// Whether libc's thread-locals are a module of their own. In a dynamic program they are, and they
/// are kept when a slot is reused: they hold libc's malloc cache and other state that only an
/// exiting thread frees.
pub(in super::super) const LIBC_IS_A_MODULE: bool = true;

/// Symbols that reveal a sanitizer in the program's C code. If Rust code was built with a
/// sanitizer, `interpose::check` has already failed: see the build script.
const SANITIZERS: [&CStr; 5] =
    [c"__asan_init", c"__hwasan_init", c"__lsan_init", c"__msan_init", c"__tsan_init"];

pub(in super::super) fn load() -> Result<Symbols, Unsupported> {
    if let Some(name) = SANITIZERS.into_iter().find(|name| look_up(name).is_some()) {
        let found =
            format!("a program with {name:?}; sanitizers support only the stacks of threads");
        return Err(Unsupported::new("a program without a sanitizer", found));
    }
    let resolver = need(c"__resp")?;
    Ok(Symbols {
        // SAFETY: type — glibc has not changed it since it introduced the function.
        allocate_tls: unsafe { function::<AllocateTls>(c"_dl_allocate_tls") }?,
        // SAFETY: type — as above.
        deallocate_tls: unsafe { function::<DeallocateTls>(c"_dl_deallocate_tls") }?,
        // SAFETY: type — as above.
        static_info: unsafe { function::<StaticInfo>(c"_dl_get_tls_static_info") }?,
        // SAFETY: type — as above.
        ctype_init: unsafe { function::<unsafe extern "C" fn()>(c"__ctype_init") }?,
        // SAFETY: type — as above.
        call_tls_dtors: unsafe { function::<unsafe extern "C" fn()>(c"__call_tls_dtors") }?,
        thread_freeres: None,
        keys: need(c"__pthread_keys")? as *const KeyRecord,
        // `dlsym` returns the calling thread's address of a thread-local.
        resolver_offset: resolver as isize - arch::thread_pointer() as isize,
        // SAFETY: type — a constant of ld.so.
        rseq_offset: look_up(c"__rseq_offset").map(|at| unsafe { *(at as *const isize) }),
    })
}

/// # Safety
/// - **type**: `F` is the type of a pointer to libc's function of that name.
unsafe fn function<F: Copy>(name: &'static CStr) -> Result<F, Unsupported> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let at = need(name)?;
    // SAFETY: type — promised by the caller; it has the size of an address, checked above.
    Ok(unsafe { std::mem::transmute_copy::<usize, F>(&at) })
}

fn need(name: &'static CStr) -> Result<usize, Unsupported> {
    let missing = || Unsupported::new("glibc's internal functions", format!("no {name:?}"));
    look_up(name).ok_or_else(missing)
}

fn look_up(name: &CStr) -> Option<usize> {
    // SAFETY: a lookup by name has no precondition.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at as usize)
}

/// Returns whether a module is libc.so or ld.so, that is, contains one of their functions.
pub(in super::super) fn is_libc(
    symbols: &Symbols,
    _name: &CStr,
    holds: impl Fn(usize) -> bool,
) -> bool {
    holds(symbols.call_tls_dtors as usize) || holds(symbols.allocate_tls as usize)
}

/// Does nothing: the program's libc is the only one.
pub(in super::super) fn find_second_libc() {}

/// Returns `Some(None)`: libc is a module, and it is the program's own.
pub(in super::super) fn second_libc() -> Option<Option<SecondLibc>> {
    Some(None)
}
