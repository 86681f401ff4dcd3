//! Counts the threads of the process: the runtime's and all others.
//!
//! `/proc` lists the threads. Without `/proc` (in a container or a `chroot`), every possible thread
//! id is probed: `tgkill` with signal 0 succeeds if a thread of this process has that id. Probing
//! all ids takes about a second, so it stops as soon as it has found more threads than the caller
//! knows of.
//!
//! A probe never interrupts a thread: the kernel delivers no signal 0.

use super::thread_status;

/// Returns the number of threads, or some number above `known` if there are more than `known`.
/// Returns `None` if the threads cannot be counted.
pub(crate) fn count_threads(known: usize) -> Option<usize> {
    count_listed().or_else(|| count_probed(known))
}

fn count_listed() -> Option<usize> {
    if !thread_status::has_proc() {
        return None;
    }
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    Some(entries.filter(Result::is_ok).count())
}

/// The highest thread id: the kernel's `PID_MAX_LIMIT`.
const MAX_TID: i32 = 4 << 20;

/// Like [`count_threads`], but without `/proc`. Probing starts at the id of the process's first
/// thread: the other threads usually have slightly higher ids and are found early.
fn count_probed(known: usize) -> Option<usize> {
    // SAFETY: getpid has no precondition.
    let process = unsafe { libc::getpid() };
    let mut count = 0;
    for number in (process..=MAX_TID).chain(1..process) {
        count += usize::from(is_own_thread(process, number)?);
        if count > known {
            break;
        }
    }
    Some(count)
}

/// Returns whether a thread of this process has the id `number`. Returns `None` if the kernel
/// refuses the probe.
fn is_own_thread(process: i32, number: i32) -> Option<bool> {
    // SAFETY: signal 0 is never delivered; the kernel only checks the thread id.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, process, number, 0) } == 0;
    let is_none = || std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    (found || is_none()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Starts 200 threads and expects at least 100 more: threads of other tests start and end
    /// meanwhile, but not by the hundred. The lock keeps the callers of this function apart.
    fn check_that_additional_threads_are_counted(count: fn() -> Option<usize>) {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let before = count().unwrap();
        let threads: Vec<_> = (0..200)
            .map(|_| {
                let wait = wait.clone();
                std::thread::spawn(move || wait.lock().unwrap().recv().is_err())
            })
            .collect();
        let now = count().unwrap();
        drop(done);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        assert!(now >= before + 100, "{before} before, {now} with 200 more");
    }

    #[test]
    fn additional_threads_are_counted() {
        check_that_additional_threads_are_counted(count_listed);
    }

    #[test]
    fn additional_threads_are_counted_by_probing() {
        check_that_additional_threads_are_counted(|| count_probed(usize::MAX));
    }

    #[test]
    fn probing_stops_when_it_has_found_more_threads_than_known() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv().is_err());
        assert_eq!(count_probed(1), Some(2));
        drop(done);
        assert!(thread.join().unwrap());
    }
}
