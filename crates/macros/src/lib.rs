//! The attributes of `gosched`: what turns a function into a program's main goroutine, or a test.
//!
//! The user's tokens stay what they are, and so do their places in error messages and debuggers:
//! the function goes, unchanged, into a wrapper of the same name, which hands it to
//! `gosched::__macros`. Read in the order of the modules below: what the compiler gives us
//! (`token`), what may stand in the parentheses (`list`, `number`, `options`), what may stand
//! underneath (`function`), what comes out (`expand`). All but the last work on a copy of the
//! tokens, because the compiler's own exist only while it runs a macro, and unit tests run without
//! it.

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
/// The runtime starts, the function runs as goroutine 1, and when it returns the process ends, as
/// in Go: other goroutines are not waited for.
///
/// It may return whatever `main` may: `()`, `Result<(), E>`, `ExitCode`, `!`, any
/// [`Termination`](std::process::Termination). The result is reported in the goroutine and need not
/// be `Send`.
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
/// | option | meaning | without it |
/// |---|---|---|
/// | `procs = N` | how many goroutines run at once; any constant expression | `GOMAXPROCS`, or the number of CPUs |
/// | `stack = BYTES` | stack of the main goroutine; any constant expression | 8 MiB |
/// | `alloc = MiMalloc` | the allocation cache in front of that allocator: the path of a type without fields | in front of the system's |
/// | `alloc = off` | leaves the global allocator alone | |
///
/// # What becomes of the function
///
/// It keeps its name, attributes and visibility, but for other callers it now returns an
/// [`ExitCode`](std::process::ExitCode). Lint levels, `cfg` and documentation work as before. The
/// name need not be `main`; but a program has one global allocator, so of several such functions, and
/// where it has an allocator of its own, the others say `alloc = off`. The crate must be known as `gosched`: a dependency under another name
/// is not found. There is nothing to await in a goroutine, so the function is not `async`.
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
/// The test fails as any other: by a panic, or by returning an `Err`. It also fails
/// - when it takes longer than its time limit, with a dump of all goroutines;
/// - when a goroutine that it started is still there after it (a leak).
///
/// `#[should_panic]`, `#[ignore]` and `#[cfg]` work as with `#[test]`, which this attribute
/// replaces: do not write both.
///
/// What goroutines print is not captured. The test harness captures output by way of a thread-local
/// that the standard library lets nobody else set, and a goroutine has thread-locals of its own: so
/// their output appears also when the test succeeds.
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
/// | option | meaning | without it |
/// |---|---|---|
/// | `procs = N` | how many goroutines run at once; any constant expression | `GOMAXPROCS`, or the number of CPUs |
/// | `timeout = SECONDS` | the time limit: an integer or a float literal | 60 |
/// | `leaks = allow` or `deny` | whether goroutines may outlive the test | `deny` |
/// | `virtual_time` | see below | |
/// | `seed = N` | the seed in virtual time; any constant expression | `GOSCHED_SEED`, or another each time |
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
/// The test runs in a process of its own, on one P, with a clock that stands still while any goroutine
/// can run; when all wait, it jumps to the next timer. So nothing depends on how fast the machine is,
/// and hours take no time. When all wait and there is no timer, the test fails with a dump of all
/// goroutines. The scheduler draws its choices from a seed; a test that fails names it, and
/// `GOSCHED_SEED=N` replays the run.
///
/// The clock is that of `gosched::time`: sleeps, timers, time limits, deadlines, `time::now`. It is not
/// `Instant::now`, and what ordinary threads do is not waited for. A goroutine that blocks its thread keeps
/// the P while time stands still, for a second at most: then others run, and the run may not be replayed.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::test(options, item)
}
