//! The types of glibc's internal functions that an identity needs.

use std::ffi::c_int;

#[cfg(not(target_feature = "crt-static"))]
#[path = "dynamic_libc.rs"]
mod imp;
#[cfg(target_feature = "crt-static")]
#[path = "static_libc.rs"]
mod imp;

pub(super) use imp::{LIBC_IS_A_MODULE, find_second_libc, is_libc, load, second_libc};

pub(super) type AllocateTls = unsafe extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
pub(super) type DeallocateTls = unsafe extern "C" fn(*mut libc::c_void, bool);
pub(super) type StaticInfo = unsafe extern "C" fn(*mut usize, *mut usize);

/// Functions and addresses found at start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbols {
    /// Makes the vector of dynamic thread-locals (by malloc: ld.so may `realloc` it) and copies the
    /// first values of all static ones into the block.
    pub(super) allocate_tls: AllocateTls,
    /// Frees what `allocate_tls` and later accesses allocated; the block itself if told so.
    pub(super) deallocate_tls: DeallocateTls,
    /// Size and alignment of block and control block together.
    pub(super) static_info: StaticInfo,
    /// Sets the thread's pointers into the locale's character tables.
    pub(super) ctype_init: unsafe extern "C" fn(),
    /// Runs the destructors registered by `__cxa_thread_atexit_impl`.
    pub(super) call_tls_dtors: unsafe extern "C" fn(),
    /// Frees libc's own per-thread memory, where it can be called.
    pub(super) thread_freeres: Option<unsafe extern "C" fn()>,
    /// The table of `pthread_key_create`.
    pub(super) keys: *const KeyRecord,
    /// Where a thread's pointer to its resolver state lies, from the thread pointer.
    pub(super) resolver_offset: isize,
    /// Where the kernel's restartable-sequence area lies, from the thread pointer.
    pub(super) rseq_offset: Option<isize>,
}

// SAFETY: addresses of functions and tables that live as long as the process.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}

/// One `pthread_key_t`: `sequence` is odd while it is in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRecord {
    pub(super) sequence: usize,
    pub(super) destructor: Option<unsafe extern "C" fn(*mut libc::c_void)>,
}

/// A libc.so that a library has brought into a program with libc inside it: with thread-locals of its
/// own, which threads get from the loader and goroutines from us.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecondLibc {
    pub(super) use_locale: unsafe extern "C" fn(libc::locale_t) -> libc::locale_t,
    pub(super) errno: unsafe extern "C" fn() -> *mut c_int,
    /// Where the calling thread's pointers into the locale's character tables are.
    pub(super) tables: [unsafe extern "C" fn() -> *mut usize; 3],
}
