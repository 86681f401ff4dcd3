//! A timer that runs a function in a new goroutine.
//!
//! While the timer is set, its record has a prepared goroutine, so that firing the timer need not
//! allocate. The prepared goroutine owns a reference to the record. While the timer is in a heap,
//! the prepared goroutine belongs to that heap, under its lock; otherwise it belongs to the holder
//! of `control`.
//!
//! Firing the timer never runs the function: the prepared goroutine does.

use crate::block::exit;
use crate::block::sync::{Mutex, RawMutex};
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::task::{Task, TaskKind};
use crate::gmp::timer::{Timer, TimerKind};
use crate::sched::{self, SpawnRequest};
use std::cell::Cell;
use std::mem::offset_of;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

/// A timer that runs a function: see the top of this file. `repr(C)`: a pointer to the task is a
/// pointer to the record.
#[repr(C)]
pub(crate) struct FuncTimer {
    task: Task,
    timer: Timer,
    /// Held by `reset` and `stop`: one of them runs at a time.
    control: RawMutex,
    /// The goroutine that will run the function. `Some` while the timer is set.
    prepared: Cell<Option<&'static G>>,
    /// Where the timer was created; shown as the place where the goroutine was started.
    site: &'static Location<'static>,
    /// The function. Locked during a run, so that one runs at a time.
    f: Mutex<Box<dyn FnMut() + Send>>,
}

// SAFETY: the cell is accessed as described at the top of this file.
unsafe impl Sync for FuncTimer {}
// SAFETY: as above; the function is `Send`.
unsafe impl Send for FuncTimer {}

static TIMER: TimerKind = TimerKind { fire, can_wake: None };

impl FuncTimer {
    /// Creates a timer that is not set.
    #[track_caller]
    pub(crate) fn new(f: Box<dyn FnMut() + Send>) -> Arc<FuncTimer> {
        Arc::new(FuncTimer {
            task: Task { kind: &KIND },
            // SAFETY: fire — the timer is a field of a `FuncTimer`, which the prepared goroutine
            // keeps alive.
            timer: unsafe { Timer::new(&TIMER) },
            control: RawMutex::new(),
            prepared: Cell::new(None),
            site: Location::caller(),
            f: Mutex::new(f),
        })
    }

    /// Sets the timer to fire at `when`. Returns whether it was set and had not fired.
    pub(crate) fn reset(self: &Arc<Self>, when: u64) -> bool {
        sched::refuse_in_child("a timer");
        self.control.lock();
        let was = self.timer.stop();
        if !was {
            let task = Arc::into_raw(self.clone()).cast_mut().cast::<Task>();
            self.prepared.set(Some(sched::prepare(SpawnRequest {
                task,
                site: self.site,
                options: None,
            })));
        }
        // SAFETY: alive — the prepared goroutine keeps the record alive; the timer is in no heap.
        sched::start_timer(unsafe { self.timer.placed() }, when);
        // SAFETY: held — locked above.
        unsafe { self.control.unlock() };
        was
    }

    /// Stops the timer, so that the function does not run unless its goroutine was already started.
    /// Returns whether the timer was set and had not fired.
    pub(crate) fn stop(self: &Arc<Self>) -> bool {
        self.control.lock();
        let prepared = self.timer.stop().then(|| self.prepared.take()).flatten();
        // SAFETY: held — locked above.
        unsafe { self.control.unlock() };
        let Some(g) = prepared else { return false };
        sched::discard(g);
        // SAFETY: the strong count of the prepared goroutine; the caller owns another.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
        true
    }
}

/// Makes the prepared goroutine ready. See [`TimerKind::fire`].
///
/// # Safety
/// - **timer**: the field of a `FuncTimer` that has not been stopped.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: timer — a field of a `FuncTimer`, promised by the caller.
    let record = unsafe { ptr::from_ref(timer).byte_sub(offset_of!(FuncTimer, timer)) };
    // SAFETY: as above; the prepared goroutine keeps the record alive.
    let record = unsafe { &*record.cast::<FuncTimer>() };
    if let Some(g) = record.prepared.take() {
        ready.push_back(g);
    }
    None
}

static KIND: TaskKind =
    TaskKind { run, complete, name: || "gosched::time::after_func", offsets: None };

/// Runs the function. See [`TaskKind::run`].
///
/// # Safety
/// - **share**: `task` is a raw `Arc<FuncTimer>` that the calling goroutine owns.
unsafe fn run(task: *mut Task) -> bool {
    sched::begin_prepared();
    // SAFETY: share — promised by the caller.
    let record = unsafe { Arc::from_raw(task.cast_const().cast::<FuncTimer>()) };
    // A panic was already reported, and affects no other code.
    exit::run_discarding_panic(move || (record.f.lock())());
    false
}

/// # Safety
/// - **never**: this function is never called, because `run` returns false.
unsafe fn complete(_task: *mut Task) {}
