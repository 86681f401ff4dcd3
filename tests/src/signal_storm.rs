//! Continuous signals to registered threads. The signal handler changes errno and restores it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// A source of signals for the registered threads; stops when dropped.
#[derive(Debug)]
pub struct SignalStorm {
    threads: Arc<Mutex<Vec<i32>>>,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl SignalStorm {
    /// Installs the handler and starts to send signals.
    pub fn start() -> SignalStorm {
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: the handler only makes a system call and increments a counter.
        unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
        let threads = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let sender = std::thread::spawn({
            let (threads, stop) = (threads.clone(), stop.clone());
            move || send(&threads, &stop)
        });
        SignalStorm { threads, stop, sender: Some(sender) }
    }

    /// Registers the calling thread.
    ///
    /// # Panics
    /// The sending thread panicked.
    pub fn add_current_thread(&self) {
        // SAFETY: gettid has no precondition.
        let me = unsafe { libc::gettid() };
        self.threads.lock().expect("threads").push(me);
    }

    /// Returns the number of signals handled, for all storms together.
    pub fn handled() -> u64 {
        HANDLED.load(Ordering::Relaxed)
    }
}

impl Drop for SignalStorm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

fn send(threads: &Mutex<Vec<i32>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let now: Vec<i32> = threads.lock().map(|threads| threads.clone()).unwrap_or_default();
        for thread in now {
            let process = std::process::id();
            // SAFETY: the signal has a handler. If the thread is gone, the call returns an error.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
        }
        std::thread::sleep(Duration::from_micros(30));
    }
}

extern "C" fn handler(_: i32) {
    // SAFETY: has no precondition.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of the interrupted thread or routine.
    let before = unsafe { *errno };
    // SAFETY: closes nothing; sets errno.
    unsafe { libc::close(-1) };
    // SAFETY: as above.
    unsafe { *errno = before };
    HANDLED.fetch_add(1, Ordering::Relaxed);
}
