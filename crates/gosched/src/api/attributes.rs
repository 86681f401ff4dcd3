//! What `#[gosched::main]` and `#[gosched::test]` expand to: not for programs to call.
//!
//! What the attributes refuse:
//!
//! ```compile_fail
//! #[gosched::main]
//! async fn main() {} // a goroutine is plain code
//! ```
//! ```compile_fail
//! #[gosched::main(proc = 4)] // unknown option
//! fn main() {}
//! ```
//! ```compile_fail
//! #[gosched::main]
//! fn main(argument: u8) {} // nobody could give it one
//! ```
//! ```compile_fail
//! #[gosched::main(procs = 0)]
//! fn main() {}
//! ```
//! ```compile_fail
//! let rc = std::rc::Rc::new(1);
//! gosched::go(move || println!("{rc}")); // E0277: a goroutine may run on another thread
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

/// What `#[gosched::main(…)]` was given.
#[derive(Debug, Default)]
pub struct Options {
    procs: Option<usize>,
    stack: Option<usize>,
}

impl Options {
    /// Nothing.
    pub fn new() -> Options {
        Options::default()
    }

    /// `procs = N`.
    pub fn procs(mut self, procs: usize) -> Options {
        self.procs = Some(procs);
        self
    }

    /// `stack = BYTES`.
    pub fn stack(mut self, bytes: usize) -> Options {
        self.stack = Some(bytes);
        self
    }
}

/// Runs `f` as goroutine 1. The calling thread, the process's first, becomes the first M. When `f`
/// returns the process ends, whatever other goroutines do.
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
    // Another stack than the main thread's own takes another thread.
    if is_thread && options.stack.is_none() {
        let request = SpawnRequest {
            task: packet.as_ptr().cast(),
            site: Location::caller(),
            options: Some(&spawn_options),
        };
        sched::run_here(request);
        sched::serve_main_thread();
    }
    // SAFETY: borrows — none.
    let started = unsafe { start(packet, Some(&spawn_options), Location::caller()) };
    if let Err(why) = started {
        panic!("`#[gosched::main]`: {why}");
    }
    sched::serve_main_thread()
}

/// What a Rust program ends with when main panics.
const PANIC_EXIT_CODE: i32 = 101;

/// The number of an exit code: std does not tell.
fn number(code: ExitCode) -> i32 {
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).map_or(1, i32::from)
}

/// What `#[gosched::test(…)]` was given.
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
    /// A test of that name.
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

    /// `procs = N`.
    pub fn procs(mut self, procs: usize) -> TestOptions {
        self.procs = Some(procs);
        self
    }

    /// `timeout = SECONDS`.
    pub fn timeout_millis(mut self, millis: u64) -> TestOptions {
        self.timeout = Duration::from_millis(millis);
        self
    }

    /// `leaks = …`.
    pub fn deny_leaks(mut self, deny: bool) -> TestOptions {
        self.deny_leaks = deny;
        self
    }

    /// `virtual_time`.
    pub fn virtual_time(mut self, on: bool) -> TestOptions {
        self.virtual_time = on;
        self
    }

    /// `seed = N`.
    pub fn seed(mut self, seed: u64) -> TestOptions {
        self.seed = Some(seed);
        self
    }
}

/// Sets the number of Ps back when a test has ended, however it did.
struct Restore(usize);

impl Drop for Restore {
    fn drop(&mut self) {
        super::runtime::set_procs(self.0);
    }
}

/// One test at a time changes the number of Ps.
static PROCS_LOCK: Mutex<()> = Mutex::new(());

/// Runs `f` as a goroutine, for a limited time, and looks what it leaves behind.
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
    // SAFETY: borrows — none.
    let started = unsafe { start(packet, Some(&run::main_spawn_options()), Location::caller()) };
    let handle = match started {
        Ok(handle) => handle,
        Err(why) => panic!("test `{name}`: the system refuses a thread: {why}"),
    };
    if ended.recv_timeout(options.timeout) == Err(RecvTimeoutError::Timeout) {
        observe::dump_to_stderr();
        panic!("test `{name}` did not end within {:?}: all goroutines are above", options.timeout);
    }
    let code = match handle.join() {
        Ok(code) => code,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => return Err(payload),
            Err(_) => panic!("test `{name}` called `goexit`: it neither passed nor failed"),
        },
    };
    if options.deny_leaks && !wait_for_group_end(group) {
        let left = group.live();
        observe::dump_to_stderr();
        panic!(
            "test `{name}` left {left} goroutines behind, see above: join them, or say \
             `#[gosched::test(leaks = allow)]`"
        );
    }
    Ok(code)
}

/// How long goroutines of a test that has ended may take to end, in naps of a millisecond. Naps, not time: on a busy
/// machine a nap takes longer, as does everything that the goroutines have yet to do.
const GRACE_NAPS: u32 = 2_000;

/// Waits for the end of the goroutines. False: some do not end.
fn wait_for_group_end(group: &'static TestGroup) -> bool {
    for _ in 0..GRACE_NAPS {
        if group.live() == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    group.live() == 0
}
