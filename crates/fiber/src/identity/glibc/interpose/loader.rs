//! The loader's functions, as the program calls them: `dlmopen`, `dlclose`, `dlerror`,
//! `dl_iterate_phdr`; and where a load runs, whoever asked for it.
//!
//! A goroutine's load runs as its carrier: a thread that libc knows, so that its block gets the
//! library's static thread-locals before the library's constructors run. `loading` then gives them to
//! all identities; this module never does.

use super::real;
use crate::carrier::{Role, host, role};
use crate::identity::imp::loading;
use libc::{c_char, c_int, c_long, c_void};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};

/// Loads a library by `open`, a call of libc's `dlopen` that returns the handle.
pub(super) fn dlopen(open: impl FnOnce() -> usize + Send) -> *mut c_void {
    as_carrier(loading::with_load, open) as *mut c_void
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlmopen(space: c_long, file: *const c_char, flags: c_int) -> *mut c_void {
    let file = file as usize;
    // SAFETY: as the caller's call.
    dlopen(move || unsafe { real::dlmopen(space, file as *const c_char, flags) } as usize)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let handle = handle as usize;
    as_carrier(loading::with_unload, move || {
        // SAFETY: as the caller's call.
        unsafe { real::dlclose(handle as *mut c_void) }
    })
}

/// What `dl_iterate_phdr` calls for each module.
pub(super) type Callback =
    unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

thread_local! {
    /// How many `dl_iterate_phdr`s this goroutine is in.
    static ITERATING: Cell<u32> = const { Cell::new(0) };
    /// Whether it loaded or unloaded libraries there.
    static LOADED_MEANWHILE: Cell<bool> = const { Cell::new(false) };
}

/// Its callback runs with the loader's lock, which knows its owner by thread id: a `dlopen` in there
/// must not become the carrier's, or it waits for itself.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dl_iterate_phdr(callback: Option<Callback>, data: *mut c_void) -> c_int {
    if role() != Role::Goroutine {
        // SAFETY: as the caller's call.
        return unsafe { real::dl_iterate_phdr(callback, data) };
    }
    ITERATING.set(ITERATING.get() + 1);
    // SAFETY: as the caller's call.
    let result = unsafe { real::dl_iterate_phdr(callback, data) };
    ITERATING.set(ITERATING.get() - 1);
    if ITERATING.get() == 0 && LOADED_MEANWHILE.take() {
        host(loading::finish_rescan);
    }
    result
}

/// Whether the caller's calls of the loader run as its carrier.
pub(super) fn runs_as_carrier() -> bool {
    role() == Role::Goroutine && ITERATING.get() == 0
}

/// Runs a call of the loader as the carrier, with identities told of it by `around`, and brings what
/// `dlerror` then says back. Inside `dl_iterate_phdr` it runs as the goroutine, and identities are
/// told at that one's end.
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

/// Runs a call of the loader as the caller.
pub(super) fn in_place<C: FnOnce() -> R, R>(around: fn(C) -> R, call: C) -> R {
    if role() != Role::Goroutine {
        return around(call);
    }
    if !LOADED_MEANWHILE.replace(true) {
        loading::announce_rescan();
    }
    call()
}

/// What `dlerror` would say, and then has nothing more to say.
pub(super) fn take_dlerror() -> Option<CString> {
    let pending = take_pending_dlerror();
    // SAFETY: dlerror has no precondition.
    let text = unsafe { real::dlerror() };
    // What libc knows is later: a call that fails after `dlopen` did.
    // SAFETY: text — of the call above.
    unsafe { owned(text) }.or(pending)
}

/// # Safety
/// - **text**: null, or a string that lives until the next call of the loader.
unsafe fn owned(text: *const c_char) -> Option<CString> {
    // SAFETY: text — promised by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

/// What calls of the loader said to the carrier, for the goroutine to ask.
#[derive(Default)]
struct LastError {
    pending: Option<CString>,
    /// Told already; must live until the next call.
    told: Option<CString>,
}

thread_local! {
    static ERROR: RefCell<LastError> =
        const { RefCell::new(LastError { pending: None, told: None }) };
}

/// What `dlerror` is to say to the caller next.
pub(super) fn set_pending_dlerror(error: Option<CString>) {
    // A thread that is ending has nobody left to tell.
    let _ = ERROR.try_with(|last| last.borrow_mut().pending = error);
}

/// What [`set_pending_dlerror`] has left.
fn take_pending_dlerror() -> Option<CString> {
    ERROR.try_with(|last| last.borrow_mut().pending.take()).ok().flatten()
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlerror() -> *mut c_char {
    // SAFETY: as the caller's call.
    let libc_says = unsafe { real::dlerror() };
    let pending = take_pending_dlerror();
    let told = ERROR.try_with(|last| {
        let mut last = last.borrow_mut();
        // As in `take_dlerror`. A copy: libc may free its text when it loads something for itself.
        // SAFETY: text — of the call above.
        last.told = unsafe { owned(libc_says) }.or(pending);
        last.told.as_ref().map_or(std::ptr::null_mut(), |text| text.as_ptr().cast_mut())
    });
    told.unwrap_or(libc_says)
}

/// What the process must call instead of libc's functions.
pub(super) fn ours() -> [(&'static CStr, *const ()); 4] {
    [
        (c"dlmopen", dlmopen as *const ()),
        (c"dlclose", dlclose as *const ()),
        (c"dlerror", dlerror as *const ()),
        (c"dl_iterate_phdr", dl_iterate_phdr as *const ()),
    ]
}
