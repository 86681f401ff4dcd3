//! How many threads the process has, ours and others'.
//!
//! `/proc` lists them. A process that has no `/proc` (a container, a `chroot`) asks the kernel about every number that a
//! thread can have: `tgkill` with signal 0 tells whether a thread of this process has it. That takes about a second, so
//! counting stops as soon as there are more than the caller knows of.

use super::thread_status;

/// How many threads there are, or a number above `known`. `None` where the system does not tell.
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

/// No thread has a higher number: the kernel's `PID_MAX_LIMIT`.
const MAX_TID: i32 = 4 << 20;

/// As [`count_threads`], without `/proc`. A process's first thread has the lowest number, as a rule, so others
/// are found soon.
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

/// Whether a thread of this process has the number. `None`: the kernel does not say.
fn is_own_thread(process: i32, number: i32) -> Option<bool> {
    // SAFETY: signal 0 is not sent.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, process, number, 0) } == 0;
    let is_none = || std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    (found || is_none()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Ours alone decide: the threads of other tests come and go, but not hundreds of them. One at a time.
    fn a_thread_more_is_counted_by(count: fn() -> Option<usize>) {
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
    fn a_thread_more_is_counted() {
        a_thread_more_is_counted_by(count_listed);
    }

    #[test]
    fn a_thread_more_is_counted_by_probing() {
        a_thread_more_is_counted_by(|| count_probed(usize::MAX));
    }

    #[test]
    fn probing_stops_where_there_are_enough() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv().is_err());
        assert_eq!(count_probed(1), Some(2));
        drop(done);
        assert!(thread.join().unwrap());
    }
}
