//! Functions and data of glibc that an identity needs and that no header declares. This module
//! never calls the functions in `Symbols`: the other modules of `glibc` do.

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

/// Internal functions and addresses of glibc, found at start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbols {
    /// Allocates the dynamic thread vector with malloc (ld.so may `realloc` it), and copies the
    /// initial values of all static thread-locals into the block.
    pub(super) allocate_tls: AllocateTls,
    /// Frees what `allocate_tls` and later accesses allocated, and the block itself if its second
    /// argument is true.
    pub(super) deallocate_tls: DeallocateTls,
    /// Returns the size and alignment of static thread-locals and control block together.
    pub(super) static_info: StaticInfo,
    /// Sets the thread's pointers into the locale's character tables.
    pub(super) ctype_init: unsafe extern "C" fn(),
    /// Runs the destructors registered by `__cxa_thread_atexit_impl`.
    pub(super) call_tls_dtors: unsafe extern "C" fn(),
    /// Frees libc's own per-thread memory. `None` if the function cannot be called.
    pub(super) thread_freeres: Option<unsafe extern "C" fn()>,
    /// The table of pthread keys.
    pub(super) keys: *const KeyRecord,
    /// Offset of a thread's pointer to its resolver state, from the thread pointer.
    pub(super) resolver_offset: isize,
    /// Offset of the restartable-sequence area, from the thread pointer. `None` if this libc has
    /// none.
    pub(super) rseq_offset: Option<isize>,
}

// SAFETY: the functions and tables live as long as the process.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}

/// libc's record of one pthread key. `sequence` is odd while the key is in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRecord {
    pub(super) sequence: usize,
    pub(super) destructor: Option<unsafe extern "C" fn(*mut libc::c_void)>,
}

/// Functions of a libc.so that a library brought into a static program. This libc.so has
/// thread-locals of its own: the loader initializes them on threads, and `loading` in identities.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecondLibc {
    pub(super) use_locale: unsafe extern "C" fn(libc::locale_t) -> libc::locale_t,
    pub(super) errno: unsafe extern "C" fn() -> *mut c_int,
    /// Return the addresses of the calling thread's pointers into the locale's character tables.
    pub(super) tables: [unsafe extern "C" fn() -> *mut usize; 3],
}
