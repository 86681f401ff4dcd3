//! Code inside a goroutine cannot distinguish the goroutine from a thread. This property makes `go`
//! a safe function.
//!
//! The module [`user`] does what programs do, and forbids `unsafe`. `ci/matrix` runs the suite in
//! debug, release and fat LTO builds, with libstd as a shared library and with libc linked
//! statically, each with both ways to write the thread pointer.

use gosched_fiber::carrier::{Role, role};
use gosched_fiber::{Routine, Size, Status, host, suspend};
use gosched_tests::runner::{Job, run, run_all, run_with};
use gosched_tests::signal_storm::SignalStorm;
use gosched_tests::wait::LIMIT;
use gosched_tests::{c_thread, children, linked};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const THREADS: usize = 4;
const ROUTINES: usize = 64;
const MOVES: usize = 1_000_000;

fn size() -> Size {
    Size::from_environment().unwrap()
}

/// Safe code only, as users write it.
#[forbid(unsafe_code)]
mod user {
    use super::{Arc, linked, suspend};
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;
    use std::io::ErrorKind;
    use std::rc::Rc;
    use std::sync::Mutex;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
        static LAZY: RefCell<Vec<u64>> = RefCell::new(vec![7]);
        static SHARED: Rc<Cell<u64>> = Rc::new(Cell::new(0));
    }

    /// Suspends `steps` times, and checks after each that all state of a thread is unchanged.
    pub(crate) fn thread_state_stays(number: usize, steps: usize) {
        let address = COUNT.with(|count| std::ptr::from_ref(count) as usize);
        let id = std::thread::current().id();
        assert_eq!(COUNT.get(), 0, "fresh");
        // Two different errors, so that consecutive goroutines differ.
        let (path, kind) = match number % 2 {
            0 => ("/nonexistent", ErrorKind::NotFound),
            _ => ("/dev/null/below", ErrorKind::NotADirectory),
        };
        for step in 0..steps as u64 {
            COUNT.set(COUNT.get() + 1);
            LAZY.with(|lazy| lazy.borrow_mut()[0] += 1);
            let kept = SHARED.with(Rc::clone);
            kept.set(kept.get() + 1);
            let failing = step % 64 == 0;
            if failing {
                drop(std::fs::File::open(path));
            }
            suspend();
            if failing {
                assert_eq!(std::io::Error::last_os_error().kind(), kind, "errno");
            }
            assert_eq!(COUNT.get(), step + 1, "value");
            assert_eq!(COUNT.with(|count| std::ptr::from_ref(count) as usize), address, "address");
            assert_eq!(kept.get(), step + 1, "shared value");
            drop(kept);
            if step % 256 == 0 {
                assert_eq!(std::thread::current().id(), id, "thread id");
                LAZY.with(|lazy| {
                    let borrowed = lazy.borrow_mut();
                    suspend();
                    assert_eq!(borrowed[0], 7 + step + 1, "lazy value");
                });
            }
        }
        assert_eq!(SHARED.with(Rc::strong_count), 1, "references kept");
    }

    pub(crate) fn print_and_hash(number: usize) {
        for step in 0..100 {
            let mut map = HashMap::new();
            map.insert(step, format!("{number} {step} {:?}", step as f64 * 1.5));
            suspend();
            println!("{}", map[&step]);
            eprint!("");
            suspend();
            assert_eq!(map.len(), 1);
        }
    }

    /// Takes the guard on one thread and may drop it on another.
    pub(crate) fn count_under_a_mutex(counter: &Arc<Mutex<u64>>) {
        for _ in 0..200 {
            let Ok(mut guard) = counter.try_lock() else {
                suspend();
                continue;
            };
            let before = *guard;
            suspend();
            *guard = before + 1;
            drop(guard);
            COUNT.set(COUNT.get() + 1);
        }
    }

    pub(crate) fn counted() -> u64 {
        COUNT.get()
    }

    /// A value whose destructor suspends during unwinding.
    pub(crate) struct SuspendInDrop;

    impl Drop for SuspendInDrop {
        fn drop(&mut self) {
            for _ in 0..20 {
                assert!(std::thread::panicking());
                suspend();
                assert!(std::thread::panicking());
            }
        }
    }

    pub(crate) fn own_locale(number: usize) {
        assert_eq!(linked::has_locale(), 0, "fresh");
        assert_eq!(linked::is_utf8(), 0, "fresh");
        let own = number.is_multiple_of(2);
        if own {
            assert_eq!(linked::use_locale(), 1);
        }
        for _ in 0..50 {
            suspend();
            assert_eq!(linked::has_locale(), i32::from(own));
            assert_eq!(linked::is_utf8(), i32::from(own));
            assert_eq!(linked::parse("1.5e3"), 1500.0);
            assert_eq!(linked::is_alpha(i32::from(b'x')), 1);
            assert_eq!(linked::is_alpha(i32::from(b'1')), 0);
        }
    }
}

#[test]
fn thread_state_survives_a_million_moves_in_a_storm_of_signals() {
    let storm = SignalStorm::start();
    let before = SignalStorm::handled();
    // More steps than moves, because a routine sometimes continues on the same thread.
    let steps = MOVES / ROUTINES * 11 / 10;
    let deadline = Instant::now() + LIMIT;
    let (mut moves, mut signals) = (0, 0);
    while moves < MOVES as u64 || signals <= 1000 {
        assert!(Instant::now() < deadline, "{moves} moves and {signals} signals are no storm");
        let job = |n| Box::new(move || user::thread_state_stays(n, steps)) as Job;
        let report =
            run_with(THREADS, (0..ROUTINES).map(job).collect(), || storm.add_current_thread());
        assert!(report.panics.is_empty(), "{:?}", report.panics);
        moves += report.moves;
        signals = SignalStorm::handled() - before;
    }
}

#[test]
fn a_reused_slot_starts_as_a_new_thread() {
    let ids = Arc::new(Mutex::new(HashSet::new()));
    let seen = ids.clone();
    run_all(THREADS, 2000, move |number| {
        assert_eq!(linked::errno(), 0);
        user::thread_state_stays(number, 3);
        assert_eq!(linked::count(), 6, "a C thread-local starts at 5");
        linked::set_errno(99);
        assert!(seen.lock().unwrap().insert(std::thread::current().id()), "an id seen before");
    });
    assert_eq!(ids.lock().unwrap().len(), 2000);
}

#[test]
fn output_hash_maps_and_locks_work_across_moves() {
    run_all(THREADS, 20, user::print_and_hash);
    let counter = Arc::new(Mutex::new(0));
    let counted = Arc::new(AtomicUsize::new(0));
    run_all(THREADS, 16, {
        let (counter, counted) = (counter.clone(), counted.clone());
        move |_| {
            user::count_under_a_mutex(&counter);
            counted.fetch_add(user::counted() as usize, Ordering::Relaxed);
        }
    });
    assert_eq!(*counter.lock().unwrap() as usize, counted.load(Ordering::Relaxed));
    assert!(counted.load(Ordering::Relaxed) > 0);
}

#[test]
fn std_channels_and_parking_work_across_moves() {
    // These routines block their threads, so there are as many threads as routines.
    let (to, from) = std::sync::mpsc::channel::<u64>();
    let (back, result) = std::sync::mpsc::channel::<u64>();
    let jobs: Vec<Job> = vec![
        Box::new(move || {
            for number in 0..2000 {
                to.send(number).unwrap();
                if number % 7 == 0 {
                    suspend();
                }
            }
        }),
        Box::new(move || {
            let mut sum = 0;
            while let Ok(number) = from.recv() {
                sum += number;
                if number % 11 == 0 {
                    suspend();
                }
            }
            std::thread::current().unpark();
            std::thread::park();
            back.send(sum).unwrap();
        }),
    ];
    let report = run(2, jobs);
    assert!(report.panics.is_empty(), "{:?}", report.panics);
    assert_eq!(result.recv().unwrap(), 1999 * 2000 / 2);
}

#[test]
fn each_goroutine_has_its_own_panicking_flag_even_while_it_unwinds() {
    let panicking: Vec<Job> = (0..8)
        .map(|n| {
            Box::new(move || {
                let _suspends = user::SuspendInDrop;
                assert!(n > 100, "on purpose {n}");
            }) as Job
        })
        .collect();
    let calm = (0..8).map(|_| {
        Box::new(|| {
            for _ in 0..50 {
                suspend();
                assert!(!std::thread::panicking());
                assert!(std::panic::catch_unwind(|| panic!("caught at once")).is_err());
            }
        }) as Job
    });
    let report = run(THREADS, panicking.into_iter().chain(calm).collect());
    let mut panics = report.panics;
    panics.sort();
    let expected: Vec<String> = (0..8).map(|n| format!("on purpose {n}")).collect();
    assert_eq!(panics, expected);
}

#[test]
fn c_code_in_each_goroutine_has_its_own_locale_errno_and_rounding_mode() {
    // Two rounds, so that slots are reused.
    run_all(THREADS, 64, user::own_locale);
    run_all(THREADS, 64, user::own_locale);
    run_all(THREADS, 64, |number| {
        for step in 0..50 {
            linked::set_errno(number as i32 * 1000 + step);
            suspend();
            assert_eq!(linked::errno(), number as i32 * 1000 + step);
        }
    });
    run_all(THREADS, 64, |number| {
        let down = number % 2 == 1;
        let nearest = linked::third();
        linked::round(i32::from(down));
        let expected = linked::third();
        assert!(!down || expected <= nearest);
        let x87 = linked::x87_rounds_down();
        for _ in 0..50 {
            suspend();
            assert_eq!(linked::third(), expected, "rounding of number {number}");
            assert_eq!(linked::x87_rounds_down(), x87, "x87 rounding of number {number}");
        }
    });
    run_all(THREADS, 16, |number| {
        linked::clear_inexact();
        if number % 2 == 0 {
            linked::third();
        }
        for _ in 0..50 {
            suspend();
            assert_eq!(linked::inexact(), i32::from(number % 2 == 0), "sticky flags");
        }
    });
}

#[test]
fn rounding_modes_really_differ() {
    // The test above relies on this: different modes give different results, in SSE and on the x87
    // unit.
    let routine = |mode| {
        let mut routine = Routine::new(size(), move || {
            linked::round(mode);
            (linked::third(), linked::x87_rounds_down())
        });
        assert_eq!(routine.resume(), Ok(Status::Finished));
        routine.into_result().unwrap().unwrap()
    };
    let (nearest, down, up) = (routine(0), routine(1), routine(2));
    assert!(down.0 < up.0 && nearest.0 <= up.0, "{nearest:?} {down:?} {up:?}");
    assert_ne!(down.1, up.1);
}

#[test]
fn a_thread_started_by_a_goroutine_is_foreign() {
    let storm = Arc::new(SignalStorm::start());
    let jobs = (0..16).map(|_| {
        let storm = storm.clone();
        Box::new(move || {
            for _ in 0..10 {
                assert_eq!(role(), Role::Goroutine);
                let storm = storm.clone();
                let child = std::thread::spawn(move || {
                    storm.add_current_thread();
                    assert_eq!(role(), Role::Foreign);
                    let memory: Vec<String> = (0..100).map(|n| n.to_string()).collect();
                    assert_eq!(host(role), Role::Foreign);
                    assert_eq!(linked::count(), 6);
                    (std::thread::current().id(), memory.len())
                });
                suspend();
                let (id, len) = child.join().unwrap();
                assert_ne!(id, std::thread::current().id());
                assert_eq!(len, 100);
            }
        }) as Job
    });
    let report = run(THREADS, jobs.collect());
    assert!(report.panics.is_empty(), "{:?}", report.panics);
}

#[test]
fn goroutines_can_start_processes_and_look_up_names() {
    run_all(2, 6, |number| {
        for _ in 0..3 {
            let output = std::process::Command::new("echo").arg(number.to_string()).output();
            suspend();
            assert_eq!(output.unwrap().stdout, format!("{number}\n").into_bytes());
        }
    });
    run_all(2, 4, |_| {
        use std::net::ToSocketAddrs;
        for _ in 0..3 {
            let addresses: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
            suspend();
            assert!(addresses.iter().all(|address| address.ip().is_loopback()));
            assert!(!addresses.is_empty());
            assert!(("no-such-host.invalid", 80).to_socket_addrs().is_err());
        }
    });
}

#[test]
fn a_recursive_mutex_is_owned_by_a_goroutine() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    run_all(THREADS, 16, |_| {
        for _ in 0..100 {
            while linked::try_lock() == 0 {
                suspend();
            }
            assert_eq!(linked::try_lock(), 1, "its owner may lock it again");
            assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two owners");
            suspend();
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(linked::unlock(), 1);
            assert_eq!(linked::unlock(), 1);
        }
    });
}

#[test]
fn destructors_of_thread_locals_and_keys_run_once_at_the_end() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            suspend(); // destructors may suspend, too
            DROPS.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<Counted>> = const { std::cell::RefCell::new(vec![]) };
    }
    linked::make_key();
    run_all(THREADS, 100, |number| {
        assert_eq!(linked::key(), 0, "a key is unset in a new thread");
        linked::set_key(3);
        KEPT.with(|kept| kept.borrow_mut().extend([Counted, Counted]));
        for _ in 0..10 {
            suspend();
            assert_eq!(linked::key(), 3);
        }
        assert!(DROPS.load(Ordering::SeqCst) <= 2 * 99, "{number}");
    });
    assert_eq!(DROPS.load(Ordering::SeqCst), 200);
    // Each goroutine adds 3 + 2 + 1: the destructor sets the key again, to the next lower value.
    assert_eq!(linked::destroyed(), 600);
}

#[test]
fn libc_reports_the_stack_affinity_clock_and_cpu_of_a_goroutine() {
    run_all(THREADS, 16, |_| {
        for _ in 0..10 {
            assert_eq!(linked::stack_is_known(), 1);
            assert_eq!(linked::affinity_is_known(), 1);
            assert_eq!(linked::cpu_clock_is_known(), 1);
            suspend();
        }
    });
    // A thread bound to a CPU other than 0 carries a goroutine that reads its CPU number. A
    // restartable-sequence area that the kernel does not write would contain 0.
    // SAFETY: all-zero is a valid set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: valid for writes.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) }, 0);
    // SAFETY: numbers inside the set.
    let is_allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &allowed) };
    let Some(cpu) = (1..libc::CPU_SETSIZE as usize).find(is_allowed) else {
        return eprintln!("skipped: CPU 0 is the only one");
    };
    std::thread::spawn(move || {
        // SAFETY: all-zero is a valid set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the CPU is inside the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        // SAFETY: binds this thread; the set is valid.
        let bound = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
        assert_eq!(bound, 0);
        let mut routine = Routine::new(size(), linked::cpu);
        routine.resume().unwrap();
        // -1 with ENOSYS would also be correct, but libc falls back to a system call.
        assert_eq!(routine.into_result().unwrap().unwrap(), cpu as i32);
    })
    .join()
    .unwrap();
}

#[test]
fn host_runs_as_the_carrying_thread() {
    thread_local! {
        static MARK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    std::thread::spawn(|| {
        MARK.set(42);
        let thread = std::thread::current().id();
        let mut routine = Routine::new(size(), move || {
            MARK.set(1);
            assert_ne!(std::thread::current().id(), thread);
            let seen = host(|| {
                assert_eq!(role(), Role::Foreign);
                assert_eq!(std::thread::current().id(), thread);
                assert_eq!(host(|| MARK.get()), 42, "nested");
                MARK.set(43);
                MARK.get()
            });
            assert_eq!(seen, 43);
            assert_eq!(MARK.get(), 1);
            assert_eq!(role(), Role::Goroutine);
            let payload = std::panic::catch_unwind(|| host(|| panic!("through"))).unwrap_err();
            assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "through");
            assert!(!std::thread::panicking());
            let suspends = std::panic::catch_unwind(|| host(suspend)).unwrap_err();
            let text = suspends.downcast_ref::<&str>().unwrap();
            assert!(text.contains("not inside `host`"), "{text}");
            // The thread and the goroutine have separate values of errno.
            linked::set_errno(7);
            host(|| linked::set_errno(8));
            assert_eq!(linked::errno(), 7);
        });
        routine.resume().unwrap();
        routine.into_result().unwrap().unwrap();
        assert_eq!(MARK.get(), 43);
        assert_eq!(role(), Role::Carrier);
    })
    .join()
    .unwrap();
}

#[test]
fn routines_can_run_routines() {
    run_all(THREADS, 8, |_| {
        for round in 0..20 {
            let mut inner = Routine::new(size(), move || {
                let id = std::thread::current().id();
                suspend();
                assert_eq!(id, std::thread::current().id());
                round
            });
            assert_eq!(inner.resume(), Ok(Status::Suspended));
            suspend();
            assert_eq!(inner.resume(), Ok(Status::Finished));
            assert_eq!(inner.into_result().unwrap().unwrap(), round);
        }
    });
}

#[test]
fn the_whole_stack_of_a_parked_goroutine_can_be_walked_from_another_thread() {
    #[inline(never)]
    fn innermost() -> u64 {
        suspend();
        std::hint::black_box(1)
    }
    #[inline(never)]
    fn middle(depth: u32) -> u64 {
        let below = if depth == 0 { innermost() } else { middle(depth - 1) };
        std::hint::black_box(below + 1)
    }
    let mut routine = Routine::new(size(), || middle(5));
    routine.resume().unwrap();
    let (routine, names) = std::thread::spawn(move || {
        let names = names(&routine.backtrace());
        (routine, names)
    })
    .join()
    .unwrap();
    let at = |name: &str| names.iter().position(|found| found.contains(name));
    assert!(at("innermost").unwrap() < at("middle").unwrap(), "{names:#?}");
    assert_eq!(names.iter().filter(|name| name.contains("middle")).count(), 6, "{names:#?}");
    assert!(is_outermost_frame(names.last().unwrap()), "{names:#?}");
    // Walking the stack has not changed the routine.
    let mut routine = routine;
    assert_eq!(routine.resume(), Ok(Status::Finished));
    assert_eq!(routine.into_result().unwrap().unwrap(), 7);
}

/// Executes switches one instruction at a time, and walks the stack after each instruction.
#[test]
fn frames_can_be_walked_from_every_instruction_of_a_switch() {
    let output = children::run("single steps");
    let text = children::stderr(&output);
    assert!(output.status.success(), "{text}");
    let steps = text.lines().find_map(|line| line.strip_prefix("walked at ")).unwrap();
    assert!(steps.parse::<usize>().unwrap() > 100, "{text}");
}

static STEPS: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn outermost_of_the_thread(routine: &mut Routine<()>) {
    for _ in 0..3 {
        routine.resume().unwrap();
    }
    std::hint::black_box(());
}

#[inline(never)]
fn outermost_of_the_routine() {
    for _ in 0..2 {
        suspend();
    }
    assert_eq!(host(|| 5), 5);
    std::hint::black_box(());
}

/// # Safety
/// - **callback**: only the kernel calls it, as a signal handler.
unsafe extern "C" fn on_step(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: callback — the kernel passes a valid context.
    let registers = unsafe { &*context.cast::<libc::ucontext_t>() }.uc_mcontext.gregs;
    let pc = registers[libc::REG_RIP as usize] as usize;
    // Both functions are shorter than 130 bytes; the code after them has unwind tables, too.
    let functions = [
        gosched_fiber::arch::switch_context as *const () as usize,
        gosched_fiber::arch::call_host as *const () as usize,
    ];
    if !functions.iter().any(|&start| (start..start + 130).contains(&pc)) {
        return;
    }
    let ends = [
        outermost_of_the_thread as *const () as usize,
        outermost_of_the_routine as *const () as usize,
        // `resume` is on the stack before the routine's own code starts and after it has returned.
        gosched_fiber::Routine::<()>::resume as *const () as usize,
    ];
    let mut found = false;
    let mut frames = 0;
    // SAFETY: walks only the frames of this thread.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            frames += usize::from(!frame.ip().is_null());
            found |= ends.contains(&(frame.symbol_address() as usize));
            true
        });
    }
    STEPS.fetch_add(1, Ordering::Relaxed);
    // During the switch that ends a routine no user frame is on the stack, only a few frames up to
    // its root.
    if !found && frames < 4 {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

fn walk_at_every_step() {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_step as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler walks frames and counts.
    unsafe { libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()) };
    let mut routine = Routine::new(size(), outermost_of_the_routine);
    // Loads what the walk needs before the first step.
    drop(std::backtrace::Backtrace::force_capture());
    // SAFETY: sets the trap flag, which raises a signal after each instruction from here on.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    outermost_of_the_thread(&mut routine);
    // SAFETY: clears the trap flag.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
    eprintln!("walked at {}", STEPS.load(Ordering::Relaxed));
    assert_eq!(LOST.load(Ordering::Relaxed), 0, "instructions that cannot be walked from");
}

#[test]
fn a_backtrace_taken_in_a_goroutine_is_complete() {
    #[inline(never)]
    fn deep(depth: u32) -> String {
        if depth == 0 {
            return std::backtrace::Backtrace::force_capture().to_string();
        }
        let text = deep(depth - 1);
        std::hint::black_box(text)
    }
    // Twice: on a new stack, and on the same stack reused.
    for _ in 0..2 {
        let mut routine = Routine::new(size(), || deep(3));
        routine.resume().unwrap();
        let text = routine.into_result().unwrap().unwrap();
        assert_eq!(text.lines().filter(|line| line.ends_with("deep")).count(), 4, "{text}");
        let is_location = |line: &&str| line.trim_start().starts_with("at ");
        let outermost = text.lines().rfind(|line| !is_location(line)).unwrap();
        assert!(is_outermost_frame(outermost), "the outermost frame: {text}");
    }
}

/// Whether a goroutine's stack can begin in the function `name`: a new stack begins in
/// `restart_stack`, a reused stack in `root`.
fn is_outermost_frame(name: &str) -> bool {
    ["restart_stack", "root"].iter().any(|end| name.ends_with(&format!("arch::imp::switch::{end}")))
}

fn names(addresses: &[usize]) -> Vec<String> {
    let mut names = Vec::new();
    for &address in addresses {
        backtrace::resolve((address - 1) as *mut _, |symbol| {
            names.push(symbol.name().map(|name| format!("{name:#}")).unwrap_or_default());
        });
    }
    names
}

/// Each scenario forks in a process of its own. In this process, threads of other tests may hold
/// locks of std, and these locks would stay locked in the child.
#[test]
fn forked_children_work() {
    for scenario in FORKS.map(|(name, _)| name) {
        let output = children::run(scenario);
        let text = children::stderr(&output);
        assert!(output.status.success(), "{scenario}: {:?} {text}", output.status);
    }
}

const FORKS: [(&str, fn()); 5] = [
    ("fork during the first probe", a_fork_during_the_first_probe_finds_it_done),
    ("fork inside", a_fork_inside_leaves_a_child_that_works),
    ("fork, then back", a_goroutine_that_forked_cannot_go_back_to_its_thread_in_the_child),
    ("fork, then ids", ids_can_be_changed_by_a_thread_of_a_child_that_a_goroutine_forked),
    ("fork by a thread", a_child_forked_by_a_thread_can_run_goroutines),
];

/// In a process that has not been probed yet, one thread probes while another one forks.
fn a_fork_during_the_first_probe_finds_it_done() {
    let probing = std::thread::spawn(|| gosched_fiber::support().unwrap());
    for _ in 0..200 {
        // SAFETY: the child uses only gosched-fiber and what is allowed after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: sets a time limit for the child.
            unsafe { libc::alarm(LIMIT.as_secs() as u32) };
            let right = gosched_fiber::support().is_ok();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if right { 9 } else { 1 }) };
        }
        assert_eq!(wait_for(child), 9);
    }
    probing.join().unwrap();
}

fn a_fork_inside_leaves_a_child_that_works() {
    run_all(2, 4, |_| {
        for _ in 0..5 {
            // SAFETY: the child uses only what is allowed after a fork of a program with threads,
            // and what gosched-fiber promises: allocation, threads, another fork, exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                in_forked_child();
            }
            suspend();
            assert_eq!(wait_for(child), 9, "exit status of the child");
        }
    });
}

fn wait_for(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process; `status` is valid for writes.
    unsafe { libc::waitpid(child, &mut status, 0) };
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status }
}

fn in_forked_child() -> ! {
    let memory = vec![1u8; 100_000];
    let sum: usize = host(|| memory.iter().map(|&byte| usize::from(byte)).sum());
    let thread = c_thread::run(linked::count);
    // SAFETY: as in the caller.
    let grandchild = unsafe { libc::fork() };
    if grandchild == 0 {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(3) };
    }
    let right = sum == 100_000 && thread == 6 && wait_for(grandchild) == 3;
    // SAFETY: as above.
    unsafe { libc::_exit(if right { 9 } else { 1 }) }
}

fn a_goroutine_that_forked_cannot_go_back_to_its_thread_in_the_child() {
    // Only one goroutine: the child panics, and would hang if another goroutine's panic held std's
    // lock during the fork.
    run_all(2, 1, |_| {
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // libc may give the stack of the carrier to another thread here.
            c_thread::run(|| vec![1u8; 1000]);
            let payload = std::panic::catch_unwind(suspend).unwrap_err();
            let resumed = std::panic::catch_unwind(|| Routine::new(size(), || ()).resume());
            let text = payload.downcast_ref::<String>().cloned().unwrap_or_default();
            let right = text.contains("forked child") && resumed.is_err();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if right { 9 } else { 1 }) };
        }
        assert_eq!(wait_for(child), 9, "suspend in the child");
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            c_thread::run(|| vec![1u8; 1000]);
            return; // ends the last thread, and thereby the process
        }
        assert_eq!(wait_for(child), 0, "the goroutine's end in the child");
    });
}

fn ids_can_be_changed_by_a_thread_of_a_child_that_a_goroutine_forked() {
    run_all(2, 2, |_| {
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: sets a time limit for the child.
            unsafe { libc::alarm(LIMIT.as_secs() as u32) };
            c_thread::run(set_group);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(9) };
        }
        assert_eq!(wait_for(child), 9);
    });
}

fn a_child_forked_by_a_thread_can_run_goroutines() {
    let mut waiting = Routine::new(size(), || {
        suspend();
        host(|| 5)
    });
    waiting.resume().unwrap();
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let old = waiting.resume() == Ok(Status::Finished);
        let mut new = Routine::new(size(), || {
            suspend();
            host(|| 6)
        });
        let new = new.resume() == Ok(Status::Suspended) && new.resume() == Ok(Status::Finished);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if old && new { 9 } else { 1 }) };
    }
    assert_eq!(wait_for(child), 9);
    waiting.resume().unwrap();
    assert_eq!(waiting.into_result().unwrap().unwrap(), 5);
}

#[test]
fn a_routine_can_be_resumed_inside_host() {
    let mut outer = Routine::new(size(), || {
        for round in 0..5 {
            let inner = host(|| {
                let mut inner = Routine::new(size(), move || {
                    suspend();
                    host(role) == Role::Foreign && round < 5
                });
                assert_eq!(inner.resume(), Ok(Status::Suspended));
                assert_eq!(role(), Role::Foreign);
                assert_eq!(inner.resume(), Ok(Status::Finished));
                assert_eq!(role(), Role::Foreign, "after a routine that called `host`");
                inner.into_result().unwrap().unwrap()
            });
            assert!(inner);
            assert_eq!(role(), Role::Goroutine);
            suspend();
            assert_eq!(host(|| 3), 3);
        }
    });
    while outer.resume().unwrap() == Status::Suspended {
        assert_eq!(role(), Role::Carrier);
    }
    outer.into_result().unwrap().unwrap();
}

#[test]
fn resume_fails_on_a_thread_that_is_ending() {
    struct ResumeInDrop(Arc<Mutex<Option<Result<Status, gosched_fiber::StackError>>>>);
    impl Drop for ResumeInDrop {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Routine::new(size(), || ()).resume());
        }
    }
    thread_local! {
        static LATE: std::cell::RefCell<Option<ResumeInDrop>> =
            const { std::cell::RefCell::new(None) };
    }
    let seen = Arc::new(Mutex::new(None));
    let told = seen.clone();
    std::thread::spawn(move || {
        // Registered first, so destroyed last.
        LATE.with(|late| *late.borrow_mut() = Some(ResumeInDrop(told)));
        Routine::new(size(), || ()).resume().unwrap();
    })
    .join()
    .unwrap();
    let seen = seen.lock().unwrap().take().unwrap();
    assert_eq!(seen, Err(gosched_fiber::StackError::ThreadEnds));
}

#[test]
fn each_goroutine_starts_with_the_c_state_of_a_new_thread() {
    linked::make_stubborn();
    for _ in 0..3 {
        run_all(2, 8, |_| {
            assert_eq!(linked::disable_cancel(), 1, "cancellation is on in a new thread");
            assert_eq!(linked::set_stubborn(), 0, "keys are unset in a new thread");
            assert_eq!(linked::resolver_is_own(), 1);
            assert_eq!(linked::resolver_ndots(), 1, "the resolver's first setting");
            suspend();
        });
    }
    let before = linked::second_calls();
    run_all(2, 8, |_| linked::outlive_key());
    assert_eq!(linked::second_calls(), before, "a key got another's value");
}

#[test]
fn an_exit_handler_registered_in_a_goroutine_runs_when_the_process_ends() {
    let output = children::run("at exit");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("at exit"), "{output:?}");
}

fn set_group() {
    // SAFETY: getgid has no precondition.
    let group = unsafe { libc::getgid() };
    // SAFETY: sets the group id to its current value.
    assert_eq!(unsafe { libc::setgid(group) }, 0);
}

#[test]
fn changing_the_group_id_reaches_threads_that_carry_goroutines() {
    // libc signals every thread, and waits until each has acknowledged it in its control block. A
    // carrier must not acknowledge it in the control block of its goroutine.
    let outside = std::thread::spawn(|| {
        for _ in 0..20 {
            set_group();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    run_all(2, 4, |number| {
        let until = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while std::time::Instant::now() < until {
            if number == 0 {
                set_group();
            }
            if number < 3 {
                suspend();
            }
        }
    });
    outside.join().unwrap();
}

/// Without identities, the same program uses thread-locals of other threads. An unoptimised build
/// does not show this, because it computes the address on each access.
#[cfg(not(debug_assertions))]
#[test]
fn thread_locals_go_stale_without_an_identity_and_never_with_one() {
    thread_local! {
        static MINE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    #[inline(never)]
    fn address() -> usize {
        MINE.with(|mine| std::ptr::from_ref(mine) as usize)
    }
    /// Returns how often the address in use is not that of the current thread's variable, after a
    /// move.
    #[inline(never)]
    fn stale(moves: usize) -> usize {
        let mut stale = 0;
        for _ in 0..moves {
            MINE.with(|mine| mine.set(mine.get() + 1));
            suspend();
            let used = MINE.with(|mine| std::ptr::from_ref(mine) as usize);
            stale += usize::from(std::hint::black_box(used) != address());
        }
        stale
    }
    // SAFETY: no thread-locals — broken on purpose: the test only compares addresses, and writes
    // counts to the thread-locals of two threads that both live until the end.
    let ill = unsafe { Routine::without_identity(size(), || stale(200)) };
    assert!(to_and_fro(ill) > 0, "the disease shows");
    assert_eq!(to_and_fro(Routine::new(size(), || stale(200))), 0);
}

/// Runs a routine on two threads alternately.
#[cfg(not(debug_assertions))]
fn to_and_fro<T: Send + 'static>(routine: Routine<T>) -> T {
    use std::sync::mpsc::channel;
    let (to, from) = (channel::<Routine<T>>(), channel::<Routine<T>>());
    let work = |from: std::sync::mpsc::Receiver<Routine<T>>,
                to: std::sync::mpsc::Sender<Routine<T>>| {
        move || {
            let mut result = None;
            for mut routine in from {
                if routine.resume().unwrap() == Status::Finished {
                    result = routine.into_result();
                    break;
                }
                if to.send(routine).is_err() {
                    break;
                }
            }
            result.map(Result::unwrap)
        }
    };
    to.0.send(routine).unwrap();
    let one = std::thread::spawn(work(to.1, from.0));
    let two = std::thread::spawn(work(from.1, to.0));
    one.join().unwrap().or(two.join().unwrap()).unwrap()
}

#[test]
fn a_fatal_signal_raised_in_a_goroutine_ends_the_process() {
    for (scenario, signal) in [("abort", libc::SIGABRT), ("raise", libc::SIGTERM)] {
        use std::os::unix::process::ExitStatusExt;
        let output = children::run(scenario);
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
    }
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else {
        return;
    };
    match scenario.as_str() {
        "single steps" => walk_at_every_step(),
        "at exit" => inside(|| assert_eq!(linked::at_exit(), 0)),
        "abort" => inside(|| std::process::abort()),
        // SAFETY: ends the process.
        "raise" => inside(|| unsafe { assert_eq!(libc::raise(libc::SIGTERM), 0) }),
        other => match FORKS.iter().find(|(name, _)| *name == other) {
            Some((_, scenario)) => scenario(),
            None => panic!("no scenario {other}"),
        },
    }
}

fn inside(f: fn()) {
    let mut routine = Routine::new(size(), f);
    routine.resume().unwrap();
}
