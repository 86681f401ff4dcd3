//! The stack that a carrier's signal handlers run on.

use super::install;
use crate::stack::PAGE;
use std::io;

/// Size of a carrier's signal stack: std's 8 KiB is too small to unwind on.
const SIGNAL_STACK: usize = 64 << 10;

/// The signal stack of a carrier: in force until dropped, on the thread that installed it.
#[derive(Debug)]
pub(crate) struct AltStack {
    memory: Mapping,
    before: libc::stack_t,
}

impl AltStack {
    /// Gives the calling thread a signal stack, and the process the fault handler.
    pub(crate) fn install() -> io::Result<AltStack> {
        install()?;
        let memory = Mapping::new(PAGE + SIGNAL_STACK)?;
        memory.guard_first_page()?;
        let stack = libc::stack_t {
            ss_sp: (memory.at + PAGE) as *mut libc::c_void,
            ss_flags: 0,
            ss_size: SIGNAL_STACK,
        };
        let mut before = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: the memory is ours until `drop` takes the stack out of force.
        if unsafe { libc::sigaltstack(&stack, &mut before) } != 0 {
            let why = io::Error::last_os_error();
            return Err(io::Error::other(format!("the system refuses sigaltstack: {why}")));
        }
        Ok(AltStack { memory, before })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let mut now = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: asks only.
        unsafe { libc::sigaltstack(std::ptr::null(), &mut now) };
        if now.ss_sp as usize == self.memory.at + PAGE {
            // SAFETY: what was in force before us: its owner keeps it until the thread ends.
            unsafe { libc::sigaltstack(&self.before, std::ptr::null_mut()) };
        }
    }
}

/// Private memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Mapping {
    pub(super) fn new(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match at {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(Mapping { at: at as usize, bytes }),
        }
    }

    pub(super) fn guard_first_page(&self) -> io::Result<()> {
        // SAFETY: our own memory, not used yet.
        match unsafe { libc::mprotect(self.at as *mut libc::c_void, PAGE, libc::PROT_NONE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; whoever drops it uses it no more.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.bytes) };
    }
}
