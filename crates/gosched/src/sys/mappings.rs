//! How many memory mappings the process has, and may have.

use std::fs::File;
use std::io::Read;

/// The process's memory mappings at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mappings {
    pub(crate) used: usize,
    /// The system's limit for each process: Linux's `vm.max_map_count`.
    pub(crate) limit: usize,
}

/// Counts them: some 30 ms where there are 65530. `None` where the system does not tell.
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
    fn pages_of_different_rights_are_counted() {
        const PAGES: usize = 2000;
        let before = super::count().unwrap();
        // SAFETY: new memory, wherever the system likes.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGES * 4096, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        for page in (0..PAGES).step_by(2) {
            let page = start.wrapping_byte_add(page * 4096);
            // SAFETY: a page of the memory above.
            assert_eq!(unsafe { libc::mprotect(page, 4096, libc::PROT_READ) }, 0);
        }
        let after = super::count().unwrap();
        // SAFETY: mapped above, and used by nothing.
        unsafe { libc::munmap(start, PAGES * 4096) };
        // Other tests map and unmap too, but not so much.
        assert!(after.used > before.used + PAGES / 2, "{before:?}, {after:?}");
        assert!(after.limit >= after.used, "{after:?}");
    }
}
