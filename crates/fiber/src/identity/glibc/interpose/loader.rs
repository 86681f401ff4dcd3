//! Replacements for the loader's functions: `dlmopen`, `dlclose`, `dlerror` and `dl_iterate_phdr`.
//! Also decides, for every function that loads a library, whether the load runs as the goroutine or
//! as its carrier.
//!
//! A goroutine's load runs as its carrier. The carrier is one of libc's own threads, so its block
//! receives the library's static thread-locals before the library's constructors run. This module
//! never writes them into the identities: `loading` does.

use super::real;
use crate::carrier::{Role, host, role};
use crate::identity::imp::loading;
use libc::{c_char, c_int, c_long, c_void};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};

/// Loads a library with `open`, which calls libc's `dlopen` and returns the handle.
pub(super) fn dlopen(open: impl FnOnce() -> usize + Send) -> *mut c_void {
    as_carrier(loading::with_load, open) as *mut c_void
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlmopen(space: c_long, file: *const c_char, flags: c_int) -> *mut c_void {
    let file = file as usize;
    // SAFETY: the caller upholds libc's contract.
    dlopen(move || unsafe { real::dlmopen(space, file as *const c_char, flags) } as usize)
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let handle = handle as usize;
    as_carrier(loading::with_unload, move || {
        // SAFETY: the caller upholds libc's contract.
        unsafe { real::dlclose(handle as *mut c_void) }
    })
}

/// The callback of `dl_iterate_phdr`, called for each module.
pub(super) type Callback =
    unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

thread_local! {
    /// Number of `dl_iterate_phdr` calls that this goroutine is inside.
    static ITERATING: Cell<u32> = const { Cell::new(0) };
    /// Whether the goroutine loaded or unloaded a library during those calls.
    static LOADED_MEANWHILE: Cell<bool> = const { Cell::new(false) };
}

/// Calls libc's function, and records that the goroutine is inside it. The callback runs with the
/// loader's lock held, which identifies its owner by thread id. A `dlopen` in the callback must not
/// run as the carrier: it would wait for a lock that its own thread holds.
///
/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn dl_iterate_phdr(callback: Option<Callback>, data: *mut c_void) -> c_int {
    if role() != Role::Goroutine {
        // SAFETY: the caller upholds libc's contract.
        return unsafe { real::dl_iterate_phdr(callback, data) };
    }
    ITERATING.set(ITERATING.get() + 1);
    // SAFETY: the caller upholds libc's contract.
    let result = unsafe { real::dl_iterate_phdr(callback, data) };
    ITERATING.set(ITERATING.get() - 1);
    if ITERATING.get() == 0 && LOADED_MEANWHILE.take() {
        host(loading::finish_rescan);
    }
    result
}

/// Returns whether the loader calls of the caller run as its carrier.
pub(super) fn runs_as_carrier() -> bool {
    role() == Role::Goroutine && ITERATING.get() == 0
}

/// Runs a loader call as the carrier, wrapped in `around`, which updates the identities. Passes the
/// resulting `dlerror` text on to the goroutine. Inside `dl_iterate_phdr`, the call runs as the
/// goroutine, and the identities are updated when `dl_iterate_phdr` returns.
fn as_carrier<C, R>(around: fn(C) -> R, call: C) -> R
where
    C: FnOnce() -> R + Send,
    R: Send,
{
    if !runs_as_carrier() {
        drop(take_pending_dlerror());
        return in_place(around, call);
    }
    let (result, error) = host(|| {
        let carriers = take_dlerror();
        let result = around(call);
        let error = take_dlerror();
        set_pending_dlerror(carriers);
        (result, error)
    });
    set_pending_dlerror(error);
    result
}

/// Runs a loader call as the caller. A goroutine calls this function only inside `dl_iterate_phdr`:
/// `around` is then skipped, and the identities are updated when `dl_iterate_phdr` returns.
pub(super) fn in_place<C: FnOnce() -> R, R>(around: fn(C) -> R, call: C) -> R {
    if role() != Role::Goroutine {
        return around(call);
    }
    if !LOADED_MEANWHILE.replace(true) {
        loading::announce_rescan();
    }
    call()
}

/// Takes the text that the next `dlerror` would return.
pub(super) fn take_dlerror() -> Option<CString> {
    let pending = take_pending_dlerror();
    // SAFETY: dlerror has no precondition.
    let text = unsafe { real::dlerror() };
    // libc's text is newer: it comes from a call that failed after the load that left `pending`.
    // SAFETY: text — from the call above.
    unsafe { owned(text) }.or(pending)
}

/// # Safety
/// - **text**: null, or a string that is valid until the next loader call.
unsafe fn owned(text: *const c_char) -> Option<CString> {
    // SAFETY: text — promised by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

/// The `dlerror` texts of loader calls that ran as the carrier, for the goroutine that made them.
#[derive(Default)]
struct LastError {
    /// The text that the next `dlerror` returns.
    pending: Option<CString>,
    /// The text that the last `dlerror` returned. Must stay valid until the next `dlerror`.
    told: Option<CString>,
}

thread_local! {
    static ERROR: RefCell<LastError> =
        const { RefCell::new(LastError { pending: None, told: None }) };
}

/// Sets the text that the caller's next `dlerror` returns.
pub(super) fn set_pending_dlerror(error: Option<CString>) {
    // Fails on a thread that is ending, which loses the text.
    let _ = ERROR.try_with(|last| last.borrow_mut().pending = error);
}

/// Takes the text that [`set_pending_dlerror`] stored.
fn take_pending_dlerror() -> Option<CString> {
    ERROR.try_with(|last| last.borrow_mut().pending.take()).ok().flatten()
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlerror() -> *mut c_char {
    // SAFETY: the caller upholds libc's contract.
    let libc_error = unsafe { real::dlerror() };
    let pending = take_pending_dlerror();
    let told = ERROR.try_with(|last| {
        let mut last = last.borrow_mut();
        // The same choice as in `take_dlerror`. The text is copied, because libc may free its own
        // when it loads a library for itself.
        // SAFETY: text — from the call above.
        last.told = unsafe { owned(libc_error) }.or(pending);
        last.told.as_ref().map_or(std::ptr::null_mut(), |text| text.as_ptr().cast_mut())
    });
    told.unwrap_or(libc_error)
}

/// Returns the names and addresses of the functions that the process must call instead of libc's.
pub(super) fn ours() -> [(&'static CStr, *const ()); 4] {
    [
        (c"dlmopen", dlmopen as *const ()),
        (c"dlclose", dlclose as *const ()),
        (c"dlerror", dlerror as *const ()),
        (c"dl_iterate_phdr", dl_iterate_phdr as *const ()),
    ]
}
