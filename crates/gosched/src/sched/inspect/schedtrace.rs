//! The state of the scheduler in Go's format: every N milliseconds with
//! `GODEBUG=schedtrace=N[,scheddetail=1]`, by `runtime::sched_trace`, and in fatal errors.
//!
//! Writing it stops nothing and allocates nothing. Each line is true of the time when it was
//! written, as in Go. Goroutines are written as they are found, so a million of them take no
//! memory.
//!
//! A trace never contains the frames of a goroutine: `inspector` returns them.

use crate::gmp::g::G;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::inspect::contract::of_backend;
use crate::sched::inspect::types::{self, TraceHeader};
use crate::sys::clock;
use gosched_fiber::base::environment::{self, Switch};
use gosched_fiber::stderr;
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Interval between two traces, in nanoseconds; 0 if the trace is off.
static PERIOD_NANOS: AtomicU64 = AtomicU64::new(0);

/// Whether `scheddetail=1` is set.
static DETAIL: AtomicBool = AtomicBool::new(false);

/// When the next trace is due.
static DUE: AtomicU64 = AtomicU64::new(u64::MAX);

/// When the runtime started.
static START: OnceLock<u64> = OnceLock::new();

/// Reads the environment. Called when the runtime starts.
pub(crate) fn start() {
    let now = *START.get_or_init(clock::real_now);
    let number = |switch: &Switch| -> u64 {
        switch.number().and_then(|value| value.try_into().ok()).unwrap_or(0)
    };
    let millis = number(&environment::SCHEDTRACE);
    if millis > 0 {
        DETAIL.store(number(&environment::SCHEDDETAIL) > 0, Ordering::Relaxed);
        PERIOD_NANOS.store(millis.saturating_mul(1_000_000), Ordering::Relaxed);
        DUE.store(now, Ordering::Relaxed);
    }
}

pub(crate) fn is_on() -> bool {
    PERIOD_NANOS.load(Ordering::Relaxed) > 0
}

/// Returns the time until the next trace is due, in nanoseconds.
pub(crate) fn until_due(now: u64) -> u64 {
    DUE.load(Ordering::Relaxed).saturating_sub(now)
}

/// Prints a trace if one is due. Called by sysmon, or by [`print_loop`].
pub(crate) fn print_if_due(now: u64) {
    if now < DUE.load(Ordering::Relaxed) {
        return;
    }
    DUE.store(now.saturating_add(PERIOD_NANOS.load(Ordering::Relaxed)), Ordering::Relaxed);
    print();
}

/// Prints a trace on standard error.
/// Go: schedtrace.
#[cold]
#[inline(never)]
fn print() {
    let mut out = StderrBlock::new();
    let _ =
        if DETAIL.load(Ordering::Relaxed) { detailed(&mut out) } else { plain(&mut out, &head()) };
    out.flush(out.len);
}

/// Prints the traces on the threads backend, which has no sysmon. Runs on its own thread.
pub(crate) fn print_loop() {
    loop {
        let now = clock::real_now();
        print_if_due(now);
        std::thread::sleep(Duration::from_nanos(until_due(now)));
    }
}

/// Writes the plain line, then every P, M and G.
pub(crate) fn write_all(out: &mut dyn Write) -> fmt::Result {
    plain(out, &head())?;
    rest(out)
}

/// Writes the trace as with `scheddetail=1`.
/// Go: schedtrace(detailed = true).
fn detailed(out: &mut dyn Write) -> fmt::Result {
    detailed_head(out, &head())?;
    rest(out)
}

fn rest(out: &mut dyn Write) -> fmt::Result {
    of_backend!(write_ps(out))?;
    of_backend!(write_ms(out))?;
    // Go's list of goroutines includes dead ones.
    slab::all().filter(|g| g.id() != 0).try_for_each(|g| g_line(out, g))
}

/// Returns the counts for the first line. Counts under the scheduler's lock are of one moment.
fn head() -> TraceHeader {
    of_backend!(head())
}

/// Writes the part of the first line that both formats share.
fn write_header(out: &mut dyn Write, head: &TraceHeader) -> fmt::Result {
    let now = clock::real_now();
    let millis = (now - START.get().copied().unwrap_or(now)) / 1_000_000;
    let TraceHeader { procs, idle_ps, threads, spinning, idle_ms, queued, .. } = head;
    write!(
        out,
        "SCHED {millis}ms: gomaxprocs={procs} idleprocs={idle_ps} threads={threads} \
         spinningthreads={spinning} needspinning=0 idlethreads={idle_ms} runqueue={queued}"
    )
}

/// Writes one line with the lengths of all queues.
fn plain(out: &mut dyn Write, head: &TraceHeader) -> fmt::Result {
    write_header(out, head)?;
    write!(out, " [ ")?;
    (0..head.procs)
        .try_for_each(|index| write!(out, "{} ", of_backend!(length_and_tick(index)).0))?;
    write!(out, "] schedticks=[ ")?;
    (0..head.procs)
        .try_for_each(|index| write!(out, "{} ", of_backend!(length_and_tick(index)).1))?;
    writeln!(out, "]")
}

/// Writes one line without the lengths of the queues.
pub(crate) fn detailed_head(out: &mut dyn Write, head: &TraceHeader) -> fmt::Result {
    write_header(out, head)?;
    let TraceHeader { stopping, locked_ms, stop_wait, sysmon_sleeps, .. } = head;
    writeln!(
        out,
        " gcwaiting={stopping} nmidlelocked={locked_ms} stopwait={stop_wait} \
         sysmonwait={sysmon_sleeps}"
    )
}

fn g_line(out: &mut dyn Write, g: &'static G) -> fmt::Result {
    let (id, state) = (g.id(), g.state());
    let runs = matches!(state, GState::Running | GState::Syscall);
    let m = types::NumberOrNil(runs.then(|| of_backend!(m_of(g))).flatten());
    let locked = types::NumberOrNil(of_backend!(locked_m_of(g)));
    let (state, why) = (state as u32, g.reason().words());
    writeln!(out, "  G{id}: status={state}({why}) m={m} lockedm={locked}")
}

/// Standard error without std's lock. Writes whole lines with as few system calls as the buffer
/// allows, so that the output of other threads does not tear a block of lines.
struct StderrBlock {
    buffer: [u8; StderrBlock::BUFFER_BYTES],
    len: usize,
}

impl StderrBlock {
    /// Size of the buffer, which is on sysmon's stack.
    const BUFFER_BYTES: usize = 64 << 10;

    const fn new() -> StderrBlock {
        StderrBlock { buffer: [0; StderrBlock::BUFFER_BYTES], len: 0 }
    }

    /// Writes the first `count` bytes. Bytes that the system refuses are lost.
    fn flush(&mut self, count: usize) {
        stderr::write(&self.buffer[..count]);
        self.buffer.copy_within(count..self.len, 0);
        self.len -= count;
    }
}

impl Write for StderrBlock {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut text = text.as_bytes();
        while !text.is_empty() {
            if self.len == StderrBlock::BUFFER_BYTES {
                let line_end = self.buffer.iter().rposition(|&byte| byte == b'\n');
                self.flush(line_end.map_or(StderrBlock::BUFFER_BYTES, |at| at + 1));
            }
            let count = text.len().min(StderrBlock::BUFFER_BYTES - self.len);
            self.buffer[self.len..self.len + count].copy_from_slice(&text[..count]);
            self.len += count;
            text = &text[count..];
        }
        Ok(())
    }
}
