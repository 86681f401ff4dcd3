//! Access to the libc functions behind the replacements, in a static program, and the replacements
//! that only such a program needs. libc's functions are reached under the internal names by which
//! libc.a itself calls them, such as `__dlclose`.
//!
//! **Libraries.** A static program can load libraries too: with `dlopen`, and through libc, which
//! loads libraries for name services (`/etc/nsswitch.conf`), character sets (`iconv`) and
//! international domain names. The first library brings libc.so, whose thread-locals are missing in
//! a goroutine's block. So every function that loads a library is replaced, and all replacements
//! call `__dlmopen`, which nothing else in libc.a calls:
//!
//! - libc's own loads: `__libc_dlopen_mode` and the other functions of dl-libc.o;
//! - the program's loads: `dlopen` and `__dlopen` (dlopen.o). In such a program libc.so has no
//!   loader of its own: when a library calls `dlopen`, libc.so calls `__dlopen`.
//!
//! The linker takes an object file from libc.a only for a name that is still undefined. The
//! replacements are weak symbols: if a libc.a distributes its functions over other object files
//! than expected, the linker takes libc's functions instead, [`are_own_functions_in_force`] detects
//! that, and goroutines are threads.
//!
//! `sched_getcpu` is not replaced: identities of static programs always mark their
//! restartable-sequence area as not registered, so libc asks the kernel.
//!
//! This file never writes to an identity: `loading` does.

use super::loader;
use crate::carrier::host;
use crate::identity::imp::loading;
use libc::{
    c_char, c_int, c_long, c_void, clockid_t, cpu_set_t, pthread_attr_t, pthread_t, sigset_t,
};

/// Returns whether libc calls the functions below.
pub(super) fn are_own_functions_in_force() -> bool {
    let pairs = [
        (__libc_dlopen_mode as *const (), gosched_libc_dlopen as *const ()),
        (__libc_dlclose as *const (), gosched_libc_dlclose as *const ()),
        (__dlopen as *const (), gosched_dlopen as *const ()),
    ];
    std::hint::black_box(pairs).iter().all(|(libc, ours)| std::ptr::eq(*libc, *ours))
}

/// Returns true: the other functions have strong names, and the linker rejects a second definition.
pub(super) fn is_in_force(_name: &std::ffi::CStr, _ours: *const ()) -> bool {
    true
}

/// Describes the failure of [`are_own_functions_in_force`]: the linker took libc's functions.
pub(super) fn describe_location() -> String {
    "libc's own: the linker took them from a libc.a with other object files than expected".into()
}

unsafe extern "C" {
    #[link_name = "__pthread_getattr_np"]
    pub(super) fn pthread_getattr_np(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int;
    #[link_name = "__pthread_getaffinity_np"]
    pub(super) fn pthread_getaffinity_np(
        thread: pthread_t,
        size: usize,
        set: *mut cpu_set_t,
    ) -> c_int;
    #[link_name = "__pthread_getcpuclockid"]
    pub(super) fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int;
    #[link_name = "__pthread_sigmask"]
    pub(super) fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    #[link_name = "__sigprocmask"]
    pub(super) fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    #[link_name = "__dl_iterate_phdr"]
    pub(super) fn dl_iterate_phdr(callback: Option<loader::Callback>, data: *mut c_void) -> c_int;
    #[link_name = "__dlclose"]
    pub(super) fn dlclose(handle: *mut c_void) -> c_int;
    #[link_name = "__dlerror"]
    pub(super) fn dlerror() -> *mut c_char;
    fn __dlmopen(
        space: c_long,
        file: *const c_char,
        flags: c_int,
        caller: *const c_void,
    ) -> *mut c_void;
    fn __dlsym(library: *mut c_void, name: *const c_char, caller: *const c_void) -> *mut c_void;
    fn __dlvsym(
        library: *mut c_void,
        name: *const c_char,
        version: *const c_char,
        caller: *const c_void,
    ) -> *mut c_void;
}

/// # Safety
/// The same contract as libc's function of this name.
pub(super) unsafe fn dlmopen(space: c_long, file: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller upholds libc's contract. A null caller: the program's search path is used.
    unsafe { __dlmopen(space, file, flags, std::ptr::null()) }
}

// The names under which libc.a calls these functions; the names that start with `gosched` are for
// `are_own_functions_in_force`. `dlopen` and `__libc_dlopen_mode` pass their return address on as
// the caller, whose search path the load uses; a caller of `__dlopen` passes it itself.
std::arch::global_asm!(
    ".pushsection .text.gosched_loads, \"ax\", @progbits",
    ".weak __libc_dlopen_mode",
    ".type __libc_dlopen_mode, @function",
    ".globl gosched_libc_dlopen",
    ".hidden gosched_libc_dlopen",
    "__libc_dlopen_mode:",
    "gosched_libc_dlopen:",
    ".cfi_startproc",
    "mov rdx, qword ptr [rsp]",
    "jmp {libc_dlopen}",
    ".cfi_endproc",
    ".weak __libc_dlclose",
    ".type __libc_dlclose, @function",
    ".globl gosched_libc_dlclose",
    ".hidden gosched_libc_dlclose",
    "__libc_dlclose:",
    "gosched_libc_dlclose:",
    ".cfi_startproc",
    "jmp {libc_dlclose}",
    ".cfi_endproc",
    ".weak __libc_dlsym",
    ".type __libc_dlsym, @function",
    "__libc_dlsym:",
    ".cfi_startproc",
    "jmp {libc_dlsym}",
    ".cfi_endproc",
    ".weak __libc_dlvsym",
    ".type __libc_dlvsym, @function",
    "__libc_dlvsym:",
    ".cfi_startproc",
    "jmp {libc_dlvsym}",
    ".cfi_endproc",
    ".weak dlopen",
    ".type dlopen, @function",
    "dlopen:",
    ".cfi_startproc",
    "mov rdx, qword ptr [rsp]",
    "jmp {dlopen}",
    ".cfi_endproc",
    ".weak __dlopen",
    ".type __dlopen, @function",
    ".globl gosched_dlopen",
    ".hidden gosched_dlopen",
    "__dlopen:",
    "gosched_dlopen:",
    ".cfi_startproc",
    "jmp {dlopen}",
    ".cfi_endproc",
    ".popsection",
    libc_dlopen = sym libc_dlopen,
    libc_dlclose = sym libc_dlclose,
    libc_dlsym = sym libc_dlsym,
    libc_dlvsym = sym libc_dlvsym,
    dlopen = sym dlopen,
);

unsafe extern "C" {
    safe fn __libc_dlopen_mode();
    safe fn __libc_dlclose();
    safe fn __dlopen();
    safe fn gosched_libc_dlopen();
    safe fn gosched_libc_dlclose();
    safe fn gosched_dlopen();
}

/// The flags that a program may pass to `dlopen`.
const FLAGS: c_int = libc::RTLD_LAZY
    | libc::RTLD_NOW
    | libc::RTLD_NOLOAD
    | libc::RTLD_DEEPBIND
    | libc::RTLD_GLOBAL
    | libc::RTLD_NODELETE;

/// The base name space (`LM_ID_BASE`), the only one in a static program.
const BASE: c_long = 0;

/// `dlopen` as the program and its libraries call it.
///
/// # Safety
/// The same contract as libc's `dlopen`.
unsafe extern "C" fn dlopen(
    file: *const c_char,
    flags: c_int,
    caller: *const c_void,
) -> *mut c_void {
    // Invalid flags become 0. Without a binding mode, libc rejects the call and sets the text for
    // `dlerror`.
    let flags = if flags & !FLAGS == 0 { flags } else { 0 };
    let (file, caller) = (file as usize, caller as usize);
    loader::dlopen(move || {
        // SAFETY: the caller upholds libc's contract.
        unsafe { __dlmopen(BASE, file as *const c_char, flags, caller as *const c_void) as usize }
    })
}

/// `dlopen` as libc itself calls it.
///
/// # Safety
/// The same contract as libc's `__libc_dlopen_mode`.
unsafe extern "C" fn libc_dlopen(
    file: *const c_char,
    flags: c_int,
    caller: *const c_void,
) -> *mut c_void {
    let (file, caller) = (file as usize, caller as usize);
    let library = for_libc(loading::with_load, move || {
        // SAFETY: the caller upholds libc's contract.
        unsafe { __dlmopen(BASE, file as *const c_char, flags, caller as *const c_void) as usize }
    });
    library as *mut c_void
}

/// # Safety
/// The same contract as libc's `__libc_dlclose`.
unsafe extern "C" fn libc_dlclose(library: *mut c_void) -> c_int {
    let library = library as usize;
    for_libc(loading::with_unload, move || {
        // SAFETY: the caller upholds libc's contract.
        unsafe { dlclose(library as *mut c_void) }
    })
}

/// # Safety
/// The same contract as libc's `__libc_dlsym`.
unsafe extern "C" fn libc_dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller upholds libc's contract; `__dlsym` needs its caller only if `library` is
    // null.
    preserving_dlerror(|| unsafe { __dlsym(library, name, std::ptr::null()) })
}

/// # Safety
/// The same contract as libc's `__libc_dlvsym`.
unsafe extern "C" fn libc_dlvsym(
    library: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller upholds libc's contract; `__dlvsym` needs its caller only if `library` is
    // null.
    preserving_dlerror(|| unsafe { __dlvsym(library, name, version, std::ptr::null()) })
}

/// Runs a loader call that libc makes for itself: as the carrier, and without a change to what
/// `dlerror` returns.
fn for_libc<C, R>(around: fn(C) -> R, call: C) -> R
where
    C: FnOnce() -> R + Send,
    R: Send,
{
    if loader::runs_as_carrier() {
        return host(|| preserving_dlerror(|| around(call)));
    }
    preserving_dlerror(|| loader::in_place(around, call))
}

/// Runs a loader call without a change to what `dlerror` returns.
pub(crate) fn preserving_dlerror<R>(call: impl FnOnce() -> R) -> R {
    let before = loader::take_dlerror();
    let result = call();
    drop(loader::take_dlerror());
    loader::set_pending_dlerror(before);
    result
}
