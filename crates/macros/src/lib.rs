//! The attributes of `gosched`, which turn a function into a program's main goroutine or into a
//! test.
//!
//! The user's tokens keep their spans, so error messages and debuggers point at the user's code:
//! the function goes, unchanged, into a wrapper of the same name, which passes it to
//! `gosched::__macros`. Read the modules in the order below: the compiler's tokens (`token`), the
//! options in parentheses (`list`, `number`, `options`), the function below the attribute
//! (`function`), and the generated code (`expand`). All modules except the last work on a copy of
//! the tokens: the compiler's own tokens exist only while the compiler runs a macro, and unit tests
//! need tokens too.
//!
//! This crate never depends on another crate, not even on `gosched`: the generated code refers to
//! `::gosched` by its path.

#![forbid(unsafe_code)]

mod error;

mod token;

mod list;

mod number;

mod options;

mod function;

mod expand;

use proc_macro::TokenStream;

/// Makes a function the program's main goroutine.
///
/// ```ignore
/// #[gosched::main]
/// fn main() {
///     let answer = gosched::go(|| 6 * 7);
///     println!("{}", answer.join().unwrap());
/// }
/// ```
///
/// The attribute starts the runtime and runs the function as goroutine 1. When the function
/// returns, the process ends without waiting for other goroutines, as in Go. On `SIGQUIT`, the
/// process prints all goroutines and exits with status 2, as in Go, unless the program has its own
/// handler or goroutines are threads.
///
/// The function may return what `main` may return: `()`, `Result<(), E>`, `ExitCode`, `!`, or any
/// other [`Termination`](std::process::Termination). The result is reported in the goroutine and
/// need not be `Send`.
///
/// # Options
///
/// ```ignore
/// #[gosched::main(procs = 4, stack = 64 << 20)]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let text = std::fs::read_to_string("Cargo.toml")?;
///     println!("{} bytes", text.len());
///     Ok(())
/// }
/// ```
///
/// In this table, `N` and `BYTES` are constant expressions.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `procs = N` | maximum number of goroutines that run at once | see `runtime::procs` |
/// | `stack = BYTES` | stack size of the main goroutine | `ulimit -s`, from 1 MiB to 64 MiB |
/// | `alloc = MiMalloc` | allocator behind the allocation cache: a type without fields | `System` |
/// | `alloc = off` | no allocation cache, the global allocator stays as it is | |
///
/// # The resulting function
///
/// The function keeps its name, attributes and visibility. Its declared return type becomes
/// [`ExitCode`](std::process::ExitCode), but it does not return: it ends the process. Lint levels,
/// `cfg` and documentation work as before. The function need not be called `main`.
///
/// A program can have only one global allocator. Use `alloc = off` if the program defines its own
/// allocator, and on all but one function if several have this attribute.
///
/// The dependency must be named `gosched`: the attribute does not find it under another name. The
/// function must not be `async`, because a goroutine blocks instead of awaiting.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::main(options, item)
}

/// Makes a function a test that runs as a goroutine.
///
/// ```ignore
/// #[gosched::test]
/// fn a_value_arrives() {
///     let sender = gosched::go(|| 42);
///     assert_eq!(sender.join().unwrap(), 42);
/// }
/// ```
///
/// The test fails like any other: if it panics, or if it returns an `Err`. It also fails, with a
/// dump of all goroutines,
/// - if it takes longer than its time limit;
/// - if a goroutine that it started has not ended about two seconds after the test (a leak). These
///   are seconds of real time. Virtual time continues meanwhile, so a goroutine that only sleeps
///   ends and is no leak.
///
/// `#[should_panic]`, `#[ignore]` and `#[cfg]` work as with `#[test]`. This attribute replaces
/// `#[test]`: do not write both.
///
/// The output of goroutines is not captured, except with `virtual_time`: it appears even if the
/// test succeeds. The test harness captures output through a thread-local that only the standard
/// library can set, and a goroutine has its own thread-locals.
///
/// # Options
///
/// ```ignore
/// #[gosched::test(procs = 1, timeout = 2.5, leaks = allow)]
/// fn two_goroutines_take_turns_on_one_p() -> Result<(), gosched::JoinError> {
///     gosched::go(|| loop { gosched::yield_now() });
///     gosched::go(gosched::yield_now).join()
/// }
/// ```
///
/// In this table, `N` is a constant expression and `SECONDS` an integer or float literal. `procs`
/// applies to the whole process, so tests with this option run one at a time. `procs` cannot be
/// combined with `virtual_time`, and `seed` needs `virtual_time`.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `procs = N` | maximum number of goroutines that run at once | see `runtime::procs` |
/// | `timeout = SECONDS` | time limit of the test, in real time | 60 |
/// | `leaks = allow` or `deny` | whether goroutines may outlive the test | `deny` |
/// | `virtual_time` | runs the test in virtual time, see below | |
/// | `seed = N` | seed in virtual time; `GOSCHED_SEED` overrides it | a new one for each run |
///
/// # Virtual time
///
/// ```ignore
/// #[gosched::test(virtual_time)]
/// fn an_hour_is_over_at_once() {
///     let start = gosched::time::now();
///     gosched::time::sleep(std::time::Duration::from_secs(3600));
///     assert_eq!((gosched::time::now() - start).as_secs(), 3600);
/// }
/// ```
///
/// The test runs in its own process, one goroutine at a time, with a clock that stands still while
/// any goroutine can run. When all goroutines wait, the clock jumps to the next timer. (If a
/// goroutine waits for I/O, the I/O gets 20 ms of real time first.) So the result does not depend
/// on the speed of the machine, and hours take no time. If all goroutines wait and there is no
/// timer, the test fails with a dump of all goroutines. The scheduler derives its choices from a
/// seed. A test that fails prints its seed, and `GOSCHED_SEED=N` replays the run.
///
/// The virtual clock is the clock of `gosched::time`: sleeps, timers, time limits, deadlines and
/// `time::now`. `Instant::now` returns real time, and the clock does not wait for ordinary threads.
/// While a goroutine blocks its thread, the clock stands still and no other goroutine runs, for at
/// most one second of real time. After that other goroutines run, and the run may not be
/// reproducible.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::test(options, item)
}
