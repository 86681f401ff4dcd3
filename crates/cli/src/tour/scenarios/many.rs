//! A million goroutines that wait at the same moment. There are more events than can be shown, so
//! they are counted. This module never counts what was not recorded.

use super::start_recording;
use crate::tour::screen::grouped;
use crate::tour::show::{Act, Counts, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::chan::{Receiver, Sender};
use gosched::debug::events::{Event, EventKind, EventThread, Recording};
use gosched::sync::WaitGroup;
use gosched::{chan, go, runtime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many goroutines start, or continue, before their events are read. Each thread keeps 65,536
/// events, so none is lost.
const BATCH: u64 = 8_000;

/// The memory that a goroutine needs at most while it waits, that of the kernel included.
const BYTES_PER_GOROUTINE: u64 = 6 << 10;

/// What the events say.
#[derive(Debug, Default)]
struct Count {
    started: u64,
    waits: u64,
    ready: u64,
    ended: u64,
    spills: u64,
    steals: u64,
    /// Goroutines for whose stack there was no memory.
    without_stack: u64,
    /// The number of slices of each P.
    slices: BTreeMap<u32, u64>,
    /// The threads that ran goroutines.
    threads: BTreeSet<u32>,
}

impl Count {
    fn add(&mut self, event: &Event) {
        match event.kind {
            EventKind::Spawn { .. } => self.started += 1,
            EventKind::Park { .. } => self.waits += 1,
            EventKind::Ready { .. } => self.ready += 1,
            EventKind::Exit { .. } => self.ended += 1,
            EventKind::Spill { .. } => self.spills += 1,
            EventKind::Steal { .. } => self.steals += 1,
            EventKind::NoStack { .. } => self.without_stack += 1,
            EventKind::Run { .. } => {
                *self.slices.entry(event.p.unwrap_or(0)).or_default() += 1;
                if let EventThread::M(m) = event.thread {
                    self.threads.insert(m);
                }
            }
            _ => {}
        }
    }

    /// Reads the events until `is_enough` returns true.
    ///
    /// # Errors
    /// It never will: events are lost, or there is no memory.
    fn read_until(
        &mut self,
        recording: &mut Recording,
        is_enough: impl Fn(&Count) -> bool,
    ) -> Result<(), Failure> {
        loop {
            recording.read().iter().for_each(|event| self.add(event));
            if is_enough(self) {
                return Ok(());
            }
            if recording.lost() > 0 {
                let seen = vec![format!("{} events could not be read", recording.lost())];
                return Err(Failure { expected: "every event is read".to_owned(), seen });
            }
            if self.without_stack > 0 {
                let seen = vec!["there is no memory for a goroutine's stack".to_owned()];
                let expected = "all goroutines start (try --goroutines with a smaller number)";
                return Err(Failure { expected: expected.to_owned(), seen });
            }
            gosched::time::sleep(Duration::from_micros(100));
        }
    }
}

/// The addresses that a goroutine's stack takes.
const ADDRESSES_PER_GOROUTINE: u64 = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 };

/// Returns how many goroutines to start: as many as wanted, unless there is not enough memory, or
/// the process may not use the addresses (`ulimit -v`).
fn affordable(wanted: u64) -> u64 {
    let addresses = std::fs::read_to_string("/proc/self/limits").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    // Half of them are for all else.
    let by_addresses = addresses.map_or(u64::MAX, |limit| limit / 2 / ADDRESSES_PER_GOROUTINE);
    let in_container = in_container().map_or(u64::MAX, |free| free / 4 * 3 / BYTES_PER_GOROUTINE);
    let wanted = wanted.min(by_addresses).min(in_container);
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    match available {
        // The other quarter is for the rest of the system.
        Some(kibibytes) => wanted.min(kibibytes * 1024 / 4 * 3 / BYTES_PER_GOROUTINE),
        None => wanted.min(100_000),
    }
}

/// Returns how much memory the process may still use, if it runs in a container with a limit.
fn in_container() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |file: &str| {
        let path = format!("/sys/fs/cgroup{path}/{file}");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

/// Returns the memory of this process, in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Goroutines that wait until their gate opens, and then add their number to the sum.
#[derive(Debug)]
struct Crowd {
    /// The gates, and how many goroutines wait at each.
    gates: Vec<(Sender<()>, u64)>,
    sum: Arc<AtomicU64>,
    all: Arc<WaitGroup>,
}

impl Crowd {
    fn new() -> Crowd {
        let (sum, all) = (Arc::new(AtomicU64::new(0)), Arc::new(WaitGroup::new()));
        Crowd { gates: Vec::new(), sum, all }
    }

    /// Starts a batch, which waits at a gate of its own.
    fn start(&mut self, numbers: std::ops::Range<u64>) {
        let (gate, at_gate): (Sender<()>, Receiver<()>) = chan(0);
        self.gates.push((gate, numbers.end - numbers.start));
        for number in numbers {
            let (sum, all, at_gate) =
                (Arc::clone(&self.sum), Arc::clone(&self.all), at_gate.clone());
            self.all.add(1);
            go(move || {
                // An error says that the gate is open: the sender has gone.
                let _ = at_gate.recv();
                sum.fetch_add(number, Ordering::Relaxed);
                all.done();
            });
        }
    }
}

pub(super) fn many(stage: &Stage) -> Result<Act, Failure> {
    let wanted = stage.goroutines;
    let total = affordable(wanted);
    let mut recording = start_recording();
    let mut show = Show::new(Vec::new(), Names::new(&[]), runtime::procs());
    let (mut count, mut crowd) = (Count::default(), Crowd::new());
    let before = resident();
    let begin = Instant::now();
    for first in (0..total).step_by(BATCH as usize) {
        let end = total.min(first + BATCH);
        crowd.start(first..end);
        count.read_until(&mut recording, |count| count.waits.saturating_sub(count.ready) >= end)?;
        let text = format!("{} goroutines wait", grouped(end));
        stage.progress(&text);
        show.count(counts(text, &count, total));
    }
    let (took, alive) = (begin.elapsed(), runtime::num_goroutines() as u64);
    let (memory, threads) = (resident(), runtime::num_threads() as u64);
    let waiting = count.waits.saturating_sub(count.ready);
    show.check(format!("{} goroutines waited at the same moment.", grouped(total)), {
        waiting >= total && alive >= total
    })?;
    let runners = count.threads.len() as u64;
    show.check(
        format!("{runners} threads ran them. The process had {threads} threads."),
        // Each hand-off may need a thread more, and a small crowd is no measure.
        threads <= total / 100 + 32,
    )?;
    let begin = Instant::now();
    let mut ended = 0;
    while let Some((gate, waiting)) = crowd.gates.pop() {
        drop(gate);
        ended += waiting;
        count.read_until(&mut recording, |count| count.ended >= ended)?;
        let text = format!("{} goroutines have ended", grouped(ended));
        stage.progress(&text);
        show.count(counts(text, &count, total));
    }
    crowd.all.wait();
    let woken_in = begin.elapsed();
    let sum = crowd.sum.load(Ordering::Relaxed);
    show.check("Each of them continued once.", sum == total * total.saturating_sub(1) / 2)?;
    show.check("The recording is complete.", recording.lost() == 0)?;
    let slices: Vec<String> =
        count.slices.iter().map(|(p, slices)| format!("P{p} {}", grouped(*slices))).collect();
    show.note(format!(
        "Slices: {}. Spills of a full queue: {}. Thefts: {}.",
        slices.join(", "),
        grouped(count.spills),
        grouped(count.steals)
    ));
    let memory = match (before, memory) {
        (Some(before), Some(memory)) => {
            format!(", with {} KiB each", memory.saturating_sub(before) / total.max(1) / 1024)
        }
        _ => String::new(),
    };
    show.note(format!(
        "Started in {:.2} s{memory}, and ended in {:.2} s, while every event was recorded.",
        took.as_secs_f64(),
        woken_in.as_secs_f64()
    ));
    if total < wanted {
        show.note(format!("There is not enough memory for {} goroutines.", grouped(wanted)));
    }
    drop(recording);
    Ok(show.end())
}

fn counts(caption: String, count: &Count, total: u64) -> Counts {
    let waiting = count.waits.saturating_sub(count.ready);
    let bars = vec![
        ("started", count.started.min(total), total),
        ("waiting", waiting.min(total), total),
        ("ended", count.ended.min(total), total),
    ];
    Counts { caption, bars }
}
