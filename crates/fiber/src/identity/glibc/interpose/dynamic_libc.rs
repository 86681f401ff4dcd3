//! Access to the libc functions behind the replacements, in a dynamic program, and the replacements
//! that only such a program needs.
//!
//! This file never writes to an identity, and never chooses whether a load runs as the goroutine or
//! as its carrier: `loading` and `loader` do.

use super::super::GLIBC;
use super::loader;
use crate::carrier::{Role, role};
use crate::exit_guard;
use libc::{
    c_char, c_int, c_long, c_void, clockid_t, cpu_set_t, pthread_attr_t, pthread_t, sigset_t,
};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns whether the process calls the functions that only this file replaces.
pub(super) fn are_own_functions_in_force() -> bool {
    let none = (std::ptr::null(), std::ptr::null_mut());
    // Look both functions up here: later they are called where waiting for the loader's lock is not
    // allowed.
    // SAFETY: both sets are null, so the call changes nothing.
    unsafe { pthread_sigmask(libc::SIG_BLOCK, none.0, none.1) };
    // SAFETY: as above.
    unsafe { sigprocmask(libc::SIG_BLOCK, none.0, none.1) };
    let ours = [(c"dlopen", dlopen as *const ()), (c"sched_getcpu", sched_getcpu as *const ())];
    std::hint::black_box(ours).iter().all(|(name, ours)| is_in_force(name, *ours))
}

/// Returns whether a lookup of `name` finds the function in this module.
///
/// Compares modules, not addresses: in a library that was loaded after libc, this module's own
/// reference to the function also resolves to libc's.
pub(super) fn is_in_force(name: &CStr, _ours: *const ()) -> bool {
    // SAFETY: a lookup by name has no precondition.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let base_of = |function| module_of(function).map(|(_, base)| base);
    let ours = base_of(is_in_force as *const ());
    ours.is_some() && ours == base_of(found.cast())
}

/// Describes why a lookup does not find our functions, and the remedy.
pub(super) fn describe_location() -> String {
    let Some((file, base)) = module_of(describe_location as *const ()) else {
        return "them in a file that the loader does not know".into();
    };
    // SAFETY: getauxval has no precondition.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // The program headers are in the program's first page.
    if headers.wrapping_sub(base) < 4096 {
        return format!("them hidden in {file}: link the program with -rdynamic");
    }
    format!(
        "them in {file}, which was loaded by dlopen, after libc: link the program with that \
         library, or start the program with LD_PRELOAD={file}"
    )
}

/// Returns the file that contains a function, and the file's first address in memory.
fn module_of(function: *const ()) -> Option<(String, usize)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is valid for writes.
    if unsafe { libc::dladdr(function.cast(), info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled by dladdr, which succeeded; all zero is valid too.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of the file, a C string that is valid as long as the file is
    // loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((file.to_string_lossy().into_owned(), info.dli_fbase as usize))
}

/// Returns the definition of `name` that follows this module's, which is libc's. Looked up once and
/// kept in `cache`.
fn next(name: &'static CStr, cache: &AtomicUsize) -> usize {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: a lookup by name has no precondition.
    let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if at == 0 {
        // libc defines all of these functions. Without one, the call cannot be completed.
        exit_guard::abort();
    }
    cache.store(at, Ordering::Relaxed);
    at
}

/// Defines functions that call libc's function of the same name.
macro_rules! real {
    ($($name:ident: fn($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// # Safety
        /// The same contract as libc's function of this name.
        pub(super) unsafe fn $name($($arg: $type),*) -> $result {
            static REAL: AtomicUsize = AtomicUsize::new(0);
            let name = const {
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name without a null in it"),
                }
            };
            let at = next(name, &REAL);
            // SAFETY: libc's function of that name, with libc's type.
            let real = unsafe {
                std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(at)
            };
            // SAFETY: the caller upholds libc's contract.
            unsafe { real($($arg),*) }
        }
    )*};
}

real! {
    dl_iterate_phdr: fn(callback: Option<loader::Callback>, data: *mut c_void) -> c_int;
    dlclose: fn(handle: *mut c_void) -> c_int;
    dlerror: fn() -> *mut c_char;
    dlmopen: fn(space: c_long, file: *const c_char, flags: c_int) -> *mut c_void;
    pthread_getattr_np: fn(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int;
    pthread_getaffinity_np: fn(thread: pthread_t, size: usize, set: *mut cpu_set_t) -> c_int;
    pthread_getcpuclockid: fn(thread: pthread_t, clock: *mut clockid_t) -> c_int;
    pthread_sigmask: fn(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    sigprocmask: fn(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
}

mod libc_so {
    use super::{AtomicUsize, CStr, c_char, c_int, c_void, next};
    real! {
        sched_getcpu: fn() -> c_int;
    }
    pub(super) type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

    /// Returns libc's `dlopen`.
    pub(super) fn dlopen() -> Dlopen {
        static REAL: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: libc's function of that name, with libc's type.
        unsafe { std::mem::transmute::<usize, Dlopen>(next(c"dlopen", &REAL)) }
    }
}

/// `dlopen` as the program calls it. Until the probe has succeeded, it *jumps* to libc's `dlopen`,
/// which takes the search path of the caller from its return address.
///
/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    // rdi: file, esi: flags. Both are saved across the call of `dlopen_where_to`.
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {where_to}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        where_to = sym dlopen_where_to,
    )
}

extern "C" fn dlopen_where_to() -> libc_so::Dlopen {
    match GLIBC.get() {
        Some(Ok(_)) => dlopen_among_goroutines,
        _ => libc_so::dlopen(),
    }
}

/// Loads the library on a thread that belongs to libc, then updates all identities.
///
/// # Safety
/// The same contract as libc's `dlopen`.
unsafe extern "C" fn dlopen_among_goroutines(file: *const c_char, flags: c_int) -> *mut c_void {
    let file = file as usize;
    loader::dlopen(move || {
        // SAFETY: the caller upholds libc's contract.
        unsafe { libc_so::dlopen()(file as *const c_char, flags) as usize }
    })
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getcpu() -> c_int {
    if role() != Role::Goroutine {
        // SAFETY: the caller upholds libc's contract.
        return unsafe { libc_so::sched_getcpu() };
    }
    let mut cpu = 0u32;
    let null = std::ptr::null_mut::<c_void>();
    // SAFETY: `cpu` is valid for writes; the kernel accepts null for the rest.
    match unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, null, null) } {
        0 => cpu as c_int,
        _ => -1,
    }
}
