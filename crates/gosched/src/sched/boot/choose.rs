//! Chooses the backend when the runtime starts: the M:N scheduler where it works, OS threads
//! elsewhere. This module never stores the choice: `sched::backend` does, once per process.

use crate::sched::boot::start;
use crate::sched::inspect::schedtrace;
use crate::sched::state::available_cpu;
use crate::sched::state::backend::Backend;
use crate::sched::threads::activity;
use crate::sys::fatal::warning;
use crate::sys::{cpu_limit, random};

/// Starts the runtime and returns the backend of this process.
#[cold]
pub(crate) fn choose() -> Backend {
    activity::set_procs(cpu_limit::initial_procs());
    if !cfg!(feature = "threads") {
        match start::start() {
            Ok(procs) => {
                available_cpu::record_procs(procs);
                return Backend::MultiThread;
            }
            Err(why) if cfg!(ported) => warn_of_threads(&why),
            // Without a port the program is built for threads: no reason for a warning.
            Err(_) => {}
        }
    }
    start_threads();
    available_cpu::record_procs(activity::procs());
    Backend::Threads
}

/// Warns on standard error that goroutines are OS threads, with the reason and the cost.
fn warn_of_threads(why: &str) {
    warning!(
        "goroutines are OS threads in this process: {why}; each goroutine uses a thread's memory and is switched by the kernel, \
         GOMAXPROCS has no effect, dumps show no frames, and deadlocks are not reported"
    );
}

/// Starts the threads backend. Called once per process.
fn start_threads() {
    random::start();
    schedtrace::start();
    if schedtrace::is_on() {
        let thread = std::thread::Builder::new().name("gosched-trace".into());
        if let Err(why) = thread.spawn(schedtrace::print_loop) {
            warning!("cannot start the thread for GODEBUG=schedtrace: {why}");
        }
    }
}
