//! A given number of waiting goroutines, and the time and memory that it takes to show them.

use gosched::{__rules as rules, chan, go, runtime};
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

static WAITING: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn one_of_a_million(receiver: chan::Receiver<u64>) {
    WAITING.fetch_add(1, SeqCst);
    black_box(receiver.recv()).unwrap_err();
}

/// A writer that discards its input and counts writes, bytes and goroutines.
#[derive(Default)]
struct Sink {
    writes: usize,
    bytes: usize,
    goroutines: usize,
    /// Text that each goroutine contains once. A write contains only whole goroutines, so it never
    /// splits the text.
    header: &'static str,
}

impl Sink {
    fn new(header: &'static str) -> Sink {
        Sink { header, ..Sink::default() }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        self.bytes += bytes.len();
        self.goroutines += str::from_utf8(bytes).unwrap().matches(self.header).count();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a number about the process's memory from `/proc/self/status`, in KiB.
fn kib(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs `show`. Prints its duration, and how much the process's memory grew by its end and at its
/// peak.
fn measure(what: &str, show: impl FnOnce() -> String) {
    // Resets `VmHWM`, the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, start) = (kib("VmRSS"), Instant::now());
    let said = show();
    let (time, after, most) = (start.elapsed(), kib("VmRSS"), kib("VmHWM"));
    println!(
        "{what} grew {} worst {} KiB from {before} in {} ms: {said}",
        after.saturating_sub(before),
        most.saturating_sub(before),
        time.as_millis(),
    );
}

fn walk(count: usize) -> String {
    let (goroutines, frames) = rules::walk_all();
    assert_eq!(goroutines, count);
    format!("{goroutines} goroutines, {frames} frames")
}

fn written(count: usize, sink: &Sink) -> String {
    assert_eq!(sink.goroutines, count);
    assert!(sink.writes <= sink.bytes / 8192 + 3, "{} writes", sink.writes);
    format!("{} goroutines, {} bytes", sink.goroutines, sink.bytes)
}

fn text(count: usize) -> String {
    let mut sink = Sink::new("]:\n");
    runtime::dump_to(&mut sink).unwrap();
    written(count, &sink)
}

fn folded(count: usize) -> String {
    let text = runtime::dump_folded();
    assert!(text.starts_with(&format!("goroutine profile: total {count}\n")), "{text}");
    format!("{} bytes", text.len())
}

fn json(count: usize) -> String {
    let mut sink = Sink::new("{\"id\":");
    runtime::dump_json_to(&mut sink).unwrap();
    written(count, &sink)
}

/// The waiting goroutines form one group, and none is in a deadlock, because main holds the sender.
fn hints(count: usize) -> String {
    let hints = runtime::leak_hints(Duration::ZERO);
    let most = hints.leaks.iter().map(|leak| leak.goroutines.len()).max();
    assert_eq!((most, hints.deadlocks.len()), (Some(count - 1), 0));
    format!("{} groups", hints.leaks.len())
}

/// Measures each of `forms`, a comma-separated list, one after another.
pub(crate) fn program(count: usize, forms: &str) {
    let (sender, receiver) = chan::<u64>(0);
    for _ in 0..count {
        let receiver = receiver.clone();
        go(move || one_of_a_million(receiver));
    }
    while WAITING.load(SeqCst) < count {
        gosched::yield_now();
    }
    // Includes main.
    let all = count + 1;
    for form in forms.split(',') {
        measure(form, || match form {
            "walk" => walk(all),
            "text" => text(all),
            "folded" => folded(all),
            "json" => json(all),
            "hints" => hints(all),
            other => panic!("no form {other}"),
        });
    }
    drop(sender);
    while runtime::num_goroutines() > 1 {
        gosched::yield_now();
    }
}
