//! The thread maker: the only thread that creates threads for the scheduler.
//!
//! Creating a thread allocates and takes libc's locks, which a stopped goroutine may hold. The
//! scheduler must not wait for such a goroutine. So an M that finds no idle M sends a request, and
//! the thread maker creates threads until there is an M for each P, one spare M, and one for each M
//! that cannot take a P because it is blocked or locked to a goroutine.
//!
//! If the system refuses a thread, the waiting Ps become idle again and the existing Ms continue.
//! The thread maker retries after [`RETRY_AFTER`].
//!
//! The thread maker never creates an M with a P: the new M takes an orphaned P itself.

use crate::gmp::m::M;
use crate::gmp::record::record;
use crate::probe::event::EventKind;
use crate::probe::recorder::{self, EventThread};
use crate::sched::inspect::recordings;
use crate::sched::monitor::sysmon::{self, StandIn};
use crate::sched::run::schedule;
use crate::sched::state::global::{Locked, SCHED};
use crate::sched::state::{report, thread_requests};
use crate::sched::wake::{self, refusal};
use crate::sched::world::procs;
use crate::sys::cpu_limit;
use crate::sys::fatal::Stderr;
use gosched_fiber::exit_guard;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Calls the function that [`thread_requests::call_on_thread_maker`] stored, if there is one.
fn run_pending_call() {
    if let Some(f) = thread_requests::PENDING_CALL.take() {
        f();
    }
}

/// Starts the thread maker. Called once.
/// Go: startTemplateThread.
pub(crate) fn start() -> std::io::Result<()> {
    thread_requests::start_helper("gosched-spawner", run_loop)
}

/// Sets the number of Ps to the CPU limit, unless the program or its environment has fixed it. Runs
/// on a helper thread: changing the number stops the world, which may need an M that the thread
/// maker has yet to create.
/// Go: sysmonUpdateGOMAXPROCS.
fn apply_cpu_limit() {
    static IS_APPLYING: AtomicBool = AtomicBool::new(false);
    let procs = cpu_limit::limited_procs();
    let is_same = cpu_limit::is_procs_fixed() || procs == SCHED.procs();
    if is_same || IS_APPLYING.swap(true, Ordering::Relaxed) {
        return;
    }
    let follow = move || {
        procs::follow_cpu_limit(procs);
        thread_requests::HELPER_THREADS.fetch_sub(1, Ordering::Relaxed);
        IS_APPLYING.store(false, Ordering::Relaxed);
    };
    if thread_requests::start_helper("gosched-limit", follow).is_err() {
        IS_APPLYING.store(false, Ordering::Relaxed);
    }
}

fn run_loop() {
    recorder::set_this_thread(EventThread::ThreadMaker);
    let mut stand_in = StandIn::default();
    loop {
        while thread_requests::REQUESTED.get() == 0 {
            wait_for(None, &mut stand_in);
        }
        thread_requests::REQUESTED.set(0);
        // PAIR pending-call: the thread maker clears `REQUESTED` before it reads the function; see
        // `call_on_thread_maker`.
        fence(Ordering::SeqCst);
        run_pending_call();
        make_threads(&mut stand_in);
        if thread_requests::CPU_LIMIT_REQUESTED.swap(false, Ordering::Relaxed) {
            apply_cpu_limit();
        }
        if thread_requests::is_refused() {
            let end = Instant::now() + RETRY_AFTER;
            while Instant::now() < end {
                wait_for(Some(end - Instant::now()), &mut stand_in);
            }
            thread_requests::REFUSED.store(false, Ordering::Relaxed);
            if wake::is_m_wanted_after_idling() {
                wake::wake_if_idle();
            }
        }
    }
}

/// Sleeps for `limit`, or until a thread is requested if `limit` is `None`. While the system
/// refuses sysmon a thread, runs one iteration of sysmon instead, which takes at most 10 ms.
fn wait_for(limit: Option<Duration>, stand_in: &mut StandIn) {
    if sysmon::has_thread() || SCHED.lock.lock().ms == 0 {
        match limit {
            // A request that arrives meanwhile waits until the retry.
            Some(limit) => std::thread::sleep(limit),
            None => drop(thread_requests::REQUESTED.wait(0, None)),
        }
    } else {
        stand_in.run_once();
    }
}

/// Starts sysmon as soon as there is an M, and creates Ms as long as more are needed.
/// Go: newm.
fn make_threads(stand_in: &mut StandIn) {
    if SCHED.lock.lock().ms > 0 {
        stand_in.start_sysmon();
    }
    while let Some(m) = next_m() {
        record(|| EventKind::MakeThread { m: m.id });
        if !start_thread(m) {
            return;
        }
        stand_in.start_sysmon();
    }
}

/// Returns the record for a new M, or `None` if no more Ms are needed.
fn next_m() -> Option<&'static M> {
    let mut locked = SCHED.lock.lock();
    if !is_thread_wanted(&locked) {
        return None;
    }
    if locked.ms >= MAX_THREADS.load(Ordering::Relaxed) {
        drop(locked);
        throw_thread_exhaustion();
    }
    locked.ms += 1;
    if let Some(m) = locked.dead_ms.pop_front() {
        return Some(m);
    }
    let id = locked.next_m_id;
    locked.next_m_id += 1;
    drop(locked);
    Some(new_m(id))
}

/// Maximum number of Ms. Needing one more is a fatal error.
static MAX_THREADS: AtomicU32 = AtomicU32::new(10_000);

/// Sets the maximum number of Ms and returns the previous maximum.
pub(crate) fn set_max_threads(most: u32) -> u32 {
    let before = MAX_THREADS.swap(most, Ordering::Relaxed);
    let ms = NoPreemptLockGuard::new(&SCHED.lock).ms;
    if ms > most {
        throw_thread_exhaustion();
    }
    before
}

/// Reports thread exhaustion with Go's message, and exits.
/// Go: checkmcount.
fn throw_thread_exhaustion() -> ! {
    report::begin();
    let mut out = Stderr::new();
    let most = MAX_THREADS.load(Ordering::Relaxed);
    let _ = writeln!(out, "runtime: program exceeds {most}-thread limit");
    let _ = writeln!(out, "fatal error: thread exhaustion");
    out.flush();
    report::report(report::ExitReason::Limit);
    exit_guard::end_process()
}

/// Returns whether there are fewer Ms than needed: one for each P, one spare, and one for each M
/// that cannot take a P because it is blocked or locked to a goroutine. With that many Ms, at least
/// one is asleep or about to sleep, and an M takes an orphaned P before it sleeps.
fn is_thread_wanted(locked: &Locked) -> bool {
    let mut away = locked.locked_ms + locked.blocked_ms;
    // Near the limit, Ms that were stopped in place no longer add to the number: compute-bound
    // goroutines alone must not bring the program to its limit.
    if locked.ms >= MAX_THREADS.load(Ordering::Relaxed) / 4 * 3 {
        away -= locked.stopped_ms;
    }
    locked.ms < SCHED.procs() as u32 + 1 + away
}

/// Allocates an M and adds it to the list of all Ms.
/// Go: allocm, mcommoninit.
pub(crate) fn new_m(id: u32) -> &'static M {
    let m = M::new(id);
    loop {
        let before = SCHED.last_m.load();
        m.all_link.store(before);
        if SCHED.last_m.replace_if(before, Some(m)) {
            recordings::give_ring_to_new_m(m);
            return m;
        }
    }
}

/// Starts the thread of `m`. Returns whether the system granted it.
/// Go: newosproc.
fn start_thread(m: &'static M) -> bool {
    m.alive.store(true, Ordering::Relaxed);
    let thread = std::thread::Builder::new().name(format!("gosched-m{}", m.id));
    match thread.spawn(move || schedule::run_m(m)) {
        Ok(_) => true,
        Err(why) => {
            m.alive.store(false, Ordering::Relaxed);
            SCHED.lock.lock().dead_ms.push_front(m);
            refusal::handle_refusal(format_args!("the system refuses a thread ({why})"));
            false
        }
    }
}

/// How long the thread maker waits after a refusal before it asks the system again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
