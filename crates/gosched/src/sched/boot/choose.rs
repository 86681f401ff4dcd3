//! Which backend there is.

use crate::sched::boot::start;
use crate::sched::inspect::schedtrace;
use crate::sched::state::available_cpu;
use crate::sched::state::backend::Backend;
use crate::sched::threads::activity;
use crate::sys::fatal::warning;
use crate::sys::{cpu_limit, random};

/// Starts the runtime.
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
            // Without a port a program is built for threads: there is nothing to warn of.
            Err(_) => {}
        }
    }
    start_threads();
    available_cpu::record_procs(activity::procs());
    Backend::Threads
}

/// Says on standard error why goroutines are threads, and what that costs.
fn warn_of_threads(why: &str) {
    warning!(
        "goroutines are OS threads in this process: {why}; each takes a thread's memory and kernel switches, and \
         GOMAXPROCS, stack dumps and deadlock reports do not apply"
    );
}

/// Once, where goroutines are threads.
fn start_threads() {
    random::start();
    schedtrace::start();
    if schedtrace::is_on() {
        let thread = std::thread::Builder::new().name("gosched-trace".into());
        if let Err(why) = thread.spawn(schedtrace::print_loop) {
            warning!("no thread for GODEBUG=schedtrace: {why}");
        }
    }
}
