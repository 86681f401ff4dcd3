//! libc functions that a goroutine would get wrong answers from, answered here.
//!
//! A symbol of the program comes before libc's, so these are what every module of the process
//! calls. For threads they go straight on to libc.
//!
//! - An identity's thread id is not the kernel's: libc would ask the kernel about a thread that does
//!   not exist. (`pthread_getattr_np`, `pthread_getaffinity_np`, `pthread_getcpuclockid`)
//! - `dlopen` must run as a thread that libc knows: a library's static thread-locals get their first
//!   values only there, and its constructors use them. All identities get them afterwards
//!   (`loading`). `dlclose` too: its destructors may load again, and the loader's lock knows its
//!   owner by thread id. A program with libc inside it loads libc.so with the first library, and libc
//!   itself asks for libraries there (name services, character sets): by functions that are replaced
//!   too (`interpose/builtin.rs`).
//! - `pthread_sigmask` and `sigprocmask` change the thread: it is noted, so that others who run there later
//!   find it as it was.
//! - `sched_getcpu` reads what the kernel writes for the carrier.

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

/// Checks that the process calls these functions, and not libc's. Naming them also keeps the linker
/// from leaving them out.
///
/// # Errors
/// They are not in force: this code is in a library that comes after libc in the order of look-ups,
/// or in a program that does not export them.
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

/// The goroutine that a `pthread_t` stands for.
fn goroutine(thread: pthread_t) -> Option<StackInfo> {
    DEPOT.find(thread as usize).filter(|found| found.thread_pointer == thread as usize)
}

fn is_caller(thread: pthread_t) -> bool {
    thread as usize == arch::thread_pointer()
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int {
    let Some(found) = goroutine(thread) else {
        // SAFETY: as the caller's call.
        return unsafe { real::pthread_getattr_np(thread, attr) };
    };
    // SAFETY: `attr` is valid for writes, as for libc.
    let failed = unsafe { libc::pthread_attr_init(attr) };
    if failed != 0 {
        return failed;
    }
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setguardsize(attr, found.guard.len()) };
    let low = found.usable.start as *mut libc::c_void;
    // SAFETY: initialised above.
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
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getaffinity_np(
    thread: pthread_t,
    size: usize,
    set: *mut cpu_set_t,
) -> c_int {
    if goroutine(thread).is_none() {
        // SAFETY: as the caller's call.
        return unsafe { real::pthread_getaffinity_np(thread, size, set) };
    }
    if !is_caller(thread) {
        return libc::ESRCH;
    }
    // Affinity is the thread's: the caller's is its carrier's.
    // SAFETY: `set` is valid for `size` bytes, as for libc.
    match unsafe { libc::sched_getaffinity(0, size, set) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
    }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int {
    if goroutine(thread).is_none() {
        // SAFETY: as the caller's call.
        return unsafe { real::pthread_getcpuclockid(thread, clock) };
    }
    if !is_caller(thread) {
        return libc::ESRCH;
    }
    // SAFETY: `clock` is valid for writes, as for libc.
    unsafe { *clock = libc::CLOCK_THREAD_CPUTIME_ID };
    0
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: as the caller's call.
    change_mask_and_flag(set, || unsafe { real::pthread_sigmask(how, set, old) })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: as the caller's call.
    change_mask_and_flag(set, || unsafe { real::sigprocmask(how, set, old) })
}

/// Makes a call that changes the thread's signal mask, if it gives a new one.
fn change_mask_and_flag(set: *const sigset_t, call: impl FnOnce() -> c_int) -> c_int {
    if set.is_null() || role() != Role::Goroutine {
        return call();
    }
    // SAFETY: here — it is dropped at the end, and nothing waits.
    let _same_thread = unsafe { NoPreempt::new() };
    let failed = call();
    // SAFETY: carried — the role says so.
    let carrier = unsafe { arch::carrier() };
    // SAFETY: alive — a carrier stays where it is while it carries.
    unsafe { &*carrier }.set_slow_path_flag(MASK_CHANGED, true);
    failed
}
