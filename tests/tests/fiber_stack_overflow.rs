//! What happens when a goroutine overflows its stack, and what other faults must do. Each case ends
//! its process, so it runs in a child process.

use gosched_fiber::{Routine, Size, fault, host, suspend};
use gosched_tests::wait::LIMIT;
use gosched_tests::{children, linked};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::time::Instant;

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    let below = if depth == u64::MAX { 0 } else { recurse(depth + 1) };
    black_box(below + frame[3])
}

fn inside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) {
    let mut routine = Routine::new(Size::from_environment().unwrap(), f);
    while routine.resume().unwrap() == gosched_fiber::Status::Suspended {}
}

/// Recurses with malloc as the innermost call, so that malloc overflows while it holds its lock.
#[inline(never)]
fn allocate(depth: u64) -> u64 {
    let memory = vec![depth; 20_000]; // large, so malloc takes it from the arena under its lock
    let below = if depth == u64::MAX { 0 } else { allocate(depth + 1) };
    black_box(below + memory[7])
}

/// Installs a handler that runs on the interrupted stack.
fn handle_on_the_same_stack() {
    extern "C" fn handler(_: i32) {}
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // SAFETY: the handler does nothing.
    unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) };
}

/// Raises the signal at every depth, until there is no room for the signal frame.
#[inline(never)]
fn raise_deep(depth: u64) -> u64 {
    let frame = black_box([depth; 8]);
    // SAFETY: a signal with a handler.
    unsafe { libc::raise(libc::SIGUSR2) };
    let below = if depth == u64::MAX { 0 } else { raise_deep(depth + 1) };
    black_box(below + frame[3])
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else {
        return;
    };
    match scenario.as_str() {
        "plain" => inside(|| recurse(0)),
        "moved" => {
            let mut routine = Routine::new(Size::from_environment().unwrap(), || {
                suspend();
                recurse(0)
            });
            routine.resume().unwrap();
            std::thread::spawn(move || drop(routine.resume())).join().unwrap();
        }
        "in host" => inside(|| host(|| recurse(0))),
        "big frames of C" => inside(|| linked::big_frame(1000)),
        "huge frames of C" => inside(|| linked::huge_frame(1)),
        "in malloc" => inside(|| allocate(0)),
        "in a handler without a stack" => {
            handle_on_the_same_stack();
            inside(|| raise_deep(0));
        }
        "reused" => {
            (0..100).for_each(|_| inside(|| ()));
            inside(|| recurse(0));
        }
        "named" => {
            static WORKER: fault::OwnerName = |owner, to| write!(to, "goroutine {owner} (worker)");
            // SAFETY: handler — it only formats.
            unsafe { fault::set_owner_name(&WORKER) };
            inside(|| recurse(0));
        }
        "report hangs" => {
            static HANG: fault::OwnerName = |_, _| {
                loop {
                    std::hint::spin_loop();
                }
            };
            // SAFETY: handler — it only hangs.
            unsafe { fault::set_owner_name(&HANG) };
            inside(|| recurse(0));
        }
        "signals meanwhile" => {
            install_for(libc::SIGUSR2, scribble, libc::SA_ONSTACK);
            static RAISE: fn() = || {
                // SAFETY: a signal with a handler.
                unsafe { libc::raise(libc::SIGUSR2) };
            };
            fault::set_dump_hooks(&RAISE, &((|| ()) as fn()));
            inside(|| recurse(0));
        }
        "two at once" => {
            let both: Vec<_> =
                (0..2).map(|_| std::thread::spawn(|| inside(|| recurse(0)))).collect();
            both.into_iter().for_each(|thread| thread.join().unwrap());
        }
        "a null pointer" => inside(|| read(8)),
        "an address that cannot exist, near the end" => inside(|| descend(own_stack())),
        "another's guard" => {
            let other = stack_address();
            inside(move || read(other));
        }
        "sent by kill" => {
            // The handler of std would consume the first signal.
            // SAFETY: the default is always valid.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            inside(|| {
                let process = std::process::id() as i32;
                // SAFETY: ends the process.
                unsafe { libc::kill(process, libc::SIGSEGV) };
                std::thread::sleep(LIMIT);
            });
        }
        "a thread of std" => {
            inside(|| ());
            std::thread::Builder::new()
                .name("plain thread".into())
                .spawn(|| recurse(0))
                .unwrap()
                .join()
                .unwrap();
        }
        "the main thread's own" => {
            inside(|| ());
            // This test runs on a thread of std, which has carried a goroutine and is a plain
            // thread again.
            black_box(recurse(0));
        }
        "a handler was there" => with_handler(libc::SA_SIGINFO | libc::SA_ONSTACK),
        "an old-style handler was there" => with_handler(libc::SA_ONSTACK),
        "an open handler was there" => with_open_handler(),
        "a handler for once was there" => with_handler_for_once(),
        "ignored before" => {
            // SAFETY: ignoring is always valid.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_IGN) };
            inside(|| {
                // SAFETY: the signal is ignored.
                unsafe { libc::raise(libc::SIGSEGV) };
            });
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(12) };
        }
        "a panic with a backtrace on the smallest stack" => {
            let mut routine = Routine::new(Size::new(1).unwrap(), || panic!("small"));
            routine.resume().unwrap();
            let result: Option<std::thread::Result<()>> = routine.into_result();
            assert!(result.unwrap().is_err());
        }
        other => panic!("no scenario {other}"),
    }
}

fn read(address: usize) -> u8 {
    // SAFETY: none. The read is meant to fault.
    unsafe { std::ptr::read_volatile(black_box(address) as *const u8) }
}

/// Returns the low end of the caller's stack.
fn own_stack() -> usize {
    let mut attributes = std::mem::MaybeUninit::uninit();
    let (mut low, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: pthread_self has no precondition.
    let myself = unsafe { libc::pthread_self() };
    // SAFETY: valid for writes.
    unsafe { libc::pthread_getattr_np(myself, attributes.as_mut_ptr()) };
    // SAFETY: filled above; both places are valid for writes.
    unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut len) };
    low as usize
}

/// Recurses down to the last pages of the stack, and faults there for another reason.
#[inline(never)]
fn descend(low: usize) -> u64 {
    let frame = black_box([1u64; 16]);
    let here = frame.as_ptr() as usize;
    let below = if here - low > 10_000 { descend(low) } else { read(1 << 62).into() };
    black_box(below + frame[3])
}

/// Returns an address in the guard of a stack that a suspended routine uses.
fn stack_address() -> usize {
    let (to, from) = std::sync::mpsc::channel();
    let mut routine = Routine::new(Size::from_environment().unwrap(), move || {
        to.send(own_stack() - 4096).unwrap();
        suspend();
    });
    routine.resume().unwrap();
    std::mem::forget(routine);
    from.recv().unwrap()
}

/// Installs a handler that must run with SIGSEGV unblocked (SA_NODEFER). The process exits with 11
/// if SIGSEGV is unblocked, and with 12 if not.
fn with_open_handler() {
    extern "C" fn handler(_: i32) {
        let mut mask = std::mem::MaybeUninit::uninit();
        // SAFETY: reads the signal mask; `mask` is valid for writes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
        // SAFETY: filled above.
        let blocked = unsafe { libc::sigismember(mask.as_ptr(), libc::SIGSEGV) };
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(11 + blocked) }
    }
    install(handler, libc::SA_NODEFER | libc::SA_ONSTACK);
    inside(|| read(8));
}

/// Installs a handler that is called only once (SA_RESETHAND), and returns. The second fault kills
/// the process.
fn with_handler_for_once() {
    extern "C" fn handler(_: i32) {
        const TEXT: &[u8] = b"called once\n";
        // SAFETY: writes a constant.
        unsafe { libc::write(2, TEXT.as_ptr().cast(), TEXT.len()) };
    }
    install(handler, libc::SA_RESETHAND | libc::SA_ONSTACK);
    inside(|| read(8));
}

/// A handler that overwrites much of the signal stack. A function that returns to an overwritten
/// address ends the process with status 3.
extern "C" fn scribble(_: i32) {
    extern "C" fn end() -> ! {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(3) }
    }
    let _ = black_box([end as *const () as usize; 1024]);
}

fn install(handler: extern "C" fn(i32), flags: i32) {
    install_for(libc::SIGSEGV, handler, flags);
}

fn install_for(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: the handlers of this suite do only what a handler may.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
}

/// Installs a handler before gosched-fiber installs its own. The handler must receive faults that
/// are not stack overflows, and exits with status 11.
fn with_handler(flags: i32) {
    extern "C" fn handler(_: i32) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(11) }
    }
    install(handler, flags);
    inside(|| read(8));
}

fn overflow(scenario: &str) -> String {
    let output = children::run(scenario);
    let text = children::stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    text
}

/// The line printed if function names cannot be found: malloc's lock is held, or the time limit has
/// passed.
const NO_TRACE: &str = "the functions of the trace cannot be named; the addresses are\n\t0x";

/// Like [`overflow`], but retries until there is a trace. The report has 10 s to find names, which
/// may not be enough on a busy machine.
fn overflow_with_trace(scenario: &str) -> String {
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = overflow(scenario);
        if !text.contains(NO_TRACE) || Instant::now() > deadline {
            return text;
        }
    }
}

/// Checks what every report of an overflow contains.
fn check(text: &str, innermost: &str) {
    let size = Size::from_environment().unwrap().usable();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("runtime: goroutine ")).unwrap();
    assert!(lines[first].contains(&format!("exceeds its stack of {size} bytes")), "{text}");
    assert!(lines[first + 1].contains("GOSCHED_STACK="), "{text}");
    assert!(lines[first + 1].contains("a larger `Builder::stack_size`"), "{text}");
    assert_eq!(lines[first + 2], "fatal error: stack overflow");
    assert_eq!(lines[first + 3], "");
    assert!(lines[first + 4].starts_with("goroutine "), "{text}");
    assert!(lines[first + 4].ends_with(" [running]:"), "{text}");
    assert!(lines[first + 5].contains(innermost), "the innermost frame: {text}");
    let root = lines.iter().rfind(|line| line.ends_with("(...)")).unwrap();
    assert!(root.contains("restart_stack") || root.contains("root"), "the outermost frame: {text}");
}

#[test]
fn an_overflow_is_reported_with_owner_size_remedy_and_trace() {
    for scenario in ["plain", "moved", "reused", "in host"] {
        let text = overflow_with_trace(scenario);
        check(&text, "recurse");
        let elided = text.lines().find(|line| line.ends_with(" frames elided...")).unwrap();
        let elided: usize =
            elided.trim_start_matches("...").split(' ').next().unwrap().parse().unwrap();
        assert!(elided > 100, "{elided}");
        let frames = text.lines().filter(|line| line.ends_with("(...)")).count();
        assert!((100..160).contains(&frames), "50 at each end, and inlined ones: {frames}");
    }
}

#[test]
fn c_code_with_large_frames_hits_the_guard() {
    check(&overflow_with_trace("big frames of C"), "linked_big_frame");
}

/// Two such frames need 260 KB: only the default stack of a release build is smaller.
#[cfg(not(debug_assertions))]
#[test]
fn a_frame_that_extends_past_the_guard_is_an_overflow_if_it_touches_the_guard() {
    check(&overflow_with_trace("huge frames of C"), "linked_huge_frame");
}

#[test]
fn a_signal_with_no_room_for_its_frame_is_an_overflow() {
    let text = overflow_with_trace("in a handler without a stack");
    assert!(text.contains("fatal error: stack overflow"), "{text}");
    assert!(text.contains("raise_deep"), "{text}");
}

#[test]
fn an_overflow_in_malloc_is_reported() {
    let text = overflow("in malloc");
    assert!(text.contains("fatal error: stack overflow"), "{text}");
    // The symbolizer may find malloc's lock held: then the report shows addresses.
    assert!(text.contains("allocate") || text.contains(NO_TRACE), "{text}");
}

/// The report runs on its own stack, so the kernel considers the signal stack free for the next
/// handler.
#[test]
fn a_report_survives_signals_that_use_the_signal_stack() {
    let output = children::run("signals meanwhile");
    let text = children::stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{:?}: {text}", output.status);
    assert!(text.contains("fatal error: stack overflow"), "{text}");
}

#[test]
fn two_overflows_make_one_report() {
    let text = overflow_with_trace("two at once");
    assert_eq!(text.matches("fatal error: stack overflow").count(), 1, "{text}");
    check(&text, "recurse");
}

#[test]
fn the_report_contains_the_owner_name_set_by_the_runtime() {
    let text = overflow_with_trace("named");
    assert!(text.contains(" (worker) exceeds its stack"), "{text}");
    assert!(text.contains(" (worker) [running]:"), "{text}");
}

#[test]
fn a_report_that_hangs_is_cut_short() {
    overflow("report hangs");
}

fn assert_died_of(output: &Output, signal: i32) {
    let text = children::stderr(output);
    assert_eq!(output.status.signal(), Some(signal), "{:?}: {text}", output.status);
    assert!(!text.contains("fatal error"), "{text}");
}

#[test]
fn other_faults_end_the_process_by_sigsegv() {
    for scenario in [
        "a null pointer",
        "an address that cannot exist, near the end",
        "another's guard",
        "sent by kill",
    ] {
        assert_died_of(&children::run(scenario), libc::SIGSEGV);
    }
}

#[test]
fn an_overflow_of_a_std_thread_is_reported_by_std() {
    for (scenario, name) in
        [("a thread of std", "plain thread"), ("the main thread's own", "child")]
    {
        let output = children::run(scenario);
        assert_died_of(&output, libc::SIGABRT);
        let text = children::stderr(&output);
        assert!(text.contains(name) && text.contains("has overflowed its stack"), "{text}");
    }
}

#[test]
fn a_handler_installed_earlier_is_called() {
    for scenario in
        ["a handler was there", "an old-style handler was there", "an open handler was there"]
    {
        let output = children::run(scenario);
        assert_eq!(output.status.code(), Some(11), "{}", children::stderr(&output));
    }
    let output = children::run("a handler for once was there");
    assert_died_of(&output, libc::SIGSEGV);
    let text = children::stderr(&output);
    assert_eq!(text.matches("called once").count(), 1, "{text}");
    let output = children::run("ignored before");
    assert_eq!(output.status.code(), Some(12), "{}", children::stderr(&output));
}

#[test]
fn the_smallest_stack_is_enough_for_a_panic_with_a_backtrace() {
    let scenario = "a panic with a backtrace on the smallest stack";
    let output = children::command(scenario).env("RUST_BACKTRACE", "full").output().unwrap();
    let text = children::stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("small") && text.contains("stack backtrace:"), "{text}");
}
