//! What looks wrong among goroutines that wait: knots of ones that wait for each other, and ones that have waited for
//! long.
//!
//! The program goes on meanwhile. Each goroutine is looked at, then what it waits for (`block/waits`), then whether it has
//! waited all the time: what is told of locks was true at one moment. What is told of channels is as good as what can
//! be seen of who holds their ends (`holders`).

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

/// What looks wrong among goroutines that wait: see [`leak_hints`](crate::runtime::leak_hints).
///
/// Printed, it is a text for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LeakHints {
    /// Goroutines that wait for each other.
    pub deadlocks: Vec<Deadlock>,
    /// Goroutines that have waited for long; those that wait for the same from the same place are one. The most
    /// come first.
    pub leaks: Vec<Leak>,
}

/// Goroutines that wait for each other; or one that waits for what never comes, and others that wait for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// Each waits for the next, and the last for the first, unless that one's wait is said to be for nobody.
    pub goroutines: Vec<Stuck>,
    /// How many others wait for these, or for ones that do.
    pub followers: usize,
    /// They hold locks, or wait for each other's end: there is no doubt. Of a channel it is not always known who
    /// holds its other end: then they may wait for each other.
    pub is_certain: bool,
}

/// One that waits for ever.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stuck {
    /// Which one.
    pub id: GoId,
    /// What it does, as a dump says it.
    pub what: &'static str,
    /// Where it was started.
    pub created_at: Option<&'static Location<'static>>,
    /// Whom it waits for. `None`: nobody can end it.
    pub waits_for: Option<GoId>,
    /// The one that held the lock it waits for, and has ended without giving it back.
    pub held_by_ended: Option<GoId>,
}

/// Goroutines that have waited for long.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// Where they were started.
    pub created_at: Option<&'static Location<'static>>,
    /// What they do, as a dump says it.
    pub what: &'static str,
    /// Which ones, in order.
    pub goroutines: Vec<GoId>,
    /// How long the first of them has waited, about.
    pub longest: Duration,
    /// How many of them wait for one that waits for ever, or for nobody.
    pub stuck: usize,
    /// How many of them wait at a channel whose other end no other goroutine is seen to hold.
    pub alone: usize,
}

/// What looks wrong now. Channels are considered when one has waited for so long.
#[inline(never)]
pub(crate) fn leak_hints(older_than: Duration) -> LeakHints {
    // Before anything is known: what is seen of the caller's stack is the program's.
    let here = CallerFrame::new();
    all_hints(older_than, &here)
}

#[inline(never)]
fn all_hints(older_than: Duration, here: &CallerFrame) -> LeakHints {
    let analysis = Analysis::new(older_than, here, InterruptPolicy::RestartableOnly);
    LeakHints { deadlocks: analysis.deadlocks(), leaks: analysis.leaks() }
}

/// Only those that wait for each other, in a process that ends.
pub(super) fn deadlocks(older_than: Duration) -> LeakHints {
    let analysis = Analysis::new(older_than, &CallerFrame::new(), InterruptPolicy::Always);
    LeakHints { deadlocks: analysis.deadlocks(), leaks: Vec::new() }
}

/// What was seen.
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

    /// Each one that waits for ever points at one that it waits for: whoever follows that comes to a circle, or to
    /// one that points at nobody.
    fn deadlocks(&self) -> Vec<Deadlock> {
        const NEW: usize = usize::MAX;
        let count = self.graph.waiting.len();
        // Which walk came by first; and to which end that came.
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
                        // The last one waits for nobody.
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
            // Whoever waits for ever by itself, as `select!` without arms does, means to.
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
    /// Nothing looks wrong.
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
            [one] if one.waits_for.is_none() => writeln!(f, "1 goroutine waits for ever:")?,
            [_] if self.is_certain => writeln!(f, "1 goroutine waits for itself:")?,
            [_] => writeln!(f, "1 goroutine may wait for itself:")?,
            all => writeln!(f, "{} goroutines {may}wait for each other:", all.len())?,
        }
        self.goroutines.iter().try_for_each(|stuck| stuck.fmt(f))?;
        match self.followers {
            0 => Ok(()),
            1 => writeln!(f, "\t1 more waits for that"),
            count => writeln!(f, "\t{count} more wait for that"),
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
            write!(f, " waits for a lock that goroutine {ended} had when it ended")?;
        }
        writeln!(f, "{}", CreatedAt(self.created_at))
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// So many are named.
        const NAMED: usize = 10;
        let (count, what) = (self.goroutines.len(), self.what);
        let s = if count == 1 { " has" } else { "s have" };
        write!(f, "{count} goroutine{s} waited for up to {:.1?} [{what}]", self.longest)?;
        writeln!(f, "{}", CreatedAt(self.created_at))?;
        f.write_str("\tgoroutine")?;
        self.goroutines.iter().take(NAMED).try_for_each(|id| write!(f, " {id}"))?;
        f.write_str(if count > NAMED { " ...\n" } else { "\n" })?;
        if self.stuck > 0 {
            writeln!(f, "\t{} will wait for ever, as far as it can be seen", self.stuck)?;
        }
        if self.alone > 0 {
            let alone = self.alone;
            writeln!(
                f,
                "\tno other goroutine is seen to hold the other end of the channel of {alone}"
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
