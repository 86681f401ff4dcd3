//! The functions themselves, in a program that has libc inside it: under the names that libc itself
//! calls them by; and those that only such a program needs.
//!
//! **Libraries.** A program with libc inside it loads libraries all the same: by `dlopen`, and libc
//! does for name services (`/etc/nsswitch.conf`), character sets (`iconv`) and international domain
//! names. The first one brings libc.so, whose thread-locals a goroutine's block does not have. So
//! each way to the loader is replaced, and all of them end in `__dlmopen`, which libc.a calls for
//! nothing else:
//!
//! - libc's own loads: `__libc_dlopen_mode` and what libc.a defines beside it (dl-libc.o);
//! - the program's: `dlopen`, `__dlopen` (dlopen.o). libc.so has no loader of its own in such a
//!   program: a library's `dlopen` comes here as `__dlopen`.
//!
//! The linker takes a file of libc.a only for a name that nothing defines yet. These names are weak:
//! a libc.a that has more of them in one file replaces all, [`are_own_functions_in_force`] finds out, and goroutines
//! are threads.
//!
//! `sched_getcpu` needs no help: identities of static programs say themselves that the kernel does
//! not serve them.

use super::loader;
use crate::carrier::host;
use crate::identity::imp::loading;
use libc::{
    c_char, c_int, c_long, c_void, clockid_t, cpu_set_t, pthread_attr_t, pthread_t, sigset_t,
};

/// Whether libc calls the functions below.
pub(super) fn are_own_functions_in_force() -> bool {
    let pairs = [
        (__libc_dlopen_mode as *const (), gosched_libc_dlopen as *const ()),
        (__libc_dlclose as *const (), gosched_libc_dlclose as *const ()),
        (__dlopen as *const (), gosched_dlopen as *const ()),
    ];
    std::hint::black_box(pairs).iter().all(|(libc, ours)| std::ptr::eq(*libc, *ours))
}

/// The other functions have strong names: the linker would refuse a second one.
pub(super) fn is_in_force(_name: &std::ffi::CStr, _ours: *const ()) -> bool {
    true
}

/// As above: never asked.
pub(super) fn describe_location() -> String {
    "a static program".into()
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
/// As libc's.
pub(super) unsafe fn dlmopen(space: c_long, file: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: as the caller's call; no caller to search for: that of the program.
    unsafe { __dlmopen(space, file, flags, std::ptr::null()) }
}

// libc.a's names; those that start with `gosched` are for `are_own_functions_in_force`. A load is told its caller, whose
// search path it uses: the return address.
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

/// What a program may ask `dlopen` for: `RTLD_LAZY` to `RTLD_NODELETE`.
const FLAGS: c_int = libc::RTLD_LAZY
    | libc::RTLD_NOW
    | libc::RTLD_NOLOAD
    | libc::RTLD_DEEPBIND
    | libc::RTLD_GLOBAL
    | libc::RTLD_NODELETE;

/// libc's own name space: the only one of such a program.
const BASE: c_long = 0;

/// The program's `dlopen`, and a library's.
///
/// # Safety
/// As libc's.
unsafe extern "C" fn dlopen(
    file: *const c_char,
    flags: c_int,
    caller: *const c_void,
) -> *mut c_void {
    // Without a way of binding, libc refuses, and says why.
    let flags = if flags & !FLAGS == 0 { flags } else { 0 };
    let (file, caller) = (file as usize, caller as usize);
    loader::dlopen(move || {
        // SAFETY: as the caller's call.
        unsafe { __dlmopen(BASE, file as *const c_char, flags, caller as *const c_void) as usize }
    })
}

/// libc's own `dlopen`.
///
/// # Safety
/// As libc's.
unsafe extern "C" fn libc_dlopen(
    file: *const c_char,
    flags: c_int,
    caller: *const c_void,
) -> *mut c_void {
    let (file, caller) = (file as usize, caller as usize);
    let library = for_libc(loading::with_load, move || {
        // SAFETY: as the caller's call.
        unsafe { __dlmopen(BASE, file as *const c_char, flags, caller as *const c_void) as usize }
    });
    library as *mut c_void
}

/// # Safety
/// As libc's.
unsafe extern "C" fn libc_dlclose(library: *mut c_void) -> c_int {
    let library = library as usize;
    for_libc(loading::with_unload, move || {
        // SAFETY: as the caller's call.
        unsafe { dlclose(library as *mut c_void) }
    })
}

/// # Safety
/// As libc's.
unsafe extern "C" fn libc_dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: as the caller's call; the caller matters only where no library is given.
    preserving_dlerror(|| unsafe { __dlsym(library, name, std::ptr::null()) })
}

/// # Safety
/// As libc's.
unsafe extern "C" fn libc_dlvsym(
    library: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    // SAFETY: as the caller's call; the caller matters only where no library is given.
    preserving_dlerror(|| unsafe { __dlvsym(library, name, version, std::ptr::null()) })
}

/// Runs a call of the loader that libc makes for itself: as the carrier, and `dlerror` says what it
/// would have said before.
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

/// Runs a call of the loader of which `dlerror` says nothing.
pub(crate) fn preserving_dlerror<R>(call: impl FnOnce() -> R) -> R {
    let before = loader::take_dlerror();
    let result = call();
    drop(loader::take_dlerror());
    loader::set_pending_dlerror(before);
    result
}
