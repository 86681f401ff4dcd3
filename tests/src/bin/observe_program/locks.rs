//! Goroutines that block their threads in locks of the program, of the standard library and of the
//! C library: a program that gets SIGQUIT after it has printed `ready`.

use gosched::go;
use gosched_tests::wait::until;
use std::hint::black_box;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::time::{Duration, Instant};

/// Number of bystanders that have begun.
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// Whether all bystanders have begun.
static ALL: AtomicBool = AtomicBool::new(false);
/// Incremented by each bystander before it takes its lock, and again when it is past the lock.
static AT_THE_LOCK: AtomicUsize = AtomicUsize::new(0);

static CHANGES: AtomicUsize = AtomicUsize::new(0);

static MUTEX: Mutex<()> = Mutex::new(());
static RWLOCK: RwLock<()> = RwLock::new(());

pub(crate) fn program() -> ExitCode {
    main_waits()
}

/// The third argument names the lock, the fourth is the number of bystanders at that lock.
#[gosched::main(alloc = off)]
fn main_waits() {
    let argument = |at| std::env::args().nth(at).unwrap_or_default();
    let (kind, count): (String, usize) = (argument(3), argument(4).parse().unwrap());
    let mut out = std::io::stdout().lock();
    let _held = (MUTEX.lock(), RWLOCK.write(), std::io::stderr().lock());
    for nth in 0..count {
        let kind = kind.clone();
        go(move || bystander(&kind, nth));
    }
    until("all have started", || STARTED.load(SeqCst) == count);
    make_threads();
    ALL.store(true, SeqCst);
    until("they are at their locks", || AT_THE_LOCK.load(SeqCst) >= count);
    if kind == "environment" {
        // Long enough for the thread maker to read the CPU limit, which it does once a second.
        until("it was changed often", || CHANGES.load(SeqCst) > 10_000);
    }
    out.write_all(b"ready\n").unwrap();
    out.flush().unwrap();
    let _ = gosched::io::stdin().read(&mut [0]);
}

/// Creates the threads that the Ps need later: once a goroutine stays inside malloc, no thread can
/// be created.
fn make_threads() {
    let count = 2 * gosched::runtime::procs();
    let all_block = Arc::new(Barrier::new(count));
    let block = |_| {
        let all_block = all_block.clone();
        go(move || gosched::blocking_now(|| all_block.wait()))
    };
    let handles: Vec<_> = (0..count).map(block).collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

fn bystander(kind: &str, nth: usize) {
    STARTED.fetch_add(1, SeqCst);
    while !ALL.load(SeqCst) {
        gosched::time::sleep(Duration::from_millis(1));
    }
    at_the_lock(kind, nth);
}

#[inline(never)]
fn at_the_lock(kind: &str, nth: usize) {
    AT_THE_LOCK.fetch_add(1, SeqCst);
    match (kind, nth % 4) {
        ("held", 0) => drop(black_box(MUTEX.lock())),
        ("held", 1) => drop(black_box(RWLOCK.read())),
        ("held", 2) => println!("never"),
        ("held", _) => eprintln!("never"),
        ("environment", _) => changes_the_environment(),
        ("malloc", _) => allocates_in_c(nth),
        ("loader", _) => holds_the_list_of_libraries(),
        ("allocator", _) if nth == 0 => stays_in_malloc(),
        ("allocator", 1) => works_a_little(),
        ("allocator", _) => gosched::time::sleep(Duration::from_secs(3600)),
        (other, _) => panic!("no lock {other}"),
    }
    // Prevents a tail call, which would remove this frame.
    AT_THE_LOCK.fetch_add(1, SeqCst);
}

/// Takes the lock of the environment all the time, so that a reader waits long.
fn changes_the_environment() {
    let value = "x".repeat(1 << 20);
    loop {
        // SAFETY: only std's functions access the environment meanwhile, and they use a lock.
        unsafe { std::env::set_var("GOSCHED_TEST", &value) };
        CHANGES.fetch_add(1, SeqCst);
    }
}

/// Allocates blocks of sizes that thread caches do not hold. Sooner or later the goroutine is
/// preempted inside malloc.
fn allocates_in_c(seed: usize) {
    let (mut blocks, mut random) = ([std::ptr::null_mut(); 20], seed);
    loop {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = &mut blocks[(random >> 20) % 20];
        // SAFETY: null, or a block from below that was not freed.
        unsafe { libc::free(*block) };
        // SAFETY: malloc has no precondition.
        *block = unsafe { libc::malloc(2000 + (random >> 33) % 60_000) };
    }
}

/// Blocks while it holds the loader's lock on the list of libraries.
fn holds_the_list_of_libraries() {
    /// Blocks forever.
    ///
    /// # Safety
    /// - **callback**: only `dl_iterate_phdr` calls this function.
    unsafe extern "C" fn wait(_: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> i32 {
        loop {
            // SAFETY: pause has no precondition.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: callback — `dl_iterate_phdr` calls it.
    unsafe { libc::dl_iterate_phdr(Some(wait), std::ptr::null_mut()) };
}

/// Uses about a hundredth of a CPU, without allocating. The thread that received the signal makes
/// progress then, but not with the report.
fn works_a_little() {
    loop {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        gosched::time::sleep(Duration::from_millis(100));
    }
}

/// Calls `malloc` of `c/stuck.c` with the size for which it never returns and keeps its lock held.
fn stays_in_malloc() {
    const STUCK: usize = 77_777;
    // SAFETY: malloc has no precondition.
    black_box(unsafe { libc::malloc(black_box(STUCK)) });
}
