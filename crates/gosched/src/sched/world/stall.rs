//! Ps that have not stopped although the world is to stop: which they are, in words.

use crate::gmp::g::G;
use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::SCHED;
use crate::sched::state::report;
use crate::sched::switch::syscall;
use crate::sys::fatal::Stderr;
use std::fmt::Write;
use std::time::Duration;

/// How many Ps are named.
const NAMED: usize = 8;

/// The Ps that kept the world from stopping when a stop was taken back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missing {
    named: [Option<MissingP>; NAMED],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct MissingP {
    p: u32,
    /// The M that has the P or is to get the P, and that M's thread.
    m: Option<(u32, i32)>,
    goroutine: Option<u64>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Runs,
    IsInCall,
    IsInFlight,
    WaitsForThread,
}

impl Missing {
    /// The Ps in use that have not stopped: under the scheduler's lock, in a world that is to stop. Allocates nothing.
    pub(crate) fn now() -> Missing {
        let mut missing = Missing::default();
        for p in SCHED.used_ps().filter(|p| p.status() != PStatus::Stopped) {
            if let Some(place) = missing.named.get_mut(missing.count) {
                *place = Some(MissingP::of(p));
            }
            missing.count += 1;
        }
        missing
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Says which Ps have not stopped for `how_long`, and what their goroutines do. Allocates, and reads debug
    /// information: not while the world is stopped.
    pub(crate) fn report(&self, reason: &str, how_long: Duration) {
        let mut out = Stderr::new();
        let _ = writeln!(
            out,
            "runtime: the world does not stop for {reason}: {} of {} Ps have not stopped in {} s; \
             the program goes on, and the stop is tried again",
            self.count,
            SCHED.procs(),
            how_long.as_secs(),
        );
        for p in self.named.iter().flatten() {
            p.write(&mut out);
        }
        out.flush();
        let mut goroutines = [0; NAMED];
        let ids = self.named.iter().flatten().filter_map(|p| p.goroutine);
        let count = goroutines.iter_mut().zip(ids).map(|(place, id)| *place = id).count();
        report::show(&goroutines[..count]);
    }
}

impl MissingP {
    fn of(p: &'static P) -> MissingP {
        let (m, what) = match (p.status(), p.m(), p.flight()) {
            (PStatus::Running, Some(m), _) if syscall::is_in_call(m) => (Some(m), What::IsInCall),
            (PStatus::Running, m, _) => (m, What::Runs),
            (_, _, Some((_, receiver))) => (Some(receiver), What::IsInFlight),
            _ => (None, What::WaitsForThread),
        };
        let goroutine = m.and_then(|m| m.curg()).map(G::id);
        MissingP { p: p.id, m: m.map(|m| (m.id, m.thread())), goroutine, what }
    }

    fn write(&self, out: &mut Stderr) {
        let _ = match self.what {
            What::Runs => write!(out, "\tP{} runs", self.p),
            What::IsInCall => write!(out, "\tP{} is in a marked call", self.p),
            What::IsInFlight => write!(out, "\tP{} was handed over and not acquired", self.p),
            What::WaitsForThread => write!(out, "\tP{} waits for a thread", self.p),
        };
        if let Some((m, thread)) = self.m {
            let _ = write!(out, ": M{m} (thread {thread})");
        }
        if let Some(goroutine) = self.goroutine {
            let _ = write!(out, ", goroutine {goroutine}");
        }
        let _ = writeln!(out);
    }
}
