//! A function that runs when its time has come, in a goroutine of its own.
//!
//! While it is set, the record keeps a prepared goroutine, which owns a share of the record: the timer that
//! fires it need not allocate. Who has the prepared goroutine: the timer's heap, under its lock, while the
//! timer is in one; else whoever holds `control`.

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

/// See the top of this file. `repr(C)`: a pointer to the task is a pointer to the record.
#[repr(C)]
pub(crate) struct FuncTimer {
    task: Task,
    timer: Timer,
    /// One at a time sets or stops it.
    control: RawMutex,
    prepared: Cell<Option<&'static G>>,
    site: &'static Location<'static>,
    /// One run at a time.
    f: Mutex<Box<dyn FnMut() + Send>>,
}

// SAFETY: the cell is used as said at the top of this file.
unsafe impl Sync for FuncTimer {}
// SAFETY: as above; the function is `Send`.
unsafe impl Send for FuncTimer {}

static TIMER: TimerKind = TimerKind { fire, can_wake: None };

impl FuncTimer {
    /// Not set.
    #[track_caller]
    pub(crate) fn new(f: Box<dyn FnMut() + Send>) -> Arc<FuncTimer> {
        Arc::new(FuncTimer {
            task: Task { kind: &KIND },
            // SAFETY: fire — the timer is a `FuncTimer`'s, of which the prepared goroutine has a share.
            timer: unsafe { Timer::new(&TIMER) },
            control: RawMutex::new(),
            prepared: Cell::new(None),
            site: Location::caller(),
            f: Mutex::new(f),
        })
    }

    /// Sets it, or sets it again. True if it was set, and had not begun.
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
        // SAFETY: alive — the prepared goroutine has a share of the record; it is in no heap.
        unsafe { sched::start_timer(&self.timer, when) };
        // SAFETY: held — above.
        unsafe { self.control.unlock() };
        was
    }

    /// It does not run, unless it has begun. True if it was set, and had not.
    pub(crate) fn stop(self: &Arc<Self>) -> bool {
        self.control.lock();
        let prepared = self.timer.stop().then(|| self.prepared.take()).flatten();
        // SAFETY: held — above.
        unsafe { self.control.unlock() };
        let Some(g) = prepared else { return false };
        sched::discard(g);
        // SAFETY: the share that the prepared goroutine had; the caller has another.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
        true
    }
}

/// # Safety
/// - **timer**: a `FuncTimer`'s, not yet stopped.
unsafe fn fire(timer: &Timer, _now: u64, ready: &mut GList) -> Option<u64> {
    // SAFETY: timer — a field of a `FuncTimer`, promised by the caller.
    let record = unsafe { ptr::from_ref(timer).byte_sub(offset_of!(FuncTimer, timer)) };
    // SAFETY: as above; the prepared goroutine keeps it.
    let record = unsafe { &*record.cast::<FuncTimer>() };
    if let Some(g) = record.prepared.take() {
        ready.push_back(g);
    }
    None
}

static KIND: TaskKind =
    TaskKind { run, complete, name: || "gosched::time::after_func", offsets: None };

/// See [`TaskKind::run`].
///
/// # Safety
/// - **share**: `task` is the share of a `FuncTimer` that belongs to the calling goroutine.
unsafe fn run(task: *mut Task) -> bool {
    sched::begin_prepared();
    // SAFETY: share — promised by the caller.
    let record = unsafe { Arc::from_raw(task.cast_const().cast::<FuncTimer>()) };
    // A panic was reported, and concerns nobody else.
    exit::run_discarding_panic(move || (record.f.lock())());
    false
}

/// # Safety
/// - **never**: it is not called: nobody hears of the end.
unsafe fn complete(_task: *mut Task) {}
