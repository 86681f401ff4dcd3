//! The number of memory mappings of the process, and the system's limit for that number. This
//! module never compares the two numbers: `sched/threads/goroutine.rs` does.

use std::fs::File;
use std::io::Read;

/// The process's memory mappings at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mappings {
    pub(crate) used: usize,
    /// The system's limit for each process: Linux's `vm.max_map_count`.
    pub(crate) limit: usize,
}

/// Counts the mappings, which takes about 30 ms if there are 65530. Returns `None` if the system
/// does not provide the numbers.
pub(crate) fn count() -> Option<Mappings> {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
    let limit = limit.trim().parse().ok()?;
    let mut maps = File::open("/proc/self/maps").ok()?;
    let mut part = vec![0; 1 << 16];
    let mut used = 0;
    loop {
        match maps.read(&mut part).ok()? {
            0 => return Some(Mappings { used, limit }),
            len => used += part[..len].iter().filter(|byte| **byte == b'\n').count(),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn pages_with_different_permissions_are_counted_as_separate_mappings() {
        const PAGES: usize = 2000;
        let before = super::count().unwrap();
        // SAFETY: maps new memory at an address that the system chooses.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGES * 4096, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        for page in (0..PAGES).step_by(2) {
            let page = start.wrapping_byte_add(page * 4096);
            // SAFETY: a page of the memory mapped above.
            assert_eq!(unsafe { libc::mprotect(page, 4096, libc::PROT_READ) }, 0);
        }
        let after = super::count().unwrap();
        // SAFETY: the memory was mapped above, and nothing refers to it.
        unsafe { libc::munmap(start, PAGES * 4096) };
        // Other tests map and unmap memory too, but far less.
        assert!(after.used > before.used + PAGES / 2, "{before:?}, {after:?}");
        assert!(after.limit >= after.used, "{after:?}");
    }
}
