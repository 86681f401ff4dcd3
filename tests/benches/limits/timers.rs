//! Timers, timeouts, locks and contexts: lateness, and how the cost grows.

use crate::judge::{Case, Limit, Measured};
use gosched::context::{CancelGuard, Context, StopFunc, background};
use gosched::time::{Ticker, Timer, after, after_func, sleep, sleep_until, timeout};
use gosched::{chan, go, park_timeout, select};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);
const SHORT: Duration = Duration::from_millis(15);
const TINY: Duration = Duration::from_micros(30);
const PERIOD: Duration = Duration::from_millis(5);
/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(3600);
/// The larger amount of the cases whose cost must grow linearly.
const MANY: usize = 100_000;

/// Three times as late as OS threads, plus one millisecond, which is how late a timer is that waits
/// for sysmon.
const LATE: Limit = Limit::AtMost { factor: 3.0, plus: 1.0 };
/// Lateness in microseconds, for waits that end almost at once.
const LATE_MICROS: Limit = Limit::AtMost { factor: 2.0, plus: 50.0 };
/// Twice the amount may take three times as long, because caches hold less of a larger amount.
const LINEAR: Limit = Limit::AtMost { factor: 3.0, plus: 5.0 };

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "lateness of a sleep of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, sleep, std::thread::sleep),
    },
    Case {
        name: "lateness of a sleep until a time, 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, |limit| sleep_until(Instant::now() + limit), std::thread::sleep),
    },
    Case {
        name: "lateness of a thread that sleeps for 15 ms by gosched",
        unit: "ms",
        limit: LATE,
        measure: || late_thread(SHORT, sleep, std::thread::sleep),
    },
    Case {
        name: "lateness of a receive with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, receives, std_receives),
    },
    Case {
        name: "lateness of a thread's receive with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late_thread(SHORT, receives, std_receives),
    },
    Case {
        name: "lateness of a send with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, sends, std_receives),
    },
    Case {
        name: "lateness of a select with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, selects, std_receives),
    },
    Case {
        name: "lateness of a park with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, park_timeout, std::thread::park_timeout),
    },
    Case {
        name: "lateness of a join with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, joins, std_receives),
    },
    Case {
        name: "lateness of a timer that a reset moves to 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, resets, std::thread::sleep),
    },
    Case {
        name: "lateness of a function after 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, runs_after, std::thread::sleep),
    },
    Case {
        name: "lateness of a context's deadline of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, deadline, std::thread::sleep),
    },
    Case {
        name: "lateness of work with a limit of 15 ms",
        unit: "ms",
        limit: LATE,
        measure: || late(SHORT, works, std::thread::sleep),
    },
    Case {
        name: "lateness of a sleep of 30 µs",
        unit: "µs",
        limit: LATE_MICROS,
        measure: || micros(late(TINY, sleep, std::thread::sleep)),
    },
    Case {
        name: "lateness of a receive with a limit of 30 µs",
        unit: "µs",
        limit: LATE_MICROS,
        measure: || micros(late(TINY, receives, std_receives)),
    },
    Case {
        name: "lateness of a sleep of no time",
        unit: "µs",
        limit: LATE_MICROS,
        measure: || micros(late(Duration::ZERO, sleep, std::thread::sleep)),
    },
    Case {
        name: "lateness of a receive with a limit of no time",
        unit: "µs",
        limit: LATE_MICROS,
        measure: || micros(late(Duration::ZERO, receives, std_receives)),
    },
    Case {
        name: "lateness of the last of 100 that sleep for 15 ms",
        unit: "ms",
        limit: LATE,
        measure: last_of_many,
    },
    Case {
        name: "lateness of the 40th tick of 5 ms",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 5.0 },
        measure: drift,
    },
    Case {
        name: "round trip of values between receives with a limit",
        unit: "µs",
        limit: Limit::AtMost { factor: 0.5, plus: 5.0 },
        measure: round_trip,
    },
    Case {
        name: "end of a park with a limit after its unpark",
        unit: "µs",
        limit: LATE_MICROS,
        measure: || beside(|| median((0..ROUNDS).map(|_| unpark())), std_unpark),
    },
    Case {
        name: "end of a receive with a limit after the close",
        unit: "µs",
        limit: LATE_MICROS,
        measure: || beside(|| median((0..ROUNDS).map(|_| close())), std_close),
    },
    Case {
        name: "wait for a mutex beside one that takes it again at once",
        unit: "ms",
        limit: Limit::AtMost { factor: 3.0, plus: 5.0 },
        measure: || beside(waits_for_mutex, std_waits_for_ticket_lock),
    },
    Case {
        name: "CPU time to cancel 100000 children, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(cancel_wide),
    },
    Case {
        name: "CPU time to cancel a chain of 100000, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(cancel_deep),
    },
    Case {
        name: "CPU time to drop 100000 children, first to last, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(|count| leave(count, |all| all)),
    },
    Case {
        name: "CPU time to drop 100000 children, last to first, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(|count| leave(count, |all| all.into_iter().rev().collect())),
    },
    Case {
        name: "CPU time to drop 100000 children, scattered, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(|count| leave(count, scattered)),
    },
    Case {
        name: "CPU time to stop 100000 functions of a context, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(stop_functions),
    },
    Case {
        name: "CPU time to drop 100000 timers, against half",
        unit: "ms",
        limit: LINEAR,
        measure: || linear(drop_timers),
    },
];

// ---- both sides ----

/// How often a short operation is measured.
const ROUNDS: usize = 200;

/// Runs `ours` in a goroutine, and `control` in an OS thread at the same time.
fn beside(
    ours: impl FnOnce() -> f64 + Send + 'static,
    control: impl FnOnce() -> f64 + Send + 'static,
) -> Measured {
    let control = std::thread::spawn(control);
    let ours = go(ours).join().unwrap();
    Measured { ours, control: control.join().unwrap() }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Converts milliseconds to microseconds.
fn micros(measured: Measured) -> Measured {
    Measured { ours: measured.ours * 1e3, control: measured.control * 1e3 }
}

// ---- waits that end by their timeout ----

/// Measures how much later than `limit` the waits of a goroutine and of an OS thread end: medians,
/// in milliseconds.
fn late(limit: Duration, ours: fn(Duration), control: fn(Duration)) -> Measured {
    beside(move || lateness(limit, ours), move || lateness(limit, control))
}

/// Measures the same for an OS thread that waits with gosched's functions.
fn late_thread(limit: Duration, ours: fn(Duration), control: fn(Duration)) -> Measured {
    let control = std::thread::spawn(move || lateness(limit, control));
    Measured { ours: lateness(limit, ours), control: control.join().unwrap() }
}

fn lateness(limit: Duration, wait: fn(Duration)) -> f64 {
    let rounds = if limit < MILLI { ROUNDS } else { 21 };
    median((0..rounds).map(|_| {
        let start = Instant::now();
        wait(limit);
        millis(start.elapsed().saturating_sub(limit))
    }))
}

fn receives(limit: Duration) {
    let (_tx, rx) = chan::<u8>(0);
    assert!(rx.recv_timeout(limit).is_err());
}

fn std_receives(limit: Duration) {
    let (_tx, rx) = mpsc::channel::<u8>();
    assert!(rx.recv_timeout(limit).is_err());
}

fn sends(limit: Duration) {
    let (tx, _rx) = chan::<u8>(0);
    assert!(tx.send_timeout(1, limit).is_err());
}

fn selects(limit: Duration) {
    let [(_one, a), (_other, b)] = [chan::<u8>(0), chan::<u8>(0)];
    select! {
        recv(a) -> _ => unreachable!("nothing is sent"),
        recv(b) -> _ => unreachable!("nothing is sent"),
        default(limit) => {}
    }
}

fn joins(limit: Duration) {
    let (_tx, rx) = chan::<u8>(0);
    assert!(go(move || rx.recv()).join_timeout(limit).is_err());
}

fn resets(limit: Duration) {
    let timer = Timer::new(LONG);
    timer.reset(limit);
    timer.chan().recv().unwrap();
}

fn runs_after(limit: Duration) {
    let (tx, rx) = chan::<()>(1);
    drop(after_func(limit, move || tx.send(()).unwrap()));
    rx.recv().unwrap();
}

fn deadline(limit: Duration) {
    let (ctx, _guard) = background().with_timeout(limit);
    assert!(ctx.done().recv().is_err());
}

fn works(limit: Duration) {
    assert!(timeout(limit, |ctx| ctx.done().recv()).is_err());
}

/// Measures how late the last of 100 sleepers is, including the time to start them all.
fn last_of_many() -> Measured {
    let all = |start: fn() -> Box<dyn FnOnce()>| {
        move || {
            let began = Instant::now();
            let sleepers: Vec<_> = (0..100).map(|_| start()).collect();
            sleepers.into_iter().for_each(|join| join());
            millis(began.elapsed().saturating_sub(SHORT))
        }
    };
    let ours = all(|| {
        let sleeper = go(|| sleep(SHORT));
        Box::new(move || sleeper.join().unwrap())
    });
    let control = all(|| {
        let sleeper = std::thread::spawn(|| std::thread::sleep(SHORT));
        Box::new(move || sleeper.join().unwrap())
    });
    beside(ours, control)
}

/// Measures how late the 40th tick is. Ticks that are too late are lost on both sides.
fn drift() -> Measured {
    const TICKS: u32 = 40;
    let ours = || {
        let start = Instant::now();
        let ticker = Ticker::new(PERIOD);
        ticker.chan().iter().take(TICKS as usize).for_each(drop);
        millis(start.elapsed().saturating_sub(TICKS * PERIOD))
    };
    let control = || {
        let start = Instant::now();
        let mut period = 0;
        for _ in 0..TICKS {
            let passed = (start.elapsed().as_micros() / PERIOD.as_micros()) as u32;
            period = passed.max(period) + 1;
            std::thread::sleep((period * PERIOD).saturating_sub(start.elapsed()));
        }
        millis(start.elapsed().saturating_sub(TICKS * PERIOD))
    };
    beside(ours, control)
}

// ---- waits that end before their timeout ----

/// Measures the round trip of a value, in microseconds.
fn round_trip() -> Measured {
    const TRIPS: u32 = 2000;
    let ours = || {
        let [(there, here), (back, answers)] = [chan::<u32>(0), chan::<u32>(0)];
        let echo = go(move || {
            while let Ok(value) = here.recv_timeout(LONG) {
                back.send(value).unwrap();
            }
        });
        let start = Instant::now();
        for i in 0..TRIPS {
            there.send(i).unwrap();
            assert_eq!(answers.recv_timeout(LONG), Ok(i));
        }
        let took = start.elapsed();
        drop(there);
        echo.join().unwrap();
        millis(took / TRIPS) * 1e3
    };
    let control = || {
        let (there, here) = mpsc::channel::<u32>();
        let (back, answers) = mpsc::channel::<u32>();
        let echo = std::thread::spawn(move || {
            while let Ok(value) = here.recv_timeout(LONG) {
                back.send(value).unwrap();
            }
        });
        let start = Instant::now();
        for i in 0..TRIPS {
            there.send(i).unwrap();
            assert_eq!(answers.recv_timeout(LONG), Ok(i));
        }
        let took = start.elapsed();
        drop(there);
        echo.join().unwrap();
        millis(took / TRIPS) * 1e3
    };
    beside(ours, control)
}

/// Returns the time from the unpark to the end of the park, in microseconds.
fn unpark() -> f64 {
    let parks = go(|| {
        park_timeout(LONG);
        Instant::now()
    });
    sleep(MILLI);
    let start = Instant::now();
    parks.goroutine().unpark();
    millis(parks.join().unwrap() - start) * 1e3
}

fn std_unpark() -> f64 {
    median((0..ROUNDS).map(|_| {
        let parks = std::thread::spawn(|| {
            std::thread::park_timeout(LONG);
            Instant::now()
        });
        std::thread::sleep(MILLI);
        let start = Instant::now();
        parks.thread().unpark();
        millis(parks.join().unwrap().saturating_duration_since(start)) * 1e3
    }))
}

/// Returns the time from the close to the end of the receive, in microseconds.
fn close() -> f64 {
    let (tx, rx) = chan::<u8>(0);
    let receives = go(move || {
        assert!(rx.recv_timeout(LONG).is_err());
        Instant::now()
    });
    sleep(MILLI);
    let start = Instant::now();
    tx.close();
    millis(receives.join().unwrap().saturating_duration_since(start)) * 1e3
}

fn std_close() -> f64 {
    median((0..ROUNDS).map(|_| {
        let (tx, rx) = mpsc::channel::<u8>();
        let receives = std::thread::spawn(move || {
            assert!(rx.recv_timeout(LONG).is_err());
            Instant::now()
        });
        std::thread::sleep(MILLI);
        let start = Instant::now();
        drop(tx);
        millis(receives.join().unwrap().saturating_duration_since(start)) * 1e3
    }))
}

// ---- locks ----

/// How long the hog holds the lock each time.
const HELD: Duration = Duration::from_micros(100);

/// Holds the lock: sets `held` for the duration of [`HELD`].
fn hold(held: &AtomicBool) {
    held.store(true, SeqCst);
    let start = Instant::now();
    while start.elapsed() < HELD {
        std::hint::spin_loop();
    }
    held.store(false, SeqCst);
}

fn waits_for_mutex() -> f64 {
    let mutex = Arc::new(gosched::sync::Mutex::new(()));
    let (over, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (shared, ended, holds) = (mutex.clone(), over.clone(), held.clone());
    let hog = go(move || {
        while !ended.load(SeqCst) {
            let _guard = shared.lock();
            hold(&holds);
        }
    });
    let waits = seventieth_percentile(&held, || drop(mutex.lock()));
    over.store(true, SeqCst);
    hog.join().unwrap();
    waits
}

/// A fair lock for OS threads: threads get the lock in the order of their tickets.
#[derive(Default)]
struct TicketLock {
    next_and_serving: Mutex<(u64, u64)>,
    moved: Condvar,
}

impl TicketLock {
    fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        let mut line = self.next_and_serving.lock().unwrap();
        let mine = line.0;
        line.0 += 1;
        while line.1 != mine {
            line = self.moved.wait(line).unwrap();
        }
        drop(line);
        let result = f();
        self.next_and_serving.lock().unwrap().1 += 1;
        self.moved.notify_all();
        result
    }
}

fn std_waits_for_ticket_lock() -> f64 {
    let line = Arc::new(TicketLock::default());
    let (over, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (shared, ended, holds) = (line.clone(), over.clone(), held.clone());
    let hog = std::thread::spawn(move || {
        while !ended.load(SeqCst) {
            shared.with(|| hold(&holds));
        }
    });
    let waits = seventieth_percentile(&held, || line.with(|| ()));
    over.store(true, SeqCst);
    hog.join().unwrap();
    waits
}

/// Returns the 21st of 30 waits, sorted, for a lock that the hog holds, in milliseconds.
fn seventieth_percentile(held: &AtomicBool, wait: impl Fn()) -> f64 {
    let mut waits: Vec<Duration> = (0..30)
        .map(|_| {
            while !held.load(SeqCst) {
                gosched::yield_now();
            }
            let start = Instant::now();
            wait();
            start.elapsed()
        })
        .collect();
    waits.sort_unstable();
    millis(waits[20])
}

// ---- linear growth ----

/// Measures the cost of [`MANY`] items, with half as many as the control. Costs are CPU time, which
/// other load on the machine does not affect.
fn linear(cost: fn(usize) -> Duration) -> Measured {
    let least = |count| millis((0..3).map(|_| cost(count)).min().unwrap());
    Measured { control: least(MANY / 2), ours: least(MANY) }
}

/// Returns the CPU time that `f` takes on the calling thread.
fn timed(f: impl FnOnce()) -> Duration {
    fn used() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is ours to write.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    let start = used();
    f();
    used().saturating_sub(start)
}

type Family = Vec<(Context, CancelGuard)>;

fn children(parent: &Context, count: usize) -> Family {
    (0..count).map(|_| parent.with_cancel()).collect()
}

/// Reorders the items in steps of 7919, which has no common factor with the counts.
fn scattered<T>(all: Vec<T>) -> Vec<T> {
    let count = all.len();
    let mut slots: Vec<Option<T>> = all.into_iter().map(Some).collect();
    (0..count).map(|i| slots[i * 7919 % count].take().expect("taken once")).collect()
}

fn cancel_wide(count: usize) -> Duration {
    let (root, guard) = background().with_cancel();
    let _all = children(&root, count);
    timed(|| guard.cancel())
}

fn cancel_deep(depth: usize) -> Duration {
    let mut last = background();
    let mut guards = Vec::with_capacity(depth);
    for i in 0..depth {
        if i % 3 == 0 {
            last = last.with_value(i);
        }
        let (next, guard) = last.with_cancel();
        guards.push(guard);
        last = next;
    }
    timed(|| guards[0].cancel())
}

fn leave(count: usize, order: fn(Family) -> Family) -> Duration {
    let (root, _guard) = background().with_cancel();
    let all = order(children(&root, count));
    timed(|| all.into_iter().for_each(drop))
}

fn stop_functions(count: usize) -> Duration {
    let (root, _guard) = background().with_cancel();
    let stops = scattered((0..count).map(|_| root.after_func(|| ())).collect::<Vec<StopFunc>>());
    timed(|| assert!(stops.iter().all(StopFunc::stop)))
}

fn drop_timers(count: usize) -> Duration {
    let timers: Vec<_> = (0..count as u32).map(|i| after(LONG + i * 7919 % 1000 * MILLI)).collect();
    timed(|| drop(timers))
}
