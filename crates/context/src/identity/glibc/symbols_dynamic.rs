//! What we need of glibc that no header declares, in a program that loads libc.so.

use super::{KeyRecord, Symbols};
use crate::arch;
use crate::identity::Unsupported;
use std::ffi::CStr;

/// libc's thread-locals are a module of their own, and are kept when a slot is used again: they hold
/// its malloc cache and other state that only a dying thread frees.
pub(in super::super) const LIBC_IS_A_MODULE: bool = true;

pub(in super::super) fn load() -> Result<Symbols, Unsupported> {
    // SAFETY (of each cast): the types are glibc's own, unchanged since these functions exist.
    unsafe {
        Ok(Symbols {
            allocate_tls: std::mem::transmute::<usize, super::AllocateTls>(need(
                c"_dl_allocate_tls",
            )?),
            deallocate_tls: std::mem::transmute::<usize, super::DeallocateTls>(need(
                c"_dl_deallocate_tls",
            )?),
            static_info: std::mem::transmute::<usize, super::StaticInfo>(need(
                c"_dl_get_tls_static_info",
            )?),
            ctype_init: std::mem::transmute::<usize, unsafe extern "C" fn()>(need(
                c"__ctype_init",
            )?),
            call_tls_dtors: std::mem::transmute::<usize, unsafe extern "C" fn()>(need(
                c"__call_tls_dtors",
            )?),
            thread_freeres: None,
            keys: need(c"__pthread_keys")? as *const KeyRecord,
            // The look-up of a thread-local gives this thread's address of it.
            resolver_offset: need(c"__resp")? as isize - arch::thread_pointer() as isize,
            rseq_offset: look_up(c"__rseq_offset").map(|at| *(at as *const isize)),
        })
    }
}

fn need(name: &'static CStr) -> Result<usize, Unsupported> {
    let missing = || Unsupported::new("glibc's internal functions", format!("no {name:?}"));
    look_up(name).ok_or_else(missing)
}

fn look_up(name: &CStr) -> Option<usize> {
    // SAFETY: a look-up by name.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at as usize)
}

/// Address of a variable of a thread-local module for this thread; the module is there for it
/// afterwards.
///
/// # Safety
/// - **module**: `module` is a loaded module with thread-locals.
pub(in super::super) unsafe fn thread_local_address(module: usize) -> usize {
    unsafe extern "C" {
        fn __tls_get_addr(index: *const [usize; 2]) -> usize;
    }
    // SAFETY: module — promised by the caller.
    unsafe { __tls_get_addr(&[module, 0]) }
}
