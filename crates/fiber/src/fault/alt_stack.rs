//! The alternate signal stack of a carrier. Dropping an `AltStack` never removes a signal stack
//! that other code has installed meanwhile.

use super::install;
use crate::stack::PAGE;
use std::io;

/// Size of a carrier's signal stack in bytes. std's 8 KiB is too small to unwind on.
const SIGNAL_STACK: usize = 64 << 10;

/// The signal stack of a carrier. Installed on the thread that called [`AltStack::install`], until
/// dropped.
#[derive(Debug)]
pub(crate) struct AltStack {
    memory: Mapping,
    before: libc::stack_t,
}

impl AltStack {
    /// Installs a signal stack for the calling thread and, on the first call, the process's fault
    /// handler.
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
        // SAFETY: the memory is mapped until `drop`, which uninstalls the stack first.
        if unsafe { libc::sigaltstack(&stack, &mut before) } != 0 {
            let why = io::Error::last_os_error();
            return Err(io::Error::other(format!("sigaltstack failed: {why}")));
        }
        Ok(AltStack { memory, before })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let mut now = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: only reads the current signal stack.
        unsafe { libc::sigaltstack(std::ptr::null(), &mut now) };
        if now.ss_sp as usize == self.memory.at + PAGE {
            // SAFETY: the previous signal stack, which its owner keeps mapped until the thread
            // ends.
            unsafe { libc::sigaltstack(&self.before, std::ptr::null_mut()) };
        }
    }
}

/// A private, anonymous memory mapping, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Mapping {
    pub(super) fn new(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match at {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(Mapping { at: at as usize, bytes }),
        }
    }

    pub(super) fn guard_first_page(&self) -> io::Result<()> {
        // SAFETY: our own mapping, not in use yet.
        match unsafe { libc::mprotect(self.at as *mut libc::c_void, PAGE, libc::PROT_NONE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the owner that drops it no longer uses it.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.bytes) };
    }
}
