//! The functions themselves, in a program that has libc inside it: under the names that libc itself
//! calls them by.
//!
//! No `dlopen` here: a static program loads no libraries. `sched_getcpu` needs no help: identities
//! of static programs say themselves that the kernel does not serve them.

use libc::{c_int, clockid_t, cpu_set_t, pthread_attr_t, pthread_t, sigset_t};

/// A static program has no other.
pub(super) fn in_force() -> bool {
    true
}

/// As above.
pub(super) fn is_in_force(_name: &std::ffi::CStr, _ours: *const ()) -> bool {
    true
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
}
