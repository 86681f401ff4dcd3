//! What we need of glibc that no header declares, in a program that has libc inside it.

use super::{KeyRecord, Symbols};
use crate::unsupported::Unsupported;
use std::arch::asm;

/// libc's thread-locals are part of the program's one block: they are freed as a dying thread frees
/// them, and start over with the rest.
pub(in super::super) const LIBC_IS_A_MODULE: bool = false;

unsafe extern "C" {
    fn _dl_allocate_tls(block: *mut libc::c_void) -> *mut libc::c_void;
    fn _dl_deallocate_tls(block: *mut libc::c_void, also_block: bool);
    fn _dl_get_tls_static_info(size: *mut usize, align: *mut usize);
    fn __ctype_init();
    fn __call_tls_dtors();
    fn __libc_thread_freeres();
    static __pthread_keys: KeyRecord;
    static __rseq_offset: isize;
}

pub(in super::super) fn load() -> Result<Symbols, Unsupported> {
    let resolver_offset: isize;
    // SAFETY: reads the offset of `__resp`, a thread-local of libc.a, that the linker filled in.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + __resp@GOTTPOFF]",
            out(reg) resolver_offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    Ok(Symbols {
        allocate_tls: _dl_allocate_tls,
        deallocate_tls: _dl_deallocate_tls,
        static_info: _dl_get_tls_static_info,
        ctype_init: __ctype_init,
        call_tls_dtors: __call_tls_dtors,
        thread_freeres: Some(__libc_thread_freeres),
        keys: &raw const __pthread_keys,
        resolver_offset,
        // SAFETY: a constant of libc.a.
        rseq_offset: Some(unsafe { __rseq_offset }),
    })
}
