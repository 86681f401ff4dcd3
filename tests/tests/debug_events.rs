//! `debug::events`: what a recording contains, that it is true, and that it changes nothing.

use gosched::debug::events::{
    self, CallEnd, Event, EventKind, EventThread, GlobalReason, Place, PreemptMethod,
    PreemptReason, Recording, Source, StopReason, WaitReason, Waker,
};
use gosched::{blocking, blocking_now, chan, go, park, run, runtime, scope, time, yield_now};
use gosched_tests::children;
use gosched_tests::event_rules::{self, Checked};
use gosched_tests::wait::until;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What each child does: a name and a function.
const SCENARIOS: &[(&str, fn())] = &[
    ("one life", one_life),
    ("displaced", displaced),
    ("spill", spill),
    ("tick", tick),
    ("steal", steal),
    ("calls", calls),
    ("preempt", preempt),
    ("preempt in place", preempt_in_place),
    ("wake-ups", wake_ups),
    ("io and time", io_and_time),
    ("world", world),
    ("threads", threads),
    ("mixed", mixed),
    ("lost", lost),
    ("several", several),
    ("many at a time", many_at_a_time),
    ("both ends", both_ends),
    ("locked", locked),
    ("order", order),
];

#[test]
fn child() {
    let Some(name) = children::scenario() else { return };
    let scenario = SCENARIOS.iter().find(|scenario| scenario.0 == name).unwrap();
    run(scenario.1);
    println!("passed");
}

fn passes_with(name: &str, environment: &[(&str, &str)]) {
    let mut command = children::command(name);
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let passed = String::from_utf8_lossy(&output.stdout).contains("passed");
    assert!(output.status.success() && passed, "{name}: {}", children::stderr(&output));
}

fn passes(name: &str, procs: &str) {
    passes_with(name, &[("GOMAXPROCS", procs)]);
}

/// Records what happens while `f` runs, and checks it.
fn recorded(f: impl FnOnce()) -> (Vec<Event>, Checked) {
    let recording = events::start().unwrap();
    f();
    let events = finish(recording);
    let checked = checked(&events);
    (events, checked)
}

/// Ends a recording that must be complete.
fn finish(mut recording: Recording) -> Vec<Event> {
    let all = recording.stop();
    assert_eq!(recording.lost(), 0);
    all
}

/// Checks the rules. The events may come from several reads.
fn checked(events: &[Event]) -> Checked {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.time);
    event_rules::check(&events).unwrap_or_else(|broken| panic!("{broken}"))
}

fn show(events: &[Event]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

#[track_caller]
fn assert_any(events: &[Event], what: &str, is_it: impl Fn(&EventKind) -> bool) {
    assert!(events.iter().any(|event| is_it(&event.kind)), "{what}:\n{}", show(events));
}

/// The events of one goroutine, as text without times, threads and Ps.
fn history(events: &[Event], g: u64) -> Vec<String> {
    let of_g = |event: &&Event| match event.kind {
        EventKind::Spawn { g: other, .. }
        | EventKind::Ready { g: other, .. }
        | EventKind::Enqueue { g: other, .. }
        | EventKind::Run { g: other, .. }
        | EventKind::Park { g: other, .. }
        | EventKind::Yield { g: other, .. }
        | EventKind::Exit { g: other } => other == g,
        _ => false,
    };
    let name = |event: &Event| match event.kind {
        EventKind::Run { from, .. } => format!("runs from {from}"),
        kind => kind.to_string(),
    };
    events.iter().filter(of_g).map(name).collect()
}

fn one_life() {
    let (main, mut number) = (gosched::id().unwrap().get(), 0);
    let (events, _) = recorded(|| {
        let child = go(|| {
            yield_now();
            park();
        });
        number = child.id().get();
        // The child runs and yields; then it runs and parks.
        yield_now();
        yield_now();
        child.goroutine().unpark();
        child.join().unwrap();
    });
    let expected = [
        format!("G{main} starts G{number}: run_next"),
        "runs from run_next".to_owned(),
        format!("G{number} yields"),
        format!("G{number} is queued: the global queue"),
        "runs from the global queue".to_owned(),
        format!("G{number} waits: park"),
        format!("G{main} makes G{number} ready: run_next"),
        "runs from run_next".to_owned(),
        format!("G{number} ends"),
    ];
    assert_eq!(history(&events, number), expected, "{}", show(&events));
    assert_any(
        &events,
        "main joins",
        |kind| matches!(*kind, EventKind::Park { g, reason: WaitReason::Join } if g == main),
    );
}

fn displaced() {
    let mut numbers = Vec::new();
    let (events, _) = recorded(|| {
        let children: Vec<_> = (0..4).map(|_| go(|| ())).collect();
        numbers = children.iter().map(|child| child.id().get()).collect();
        children.into_iter().for_each(|child| child.join().unwrap());
    });
    let displaced = events.iter().filter_map(|event| match event.kind {
        EventKind::Displace { g, by, to: Place::Queue(position) } => Some((g, by, position)),
        _ => None,
    });
    let displaced: Vec<_> = displaced.collect();
    let pairs: Vec<_> = displaced.iter().map(|&(g, by, _)| (g, by)).collect();
    let expected: Vec<_> = numbers.windows(2).map(|pair| (pair[0], pair[1])).collect();
    assert_eq!(pairs, expected, "{}", show(&events));
    // The last one runs first, then the others in the order of their positions.
    let runs = events.iter().filter_map(|event| match event.kind {
        EventKind::Run { g, from, .. } if numbers.contains(&g) => Some((g, from)),
        _ => None,
    });
    let mut expected = vec![(numbers[3], Source::RunNext)];
    expected.extend(displaced.iter().map(|&(g, _, position)| (g, Source::Queue(position))));
    assert_eq!(runs.collect::<Vec<_>>(), expected, "{}", show(&events));
}

fn spill() {
    let (events, checked) = recorded(|| {
        // With a run before the first spill, the whole global queue is known.
        go(|| ()).join().unwrap();
        let children: Vec<_> = (0..600).map(|_| go(|| ())).collect();
        children.into_iter().for_each(|child| child.join().unwrap());
    });
    // 257 fit. The 258th spills 128 and itself, and so do the 387th and the 516th.
    assert_eq!(checked.spills, 3, "{}", show(&events));
    assert!(checked.from_queues > 256 && checked.from_global > 2, "{checked:?}");
    assert_any(&events, "a P takes a share", |kind| {
        let empty = GlobalReason::Empty;
        matches!(kind, EventKind::TakeGlobal { why, others, .. } if *why == empty && others.count > 1)
    });
}

fn tick() {
    let (events, checked) = recorded(|| {
        go(|| ()).join().unwrap();
        let yields = || (0..10).for_each(|_| yield_now());
        let children: Vec<_> = (0..300).map(|_| go(yields)).collect();
        children.into_iter().for_each(|child| child.join().unwrap());
    });
    let taken = event_rules::every_61st_slice_takes_from_the_global_queue(&events);
    let taken = taken.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(taken >= 3 && checked.due_ticks == taken, "{taken}: {checked:?}");
}

/// Reads a recording until an event of the kind was seen. Returns all events.
fn read_until(
    recording: &mut Recording,
    what: &str,
    is_it: impl Fn(&EventKind) -> bool,
) -> Vec<Event> {
    let mut all = Vec::new();
    until(what, || {
        let new = recording.read();
        let found = new.iter().any(|event| is_it(&event.kind));
        all.extend(new);
        found
    });
    all
}

fn steal() {
    let (mut recording, mut all) = (events::start().unwrap(), Vec::new());
    until("a P steals", || {
        // Enough work for the other P to find some.
        let compute = || {
            let end = Instant::now() + Duration::from_micros(200);
            while Instant::now() < end {
                black_box(());
            }
        };
        let children: Vec<_> = (0..60).map(|_| go(compute)).collect();
        children.into_iter().for_each(|child| child.join().unwrap());
        all.extend(recording.read());
        all.iter().any(|event| matches!(event.kind, EventKind::Steal { .. }))
    });
    all.extend(finish(recording));
    let checked = checked(&all);
    assert!(checked.steals > 0, "{}", show(&all));
    assert_any(&all, "the thief searches", |kind| {
        matches!(kind, EventKind::Spin {} | EventKind::Wake { spins: true, .. })
    });
}

fn calls() {
    let mut recording = events::start().unwrap();
    let end = |g, wanted| move |kind: &EventKind| matches!(*kind, EventKind::LeaveCall { g: other, end } if other == g && end == wanted);
    let me = gosched::id().unwrap().get();
    blocking(|| ());
    let all = read_until(&mut recording, "a call that ends at once", end(me, CallEnd::Kept));
    assert_any(
        &all,
        "a call begins",
        |kind| matches!(*kind, EventKind::EnterCall { g, blocks: false } if g == me),
    );

    for is_marked in [true, false] {
        let over = Arc::new(AtomicBool::new(false));
        let wait = {
            let over = Arc::clone(&over);
            move || {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        let child = go(move || if is_marked { blocking(wait) } else { wait() });
        let g = child.id().get();
        let is_retake = move |kind: &EventKind| matches!(*kind, EventKind::Retake { g: other, marked, .. } if other == g && marked == is_marked);
        let mut all = read_until(&mut recording, "the P is taken", is_retake);
        over.store(true, Ordering::Relaxed);
        child.join().unwrap();
        all.extend(recording.read());
        // One of the two Ps is idle whenever this goroutine waits or runs.
        let is_back =
            |kind: &EventKind| matches!(*kind, EventKind::LeaveCall { g: other, .. } if other == g);
        assert_any(&all, "the goroutine comes back", is_back);
    }

    // Two Ps are busy while two goroutines come back from calls: at least one of them finds no P.
    let busy = Arc::new(AtomicBool::new(true));
    let mut hogs = Vec::new();
    for _ in 0..2 {
        let busy = Arc::clone(&busy);
        hogs.push(go(move || {
            while busy.load(Ordering::Relaxed) {
                black_box(());
            }
        }));
    }
    let is_queued =
        |kind: &EventKind| matches!(kind, EventKind::LeaveCall { end: CallEnd::Queued, .. });
    let mut all = Vec::new();
    until("a goroutine finds no P", || {
        blocking_now(|| std::thread::sleep(Duration::from_millis(1)));
        all.extend(recording.read());
        all.iter().any(|event| is_queued(&event.kind))
    });
    busy.store(false, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    assert_any(
        &all,
        "a call that is known to block",
        |kind| matches!(*kind, EventKind::EnterCall { g, blocks: true } if g == me),
    );
}

/// Preempts a goroutine that computes. Returns the events.
fn preempted() -> Vec<Event> {
    let mut recording = events::start().unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let hog = go({
        let end = Arc::clone(&end);
        move || {
            while !end.load(Ordering::Relaxed) {
                black_box(());
            }
        }
    });
    let number = hog.id().get();
    let mut all = Vec::new();
    // On one P, this goroutine runs again only because the other was preempted.
    let is_it = |event: &Event| matches!(event.kind, EventKind::Preempt { g, .. } if g == number);
    while !all.iter().any(is_it) {
        yield_now();
        all.extend(recording.read());
    }
    end.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    all.extend(finish(recording));
    checked(&all);
    let slice = PreemptReason::Slice;
    assert_any(
        &all,
        "sysmon requests it",
        |kind| matches!(kind, EventKind::RequestPreempt { reason, .. } if *reason == slice),
    );
    let by_sysmon = |event: &Event| {
        event.thread == EventThread::Sysmon
            && matches!(event.kind, EventKind::RequestPreempt { .. })
    };
    assert!(all.iter().any(by_sysmon), "{}", show(&all));
    all
}

fn preempt() {
    let all = preempted();
    assert_any(&all, "for its slice", |kind| {
        matches!(kind, EventKind::Preempt { reason: PreemptReason::Slice, .. })
    });
}

fn preempt_in_place() {
    let all = preempted();
    let in_place = PreemptMethod::InPlace;
    assert_any(
        &all,
        "in place",
        |kind| matches!(kind, EventKind::Preempt { how, .. } if *how == in_place),
    );
    assert_any(&all, "it continues", |kind| {
        matches!(kind, EventKind::Run { from: Source::InPlace, .. })
    });
}

fn wake_ups() {
    let mut recording = events::start().unwrap();
    let parked = go(park);
    let number = parked.id().get();
    let first = read_until(
        &mut recording,
        "it waits",
        |kind| matches!(*kind, EventKind::Park { g, .. } if g == number),
    );
    let goroutine = parked.goroutine().clone();
    std::thread::spawn(move || goroutine.unpark()).join().unwrap();
    parked.join().unwrap();
    let mut all = read_until(
        &mut recording,
        "a thread makes it ready",
        |kind| matches!(*kind, EventKind::Ready { g, by: Waker::Thread, to: Place::Global } if g == number),
    );
    all.extend(first);
    all.sort_by_key(|event| event.time);
    type IsIt = fn(&EventKind) -> bool;
    let kinds: [(&str, IsIt); 7] = [
        ("an M spins", |kind| matches!(kind, EventKind::Spin {})),
        ("an M ends its search", |kind| matches!(kind, EventKind::StopSpinning { .. })),
        ("an M sleeps", |kind| matches!(kind, EventKind::Sleep { .. })),
        ("an M is woken", |kind| matches!(kind, EventKind::Wake { .. })),
        ("an M wakes", |kind| matches!(kind, EventKind::Awake {})),
        ("an M acquires a P", |kind| matches!(kind, EventKind::AcquireP { .. })),
        ("an M releases a P", |kind| matches!(kind, EventKind::ReleaseP { .. })),
    ];
    for (what, is_it) in kinds {
        until(what, || {
            // Sleeping gives the M up, and waking it takes one.
            time::sleep(Duration::from_millis(1));
            go(|| ()).join().unwrap();
            all.extend(recording.read());
            all.iter().any(|event| is_it(&event.kind))
        });
    }
    all.extend(finish(recording));
    checked(&all);
}

fn io_and_time() {
    let mut recording = events::start().unwrap();
    time::sleep(Duration::from_millis(2));
    let listener = gosched::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    });
    let number = server.id().get();
    let mut client = gosched::net::TcpStream::connect(address).unwrap();
    let waits = |kind: &EventKind| matches!(*kind, EventKind::Park { g, reason: WaitReason::Io } if g == number);
    let mut events = read_until(&mut recording, "the server waits", waits);
    client.write_all(&[7]).unwrap();
    assert_eq!(server.join().unwrap(), 7);
    events.extend(finish(recording));
    checked(&events);
    assert_any(&events, "a timer", |kind| {
        matches!(kind, EventKind::Ready { by: Waker::Timer, .. })
    });
    assert_any(
        &events,
        "timers fire",
        |kind| matches!(kind, EventKind::Timers { ready } if *ready > 0),
    );
    assert_any(&events, "I/O", |kind| matches!(kind, EventKind::Ready { by: Waker::Io, .. }));
    assert_any(&events, "a poll", |kind| matches!(kind, EventKind::Poll { ready } if *ready > 0));
}

fn world() {
    let (events, _) = recorded(|| {
        runtime::set_procs(3);
        runtime::set_procs(2);
    });
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    // The recording began while the world was stopped.
    let kinds: Vec<EventKind> = kinds.into_iter().skip(1).collect();
    let find = |wanted: EventKind| kinds.iter().position(|kind| *kind == wanted);
    let begin = find(EventKind::StopWorld { reason: StopReason::SetProcs });
    let stopped = find(EventKind::WorldStopped {});
    let start = find(EventKind::StartWorld { stopped: true });
    assert!(begin.is_some() && begin < stopped && stopped < start, "{}", show(&events));
    let stops = kinds.iter().filter(|kind| matches!(kind, EventKind::WorldStopped {})).count();
    assert_eq!(stops, 2, "{}", show(&events));
}

fn threads() {
    let mut recording = events::start().unwrap();
    // Each of them blocks a thread, so new ones are needed.
    let over = Arc::new(AtomicBool::new(false));
    let children: Vec<_> = (0..6)
        .map(|_| {
            let over = Arc::clone(&over);
            go(move || {
                blocking_now(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            })
        })
        .collect();
    let mut all = read_until(&mut recording, "a thread is made", |kind| {
        matches!(kind, EventKind::MakeThread { .. })
    });
    let by_maker = |event: &Event| {
        event.thread == EventThread::ThreadMaker
            && matches!(event.kind, EventKind::MakeThread { .. })
    };
    assert!(all.iter().any(by_maker), "{}", show(&all));
    over.store(true, Ordering::Relaxed);
    children.into_iter().for_each(|child| child.join().unwrap());
    // A goroutine that ends while it is locked to its thread takes the thread with it.
    go(gosched::lock_os_thread).join().unwrap();
    for (what, wanted) in
        [("a thread begins", EventKind::StartThread {}), ("a thread ends", EventKind::EndThread {})]
    {
        until(what, || {
            all.extend(recording.read());
            all.iter().any(|event| event.kind == wanted)
        });
    }
    all.extend(finish(recording));
    checked(&all);
}

/// A bit of everything, with at most half as many events as one ring holds. All goroutines have
/// ended when this returns, so the recording has every goroutine that was taken from a queue.
fn work() {
    let (sender, receiver) = chan::chan::<usize>(3);
    let sum = Arc::new(AtomicUsize::new(0));
    let lock = Arc::new(gosched::sync::Mutex::new(0));
    scope(|s| {
        for number in 0..40 {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            let (sum, lock) = (Arc::clone(&sum), Arc::clone(&lock));
            s.go(move || {
                for round in 0..10 {
                    match (number + round) % 8 {
                        0 => yield_now(),
                        1 => time::sleep(Duration::from_micros(50)),
                        2 => blocking(|| std::thread::sleep(Duration::from_micros(20))),
                        3 => std::thread::sleep(Duration::from_micros(200)),
                        4 => *lock.lock() += 1,
                        5 => {
                            let children: Vec<_> = (0..5).map(|_| go(|| ())).collect();
                            children.into_iter().for_each(|child| child.join().unwrap());
                        }
                        6 => {
                            let until = Instant::now() + Duration::from_micros(300);
                            while Instant::now() < until {
                                black_box(());
                            }
                        }
                        _ => {
                            let child = go(yield_now);
                            child.join().unwrap();
                        }
                    }
                    sender.send(1).unwrap();
                    sum.fetch_add(receiver.recv().unwrap(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 400);
}

fn mixed() {
    for round in 0..20 {
        let recording = events::start().unwrap();
        if round % 2 == 1 {
            // Many queued goroutines: spills, steals and shares of the global queue.
            let many: Vec<_> = (0..1000).map(|_| go(yield_now)).collect();
            many.into_iter().for_each(|child| child.join().unwrap());
        }
        work();
        let events = finish(recording);
        let checked = checked(&events);
        assert!(checked.runs > 400 && checked.from_queues > 0, "{checked:?}");
    }
}

fn lost() {
    const YIELDS: usize = 100_000;
    let mut recording = events::start().unwrap();
    let other = go(|| (0..YIELDS).for_each(|_| yield_now()));
    (0..YIELDS).for_each(|_| yield_now());
    other.join().unwrap();
    let last = go(|| ());
    let number = last.id().get();
    last.join().unwrap();
    let events = recording.read();
    // Each yield is three events.
    let lost = recording.lost();
    assert!(lost > 2 * YIELDS as u64, "{lost}");
    assert!(events.is_sorted_by_key(|event| event.time));
    let is_end = |event: &Event| event.kind == EventKind::Exit { g: number };
    assert!(events.iter().any(is_end), "the latest events are there");
    // What follows is complete again.
    go(|| ()).join().unwrap();
    checked(&recording.read());
    assert_eq!(recording.lost(), lost);
    // `stop` finds out too.
    (0..YIELDS).for_each(|_| yield_now());
    recording.stop();
    assert!(recording.lost() > lost, "{lost}");
    assert_eq!(recording.read(), [], "nothing is recorded after the end");
}

fn several() {
    let start_one = || {
        let child = go(|| ());
        let number = child.id().get();
        child.join().unwrap();
        number
    };
    let count = |events: &[Event], number: u64| {
        let is_spawn =
            |event: &&Event| matches!(event.kind, EventKind::Spawn { g, .. } if g == number);
        events.iter().filter(is_spawn).count()
    };
    let mut first = events::start().unwrap();
    let one = start_one();
    let mut second = events::start().unwrap();
    let two = start_one();
    let of_second = second.stop();
    let three = start_one();
    let mut of_first = first.read();
    let four = start_one();
    of_first.extend(first.stop());
    let five = start_one();
    let mut third = events::start().unwrap();
    let six = start_one();
    let of_third = third.stop();
    let all = [one, two, three, four, five, six];
    assert_eq!(all.map(|number| count(&of_first, number)), [1, 1, 1, 1, 0, 0]);
    assert_eq!(all.map(|number| count(&of_second, number)), [0, 1, 0, 0, 0, 0]);
    assert_eq!(all.map(|number| count(&of_third, number)), [0, 0, 0, 0, 0, 1]);
}

/// Pairs of goroutines that hand a value to each other, and goroutines that yield, until the flag
/// is set.
fn busy(over: &Arc<AtomicBool>) -> Vec<gosched::JoinHandle<()>> {
    let mut all = Vec::new();
    for number in 0..6 {
        let over = Arc::clone(over);
        let (ping, at_other) = chan(0);
        let (pong, at_first) = chan(0);
        all.push(go(move || at_other.into_iter().for_each(|()| pong.send(()).unwrap())));
        all.push(go(move || {
            while !over.load(Ordering::Relaxed) {
                ping.send(()).unwrap();
                at_first.recv().unwrap();
                if number % 2 == 0 {
                    yield_now();
                }
            }
        }));
    }
    all
}

/// Recordings that begin and end at any moment, on several threads, do not wait for each other.
fn many_at_a_time() {
    const ROUNDS: usize = 40;
    let over = Arc::new(AtomicBool::new(false));
    let busy = busy(&over);
    let record = |_| {
        std::thread::spawn(|| {
            for _ in 0..ROUNDS {
                let mut recording = events::start().unwrap();
                std::thread::sleep(Duration::from_micros(500));
                let events = recording.stop();
                // On a busy machine this thread may sleep for long.
                if recording.lost() == 0 {
                    checked(&events);
                }
            }
        })
    };
    let threads: Vec<_> = (0..3).map(record).collect();
    blocking_now(|| threads.into_iter().for_each(|thread| thread.join().unwrap()));
    over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|child| child.join().unwrap());
}

/// A recording begins and ends at one moment for all threads: each goroutine's events are a history
/// without gaps, from the first event to the last.
fn both_ends() {
    const ROUNDS: u64 = 20;
    const AT_LEAST: Duration = Duration::from_secs(2);
    let over = Arc::new(AtomicBool::new(false));
    let busy = busy(&over);
    let (begin, mut round, mut runs) = (Instant::now(), 0, 0);
    while round < ROUNDS || begin.elapsed() < AT_LEAST {
        round += 1;
        let mut recording = events::start().unwrap();
        time::sleep(Duration::from_micros(100 + round % 300));
        let events = recording.stop();
        if recording.lost() == 0 {
            runs += checked(&events).runs;
        }
    }
    assert!(runs > 0);
    over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|child| child.join().unwrap());
}

/// It is recorded where a goroutine that is locked to its thread was found.
fn locked() {
    let mut recording = events::start().unwrap();
    let child = go(|| {
        gosched::lock_os_thread();
        for _ in 0..10 {
            go(yield_now).join().unwrap();
            yield_now();
        }
        gosched::unlock_os_thread();
    });
    let number = child.id().get();
    child.join().unwrap();
    let events = recording.stop();
    checked(&events);
    let sources: Vec<Source> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Run { g, from, .. } if g == number => Some(from),
            _ => None,
        })
        .collect();
    assert!(sources.len() > 10, "{}", show(&events));
    assert!(!sources.contains(&Source::Earlier), "{}", show(&events));
}

/// Prints the order in which the steps of goroutines run on one P.
fn order() {
    let recording = std::env::var("GOSCHED_TEST_RECORD").is_ok().then(|| events::start().unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let step = |log: &Mutex<Vec<usize>>, number: usize| log.lock().unwrap().push(number);
    let children: Vec<_> = (0..400)
        .map(|number| {
            let log = Arc::clone(&log);
            go(move || {
                step(&log, number);
                yield_now();
                let inner = Arc::clone(&log);
                let child = go(move || step(&inner, 1000 + number));
                if number % 3 == 0 {
                    yield_now();
                }
                child.join().unwrap();
                step(&log, 2000 + number);
            })
        })
        .collect();
    children.into_iter().for_each(|child| child.join().unwrap());
    println!("order: {:?}", log.lock().unwrap());
    if let Some(recording) = recording {
        assert!(finish(recording).len() > 400 * 8);
    }
}

#[test]
fn the_history_of_a_goroutine_is_complete() {
    passes("one life", "1");
}

#[test]
fn a_displaced_goroutine_is_recorded_with_its_position() {
    passes("displaced", "1");
}

// S75, S76, S172, S173
#[test]
fn a_full_queue_spills_its_older_half() {
    passes("spill", "1");
}

// S92
#[test]
fn every_61st_slice_takes_from_the_global_queue() {
    passes("tick", "1");
}

#[test]
fn a_steal_is_recorded_with_its_victim_and_takes_half() {
    passes("steal", "2");
}

#[test]
fn the_way_of_a_p_through_blocking_calls_is_recorded() {
    passes("calls", "2");
}

#[test]
fn a_preemption_is_recorded_with_its_request() {
    passes("preempt", "1");
}

#[test]
fn a_goroutine_that_stops_with_its_m_is_recorded() {
    passes_with("preempt in place", &[("GOMAXPROCS", "1"), ("GOSCHED_PREEMPT", "in-place")]);
}

#[test]
fn sleeping_spinning_and_waking_are_recorded() {
    passes("wake-ups", "2");
}

#[test]
fn timers_and_io_are_recorded_as_wakers() {
    passes("io and time", "2");
}

#[test]
fn a_stop_of_the_world_is_recorded() {
    passes("world", "2");
}

#[test]
fn new_threads_and_ends_of_threads_are_recorded() {
    passes("threads", "2");
}

#[test]
fn recorded_events_obey_the_rules_on_one_to_six_ps() {
    for procs in ["1", "2", "6"] {
        passes("mixed", procs);
    }
}

#[test]
fn recorded_events_obey_the_rules_with_random_choices() {
    for seed in ["1", "2", "3"] {
        passes_with("mixed", &[("GOMAXPROCS", "3"), ("GOSCHED_SEED", seed)]);
    }
}

#[test]
fn recorded_events_obey_the_rules_if_goroutines_stop_in_place() {
    passes_with("mixed", &[("GOMAXPROCS", "2"), ("GOSCHED_PREEMPT", "in-place")]);
}

#[test]
fn events_that_are_not_read_in_time_are_counted() {
    passes("lost", "1");
}

#[test]
fn several_recordings_do_not_disturb_each_other() {
    passes("several", "2");
}

#[test]
fn recordings_on_several_threads_do_not_wait_for_each_other() {
    for procs in ["1", "2", "6"] {
        passes("many at a time", procs);
    }
}

#[test]
fn a_recording_begins_and_ends_at_one_moment_for_all_threads() {
    for procs in ["1", "2", "6"] {
        passes("both ends", procs);
    }
}

#[test]
fn the_source_of_a_goroutine_that_is_locked_to_its_thread_is_recorded() {
    for procs in ["1", "2"] {
        passes("locked", procs);
    }
}

#[test]
fn a_recording_does_not_change_the_order() {
    let order = |record: &[(&str, &str)]| {
        let mut command = children::command("order");
        command.env("GOMAXPROCS", "1").envs(record.iter().copied());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("passed"), "{}", children::stderr(&output));
        said.split("order: ").nth(1).unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(order(&[]), order(&[("GOSCHED_TEST_RECORD", "1")]));
}
