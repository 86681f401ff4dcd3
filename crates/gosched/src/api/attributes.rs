//! The functions that `#[gosched::main]` and `#[gosched::test]` expand to. Programs do not call
//! them directly. `main` never waits for other goroutines: the process ends when the program's
//! `main` returns.
//!
//! Code that the attributes and `go` reject:
//!
//! ```compile_fail
//! #[gosched::main]
//! async fn main() {} // a goroutine blocks instead of awaiting
//! ```
//! ```compile_fail
//! #[gosched::main(proc = 4)] // unknown option
//! fn main() {}
//! ```
//! ```compile_fail
//! #[gosched::main]
//! fn main(argument: u8) {} // main takes no arguments
//! ```
//! ```compile_fail
//! #[gosched::main(procs = 0)]
//! fn main() {}
//! ```
//! ```compile_fail
//! let rc = std::rc::Rc::new(1);
//! gosched::go(move || println!("{rc}")); // E0277: `Rc` is not `Send`
//! ```

use super::{run, virtual_time};
use crate::block::exit::GoExit;
use crate::block::goroutine::builder::start;
use crate::block::goroutine::packet;
use crate::gmp::test_group::TestGroup;
use crate::observe;
use crate::sched::{self, Backend, SpawnOptions, SpawnRequest};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::process::{ExitCode, Termination};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The options of `#[gosched::main(…)]`.
#[derive(Debug, Default)]
pub struct Options {
    procs: Option<usize>,
    stack: Option<usize>,
}

impl Options {
    /// Creates options with the default values.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets `procs = N`.
    pub fn procs(mut self, procs: usize) -> Options {
        self.procs = Some(procs);
        self
    }

    /// Sets `stack = BYTES`.
    pub fn stack(mut self, bytes: usize) -> Options {
        self.stack = Some(bytes);
        self
    }
}

/// Runs `f` as goroutine 1. When `f` returns, the process ends without waiting for other
/// goroutines. The calling thread, which is the first thread of the process, becomes the first M.
#[track_caller]
pub fn main<R: Termination + 'static>(options: Options, f: fn() -> R) -> ExitCode {
    if let Some(procs) = options.procs {
        super::runtime::set_procs(procs);
    }
    let spawn_options = match options.stack {
        None => run::main_spawn_options(),
        Some(bytes) => match sched::stack_size(bytes) {
            Ok(size) => SpawnOptions { size, bytes: Some(bytes), ..SpawnOptions::default() },
            Err(why) => panic!("`#[gosched::main(stack = {bytes})]`: {why}"),
        },
    };
    let spawn_options = SpawnOptions { id: run::take_main_id(), for_main_m: true, ..spawn_options };
    let main = move || -> ! {
        match catch_unwind(AssertUnwindSafe(|| f().report())) {
            Ok(code) => std::process::exit(number(code)),
            Err(payload) if payload.is::<GoExit>() => resume_unwind(payload),
            Err(_) => std::process::exit(PANIC_EXIT_CODE),
        }
    };
    observe::install_quit_handler();
    let packet = packet::new(main, None);
    let is_thread = sched::backend() == Backend::Threads;
    // The main thread's own stack has a fixed size, so any other size needs another thread.
    if is_thread && options.stack.is_none() {
        let request = SpawnRequest {
            task: packet.as_ptr().cast(),
            site: Location::caller(),
            options: Some(&spawn_options),
        };
        sched::run_on_calling_thread(request);
        sched::serve_main_thread();
    }
    // SAFETY: borrows — none: the closure is `'static`.
    let started = unsafe { start(packet, Some(&spawn_options), Location::caller()) };
    if let Err(why) = started {
        panic!("`#[gosched::main]`: {why}");
    }
    sched::serve_main_thread()
}

/// The exit code of a Rust program whose `main` panics.
const PANIC_EXIT_CODE: i32 = 101;

/// Returns the number in an exit code, which std does not expose.
fn number(code: ExitCode) -> i32 {
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).map_or(1, i32::from)
}

/// The options of `#[gosched::test(…)]`.
#[derive(Debug)]
pub struct TestOptions {
    name: &'static str,
    procs: Option<usize>,
    timeout: Duration,
    deny_leaks: bool,
    virtual_time: bool,
    seed: Option<u64>,
}

impl TestOptions {
    /// Creates options with the default values for the test with the path `name`.
    pub fn new(name: &'static str) -> TestOptions {
        TestOptions {
            name,
            procs: None,
            timeout: Duration::from_secs(60),
            deny_leaks: true,
            virtual_time: false,
            seed: None,
        }
    }

    /// Sets `procs = N`.
    pub fn procs(mut self, procs: usize) -> TestOptions {
        self.procs = Some(procs);
        self
    }

    /// Sets `timeout`. The argument is in milliseconds.
    pub fn timeout_millis(mut self, millis: u64) -> TestOptions {
        self.timeout = Duration::from_millis(millis);
        self
    }

    /// Sets `leaks = deny` (`true`) or `leaks = allow` (`false`).
    pub fn deny_leaks(mut self, deny: bool) -> TestOptions {
        self.deny_leaks = deny;
        self
    }

    /// Sets `virtual_time`.
    pub fn virtual_time(mut self, on: bool) -> TestOptions {
        self.virtual_time = on;
        self
    }

    /// Sets `seed = N`.
    pub fn seed(mut self, seed: u64) -> TestOptions {
        self.seed = Some(seed);
        self
    }
}

/// Restores the number of Ps when dropped, whether the test returns or panics.
struct Restore(usize);

impl Drop for Restore {
    fn drop(&mut self) {
        super::runtime::set_procs(self.0);
    }
}

/// Held by a test that has set its own number of Ps, so that such tests run one at a time.
static PROCS_LOCK: Mutex<()> = Mutex::new(());

/// Runs `f` as a goroutine with a time limit. Panics if the limit is exceeded, or if goroutines
/// that `f` started do not end and leaks are denied.
#[track_caller]
pub fn test<R: Termination + 'static>(options: TestOptions, f: fn() -> R) -> ExitCode {
    if options.virtual_time && !virtual_time::is_child(options.name) {
        return virtual_time::run(options.name, options.seed);
    }
    if options.virtual_time {
        virtual_time::begin();
        let result = catch_unwind(AssertUnwindSafe(|| run_test(&options, f)));
        virtual_time::end(result.flatten().map(number));
    }
    let _one =
        options.procs.map(|_| PROCS_LOCK.lock().unwrap_or_else(|broken| broken.into_inner()));
    let _before = options.procs.map(|procs| Restore(super::runtime::set_procs(procs)));
    match run_test(&options, f) {
        Ok(code) => code,
        Err(payload) => resume_unwind(payload),
    }
}

#[track_caller]
fn run_test<R: Termination + 'static>(
    options: &TestOptions,
    f: fn() -> R,
) -> std::thread::Result<ExitCode> {
    let name = options.name;
    let group = TestGroup::new();
    let is_virtual = options.virtual_time;
    let (done, ended) = channel();
    let body = move || {
        TestGroup::enter(group);
        sched::set_deadlock_is_fatal(is_virtual);
        let result = catch_unwind(AssertUnwindSafe(|| f().report()));
        sched::set_deadlock_is_fatal(false);
        let _ = done.send(());
        match result {
            Ok(code) => code,
            Err(payload) => resume_unwind(payload),
        }
    };
    let packet = packet::new(body, None);
    // SAFETY: borrows — none: the closure is `'static`.
    let started = unsafe { start(packet, Some(&run::main_spawn_options()), Location::caller()) };
    let handle = match started {
        Ok(handle) => handle,
        Err(why) => panic!("test `{name}`: the system cannot create a thread: {why}"),
    };
    if ended.recv_timeout(options.timeout) == Err(RecvTimeoutError::Timeout) {
        observe::dump_to_stderr();
        panic!(
            "test `{name}` did not end within {:?}: all goroutines are listed above",
            options.timeout
        );
    }
    let code = match handle.join() {
        Ok(code) => code,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => return Err(payload),
            Err(_) => panic!(
                "test `{name}` called `goexit`, so it neither passed nor failed: return from the test instead"
            ),
        },
    };
    if options.deny_leaks && !wait_for_group_end(group) {
        let left = group.live();
        observe::dump_to_stderr();
        panic!(
            "test `{name}` left {left} goroutines behind (listed on standard error): join them, or use \
             `#[gosched::test(leaks = allow)]`"
        );
    }
    Ok(code)
}

/// How long the goroutines of a test may take to end after the test has ended, in sleeps of one
/// millisecond. Sleeps are counted instead of time: on a busy machine a sleep takes longer, and so
/// does everything that the goroutines have to do.
const GRACE_NAPS: u32 = 2_000;

/// Waits until all goroutines of the group have ended, for at most [`GRACE_NAPS`] sleeps. Returns
/// whether all have ended.
fn wait_for_group_end(group: &'static TestGroup) -> bool {
    for _ in 0..GRACE_NAPS {
        if group.live() == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    group.live() == 0
}
