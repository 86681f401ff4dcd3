//! Finds suspicious waits: goroutines that wait for each other, and goroutines that have waited for
//! long.
//!
//! The program continues during the analysis. The analysis records all waiting goroutines, then
//! reads what each of them waits for (`block/wait_record`), and then checks that each has waited
//! all the time. So a result about locks was true at one moment. A result about channels is only as
//! good as what can be seen of the holders of their ends (`holders`).
//!
//! The analysis never ends a wait: it only reports.

mod holders;
mod waiting;

use crate::block::wait_record::WaitsFor;
use crate::gmp::g::G;
use crate::gmp::go_id::GoId;
use crate::gmp::state::GState;
use crate::sched::inspector::{CallerFrame, InterruptPolicy};
use crate::sys::clock;
use holders::Holders;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::time::Duration;
use waiting::{Graph, Waiting};

/// Suspected deadlocks and leaks among waiting goroutines, returned by
/// [`leak_hints`](crate::runtime::leak_hints).
///
/// The `Display` implementation prints a human-readable report.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LeakHints {
    /// The suspected deadlocks: goroutines that wait for each other.
    pub deadlocks: Vec<Deadlock>,
    /// The suspected leaks: goroutines that have waited for a long time, grouped by where they were
    /// started and what they wait for. The largest group comes first.
    pub leaks: Vec<Leak>,
}

/// A deadlock: goroutines that wait for each other, or a goroutine whose wait never ends, with the
/// goroutines that wait for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// The goroutines of the cycle: each waits for the next, and the last waits for the first. If
    /// there is a single goroutine and its [`waits_for`](Stuck::waits_for) is `None`, no goroutine
    /// can end its wait.
    pub goroutines: Vec<Stuck>,
    /// The number of other goroutines that wait for these, directly or through others.
    pub followers: usize,
    /// Whether the deadlock is certain. A deadlock of goroutines that wait for locks, or for each
    /// other to end, is certain. It is not certain if one of them waits on a channel, because the
    /// holders of a channel's ends are not always known.
    pub is_certain: bool,
}

/// A goroutine of a [`Deadlock`]: its wait never ends, as far as can be seen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stuck {
    /// The id of the goroutine.
    pub id: GoId,
    /// The state of the goroutine, as in a dump, for example `chan receive`.
    pub what: &'static str,
    /// The place where the goroutine was started.
    pub created_at: Option<&'static Location<'static>>,
    /// The goroutine that this goroutine waits for. `None` if no goroutine can end the wait.
    pub waits_for: Option<GoId>,
    /// The goroutine that held the lock this goroutine waits for, and that ended without releasing
    /// it. `None` if there is no such goroutine.
    pub held_by_ended: Option<GoId>,
}

/// A group of goroutines that have waited for a long time, started at the same place and in the
/// same state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// The place where the goroutines were started.
    pub created_at: Option<&'static Location<'static>>,
    /// The state of the goroutines, as in a dump, for example `chan receive`.
    pub what: &'static str,
    /// The ids of the goroutines, in ascending order.
    pub goroutines: Vec<GoId>,
    /// The longest wait of these goroutines, approximately.
    pub longest: Duration,
    /// The number of these goroutines whose wait never ends, as far as can be seen.
    pub stuck: usize,
    /// The number of these goroutines that wait on a channel whose opposite end no other goroutine
    /// seems to hold.
    pub alone: usize,
}

/// Analyses all waiting goroutines. A goroutine counts as leaked, and a wait at a channel as part
/// of a deadlock, only after a wait of at least `older_than`.
#[inline(never)]
pub(crate) fn leak_hints(older_than: Duration) -> LeakHints {
    // Captured before the analysis, which leaves words of channel ends on this stack: the search
    // covers only the frames above this one.
    let here = CallerFrame::new();
    all_hints(older_than, &here)
}

#[inline(never)]
fn all_hints(older_than: Duration, here: &CallerFrame) -> LeakHints {
    let analysis = Analysis::new(older_than, here, InterruptPolicy::RestartableOnly);
    LeakHints { deadlocks: analysis.deadlocks(), leaks: analysis.leaks() }
}

/// Finds only deadlocks, in a process that is about to end.
pub(super) fn deadlocks(older_than: Duration) -> LeakHints {
    let analysis = Analysis::new(older_than, &CallerFrame::new(), InterruptPolicy::Always);
    LeakHints { deadlocks: analysis.deadlocks(), leaks: Vec::new() }
}

/// The state of one analysis. Times are in nanoseconds.
struct Analysis {
    graph: Graph,
    holders: Holders,
    now: u64,
    older_than: u64,
}

impl Analysis {
    fn new(older_than: Duration, here: &CallerFrame, policy: InterruptPolicy) -> Analysis {
        let waiting = waiting::all();
        let now = clock::real_now();
        let older_than = u64::try_from(older_than.as_nanos()).unwrap_or(u64::MAX);
        let is_old = |one: &Waiting| now.saturating_sub(one.since) >= older_than;
        let ends = waiting::ends_of(waiting.iter().filter(|one| is_old(one)));
        let holders = Holders::of_ends(&ends, here, policy);
        let graph = Graph::new(waiting, &holders, is_old);
        Analysis { graph, holders, now, older_than }
    }

    fn one(&self, place: usize) -> &Waiting {
        &self.graph.waiting[place]
    }

    /// Finds the deadlocks. Each stuck goroutine points to one goroutine that it waits for.
    /// Following these pointers leads to a circle, or to a goroutine that points to none.
    fn deadlocks(&self) -> Vec<Deadlock> {
        const NEW: usize = usize::MAX;
        let count = self.graph.waiting.len();
        // `walks` holds the first walk that visited each goroutine. `ends` holds, for each walk,
        // the index in `found` of the deadlock that the walk led to.
        let mut walks = vec![NEW; count];
        let mut ends = Vec::new();
        let mut found: Vec<Vec<usize>> = Vec::new();
        let mut followers: Vec<usize> = Vec::new();
        for first in (0..count).filter(|&place| self.graph.is_stuck(place)) {
            let walk = ends.len();
            let (mut path, mut at) = (Vec::new(), Some(first));
            while let Some(place) = at.filter(|&place| walks[place] == NEW) {
                walks[place] = walk;
                path.push(place);
                at = self.graph.next(place);
            }
            let (end, new) = match at {
                Some(place) if walks[place] != walk => (ends[walks[place]], path.len()),
                _ => {
                    let circle = match at {
                        Some(place) => path.iter().position(|&other| other == place).unwrap_or(0),
                        // The last goroutine of the path waits for no other.
                        None => path.len().saturating_sub(1),
                    };
                    found.push(path.split_off(circle));
                    followers.push(0);
                    (found.len() - 1, path.len())
                }
            };
            ends.push(end);
            followers[end] += new;
        }
        let is_told = |(circle, followers): &(Vec<usize>, usize)| {
            // A single goroutine that waits forever on purpose, as in `select!` without arms, is
            // not a deadlock.
            let first = circle[0];
            let is_orphan = self.graph.ended_holder(first).is_some();
            self.graph.next(first).is_some() || is_orphan || *followers > 0
        };
        let found = found.into_iter().zip(followers).filter(is_told);
        let mut deadlocks: Vec<_> =
            found.map(|(circle, followers)| self.deadlock(&circle, followers)).collect();
        deadlocks.sort_by_key(|deadlock| deadlock.goroutines.first().map(|stuck| stuck.id));
        deadlocks
    }

    fn deadlock(&self, circle: &[usize], followers: usize) -> Deadlock {
        let least = (0..circle.len()).min_by_key(|&nth| self.one(circle[nth]).id).unwrap_or(0);
        let order = circle[least..].iter().chain(&circle[..least]);
        let goroutines = order.map(|&place| {
            let one = self.one(place);
            Stuck {
                id: GoId::new(one.id),
                what: one.what(),
                created_at: one.site,
                waits_for: self.graph.next(place).map(|next| GoId::new(self.one(next).id)),
                held_by_ended: self.graph.ended_holder(place).map(GoId::new),
            }
        });
        let is_of_channels =
            |&place: &usize| matches!(self.one(place).waits_for, WaitsFor::Ends(_));
        Deadlock {
            goroutines: goroutines.collect(),
            followers,
            is_certain: !circle.iter().any(is_of_channels),
        }
    }

    fn leaks(&self) -> Vec<Leak> {
        let mut groups = HashMap::<_, Leak>::new();
        for (place, one) in self.graph.waiting.iter().enumerate() {
            let waited = self.now.saturating_sub(one.since);
            if waited < self.older_than || one.waits_for == WaitsFor::Time {
                continue;
            }
            let (created_at, what) = (one.site, one.what());
            let group = groups.entry((created_at.map(std::ptr::from_ref), what));
            let leak = group.or_insert_with(|| Leak {
                created_at,
                what,
                goroutines: Vec::new(),
                longest: Duration::ZERO,
                stuck: 0,
                alone: 0,
            });
            leak.goroutines.push(GoId::new(one.id));
            leak.longest = leak.longest.max(Duration::from_nanos(waited));
            leak.stuck += usize::from(self.graph.is_stuck(place));
            leak.alone += usize::from(waiting::is_sole_holder(one, &self.holders));
        }
        let mut leaks: Vec<Leak> = groups.into_values().collect();
        for leak in &mut leaks {
            leak.goroutines.sort_unstable();
        }
        leaks.sort_by_key(|leak| (usize::MAX - leak.goroutines.len(), leak.goroutines[0]));
        leaks
    }
}

impl Waiting {
    fn what(&self) -> &'static str {
        G::status_text(GState::Waiting, self.reason)
    }
}

impl LeakHints {
    /// Returns whether there are neither suspected deadlocks nor suspected leaks.
    pub fn is_empty(&self) -> bool {
        self.deadlocks.is_empty() && self.leaks.is_empty()
    }
}

impl fmt::Display for LeakHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deadlocks.iter().try_for_each(|deadlock| deadlock.fmt(f))?;
        self.leaks.iter().try_for_each(|leak| leak.fmt(f))
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let may = if self.is_certain { "" } else { "may " };
        match &self.goroutines[..] {
            [one] if one.waits_for.is_none() => writeln!(f, "1 goroutine waits forever:")?,
            [_] if self.is_certain => writeln!(f, "1 goroutine waits for itself:")?,
            [_] => writeln!(f, "1 goroutine may wait for itself:")?,
            all => writeln!(f, "{} goroutines {may}wait for each other:", all.len())?,
        }
        self.goroutines.iter().try_for_each(|stuck| stuck.fmt(f))?;
        match self.followers {
            0 => Ok(()),
            1 => writeln!(f, "\t1 more goroutine waits for the above"),
            count => writeln!(f, "\t{count} more goroutines wait for the above"),
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\tgoroutine {} [{}]", self.id, self.what)?;
        if let Some(other) = self.waits_for {
            write!(f, " waits for goroutine {other}")?;
        }
        if let Some(ended) = self.held_by_ended {
            write!(f, " waits for a lock that goroutine {ended} still held when it ended")?;
        }
        writeln!(f, "{}", CreatedAt(self.created_at))
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The maximum number of ids that are printed.
        const NAMED: usize = 10;
        let (count, what) = (self.goroutines.len(), self.what);
        let s = if count == 1 { " has" } else { "s have" };
        write!(f, "{count} goroutine{s} waited for up to {:.1?} [{what}]", self.longest)?;
        writeln!(f, "{}", CreatedAt(self.created_at))?;
        f.write_str("\tgoroutine")?;
        self.goroutines.iter().take(NAMED).try_for_each(|id| write!(f, " {id}"))?;
        f.write_str(if count > NAMED { " ...\n" } else { "\n" })?;
        if self.stuck > 0 {
            writeln!(f, "\t{} of these will wait forever, as far as can be seen", self.stuck)?;
        }
        if self.alone > 0 {
            let alone = self.alone;
            writeln!(
                f,
                "\t{alone} of these wait on a channel whose opposite end no other goroutine seems to hold"
            )?;
        }
        Ok(())
    }
}

struct CreatedAt(Option<&'static Location<'static>>);

impl fmt::Display for CreatedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(site) => write!(f, ", created at {}:{}", site.file(), site.line()),
            None => Ok(()),
        }
    }
}
