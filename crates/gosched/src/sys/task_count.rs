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
        // Ours alone decide: others' threads come and go, but not hundreds of them.
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let before = super::threads_of_the_process().unwrap();
        let threads: Vec<_> = (0..200)
            .map(|_| {
                let wait = wait.clone();
                std::thread::spawn(move || wait.lock().unwrap().recv().is_err())
            })
            .collect();
        let now = super::threads_of_the_process().unwrap();
        drop(done);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        assert!(now >= before + 100, "{before} before, {now} with 200 more");
    }
}
