//! Replacements for libc functions that would return wrong results in a goroutine.
//!
//! A symbol of the program takes precedence over libc's, so every module of the process calls these
//! functions. On threads they call libc's function.
//!
//! - An identity's thread id is unknown to the kernel, so libc would ask the kernel about a thread
//!   that does not exist. (`pthread_getattr_np`, `pthread_getaffinity_np`, `pthread_getcpuclockid`)
//! - `dlopen` must run on one of libc's own threads: only there do a library's static thread-locals
//!   get their initial values, which its constructors need. Afterwards `loading` writes the values
//!   into all identities. `dlclose` must run there too: destructors may load libraries, and the
//!   loader's lock identifies its owner by thread id. In a static program, the first library also
//!   loads libc.so, and libc itself loads libraries (name services, character sets) through
//!   functions that are replaced too (`interpose/static_libc.rs`).
//! - `pthread_sigmask` and `sigprocmask` change the mask of the carrier's thread. The change is
//!   recorded, so that the thread's own mask is restored before other code runs there.
//! - `sched_getcpu` reads an area that the kernel updates only for the carrier.
//!
//! This module never patches code or tables of libc: the order of symbols decides which function is
//! called, and `check` tests it.

#[cfg(not(target_feature = "crt-static"))]
mod dynamic_libc;
#[cfg(not(target_feature = "crt-static"))]
use dynamic_libc as real;

#[cfg(target_feature = "crt-static")]
#[path = "static_libc.rs"]
mod real;

#[cfg(target_feature = "crt-static")]
pub(crate) use real::preserving_dlerror;

mod loader;

use crate::arch;
use crate::base::unsupported::Unsupported;
use crate::carrier::{MASK_CHANGED, Role, role};
use crate::stack::{DEPOT, StackInfo};
use crate::thread::no_preempt::NoPreempt;
use libc::{c_int, clockid_t, cpu_set_t, pthread_attr_t, pthread_t, sigset_t};

/// Checks that the process calls these functions instead of libc's. Naming the functions here also
/// prevents the linker from discarding them.
///
/// # Errors
/// The process calls libc's functions: this code is in a library that the loader searches after
/// libc, or in a program that does not export the functions.
pub(super) fn check() -> Result<(), Unsupported> {
    let ours = [
        (c"pthread_getattr_np", pthread_getattr_np as *const ()),
        (c"pthread_getaffinity_np", pthread_getaffinity_np as *const ()),
        (c"pthread_getcpuclockid", pthread_getcpuclockid as *const ()),
        (c"pthread_sigmask", pthread_sigmask as *const ()),
        (c"sigprocmask", sigprocmask as *const ()),
    ];
    let mut ours =
        std::hint::black_box(ours).into_iter().chain(std::hint::black_box(loader::ours()));
    if ours.all(|(name, at)| real::is_in_force(name, at)) && real::are_own_functions_in_force() {
        return Ok(());
    }
    Err(Unsupported::new(
        "gosched's versions of some libc functions before libc's",
        real::describe_location(),
    ))
}

/// Returns the stack of the goroutine that `thread` denotes, or `None` if `thread` is not a
/// goroutine.
fn goroutine(thread: pthread_t) -> Option<StackInfo> {
    DEPOT.find(thread as usize).filter(|found| found.thread_pointer == thread as usize)
}

fn is_caller(thread: pthread_t) -> bool {
    thread as usize == arch::thread_pointer()
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int {
    let Some(found) = goroutine(thread) else {
        // SAFETY: the caller upholds libc's contract.
        return unsafe { real::pthread_getattr_np(thread, attr) };
    };
    // SAFETY: `attr` is valid for writes, as libc requires.
    let failed = unsafe { libc::pthread_attr_init(attr) };
    if failed != 0 {
        return failed;
    }
    // SAFETY: initialized above.
    unsafe { libc::pthread_attr_setguardsize(attr, found.guard.len()) };
    let low = found.usable.start as *mut libc::c_void;
    // SAFETY: initialized above.
    unsafe { pthread_attr_setstack(attr, low, found.usable.len()) }
}

unsafe extern "C" {
    fn pthread_attr_setstack(
        attr: *mut pthread_attr_t,
        low: *mut libc::c_void,
        len: usize,
    ) -> c_int;
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getaffinity_np(
    thread: pthread_t,
    size: usize,
    set: *mut cpu_set_t,
) -> c_int {
    if goroutine(thread).is_none() {
        // SAFETY: the caller upholds libc's contract.
        return unsafe { real::pthread_getaffinity_np(thread, size, set) };
    }
    if !is_caller(thread) {
        return libc::ESRCH;
    }
    // Affinity belongs to the thread, so the caller's affinity is that of its carrier.
    // SAFETY: `set` is valid for `size` bytes, as libc requires.
    match unsafe { libc::sched_getaffinity(0, size, set) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
    }
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int {
    if goroutine(thread).is_none() {
        // SAFETY: the caller upholds libc's contract.
        return unsafe { real::pthread_getcpuclockid(thread, clock) };
    }
    if !is_caller(thread) {
        return libc::ESRCH;
    }
    // SAFETY: `clock` is valid for writes, as libc requires.
    unsafe { *clock = libc::CLOCK_THREAD_CPUTIME_ID };
    0
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller upholds libc's contract.
    change_mask_and_flag(set, || unsafe { real::pthread_sigmask(how, set, old) })
}

/// # Safety
/// The same contract as libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the caller upholds libc's contract.
    change_mask_and_flag(set, || unsafe { real::sigprocmask(how, set, old) })
}

/// Runs `call`. If it sets a signal mask in a goroutine, records on the carrier that the mask has
/// changed.
fn change_mask_and_flag(set: *const sigset_t, call: impl FnOnce() -> c_int) -> c_int {
    if set.is_null() || role() != Role::Goroutine {
        return call();
    }
    // SAFETY: here — dropped at the end of this function, which does not block.
    let _same_thread = unsafe { NoPreempt::new() };
    let failed = call();
    // SAFETY: carried — the caller's role is `Goroutine`.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier is not moved while it carries goroutines.
    unsafe { &*carrier }.set_slow_path_flag(MASK_CHANGED, true);
    failed
}
