//! Reports the Ps that keep the world from stopping. A report never ends the process: the stop is
//! tried again.

use crate::gmp::g::G;
use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::SCHED;
use crate::sched::state::report;
use crate::sys::fatal::Stderr;
use std::fmt::Write;
use std::time::Duration;

/// How many Ps a report lists.
const MAX_LISTED: usize = 8;

/// The Ps that had not stopped when a stop of the world was cancelled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnstoppedPs {
    listed: [Option<UnstoppedP>; MAX_LISTED],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct UnstoppedP {
    p: u32,
    /// The M that has the P or is about to get it: the M's id and its thread's id.
    m: Option<(u32, i32)>,
    goroutine: Option<u64>,
    what: Activity,
}

#[derive(Clone, Copy, Debug)]
enum Activity {
    Running,
    InSyscall,
    InFlight,
    AwaitsThread,
}

impl UnstoppedPs {
    /// Collects the Ps in use that have not stopped. Called under the scheduler's lock, while the
    /// world should stop. Does not allocate.
    pub(crate) fn collect() -> UnstoppedPs {
        let mut unstopped = UnstoppedPs::default();
        for p in SCHED.used_ps().filter(|p| p.status() != PStatus::Stopped) {
            if let Some(place) = unstopped.listed.get_mut(unstopped.count) {
                *place = Some(UnstoppedP::of(p));
            }
            unstopped.count += 1;
        }
        unstopped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Prints which Ps have not stopped for `how_long`, and the stacks of their goroutines.
    /// Allocates and reads debug information, so the world must not be stopped.
    pub(crate) fn report(&self, reason: &str, how_long: Duration) {
        let mut out = Stderr::new();
        let _ = writeln!(
            out,
            "runtime: the world does not stop for {reason}: {} of {} Ps have not stopped in {} s; \
             the program continues, and the stop is retried",
            self.count,
            SCHED.procs(),
            how_long.as_secs(),
        );
        for p in self.listed.iter().flatten() {
            p.write(&mut out);
        }
        out.flush();
        let mut goroutines = [0; MAX_LISTED];
        let ids = self.listed.iter().flatten().filter_map(|p| p.goroutine);
        let count = goroutines.iter_mut().zip(ids).map(|(place, id)| *place = id).count();
        report::show(&goroutines[..count]);
    }
}

impl UnstoppedP {
    fn of(p: &'static P) -> UnstoppedP {
        let (m, what) = match (p.status(), p.m(), p.flight.current()) {
            (PStatus::Running, Some(m), _) if m.syscall_state.is_in_syscall_with_p() => {
                (Some(m), Activity::InSyscall)
            }
            (PStatus::Running, m, _) => (m, Activity::Running),
            (_, _, Some((_, receiver))) => (Some(receiver), Activity::InFlight),
            _ => (None, Activity::AwaitsThread),
        };
        let goroutine = m.and_then(|m| m.curg()).map(G::id);
        UnstoppedP { p: p.id, m: m.map(|m| (m.id, m.tid())), goroutine, what }
    }

    fn write(&self, out: &mut Stderr) {
        let _ = match self.what {
            Activity::Running => write!(out, "\tP{} is running", self.p),
            Activity::InSyscall => write!(out, "\tP{} is in a blocking call", self.p),
            Activity::InFlight => {
                write!(out, "\tP{} was handed to an M that has not acquired it", self.p)
            }
            Activity::AwaitsThread => write!(out, "\tP{} is waiting for a new thread", self.p),
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
