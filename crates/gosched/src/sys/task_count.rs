//! How many threads the process has, ours and others'.

/// `None` where the system does not tell.
pub(crate) fn threads_of_the_process() -> Option<usize> {
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    Some(entries.filter(Result::is_ok).count())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_thread_more_is_counted() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let before = super::threads_of_the_process().unwrap();
        let thread = std::thread::spawn(move || wait.recv());
        // Other tests' threads come and go: at least one count must be larger.
        let larger = (0..1000).any(|_| super::threads_of_the_process().unwrap() > before);
        drop(done);
        let _ = thread.join();
        assert!(larger || before > 1);
    }
}
