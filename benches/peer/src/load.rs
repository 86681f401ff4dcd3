//! A large ring of tasks in which tokens always move, and a ticker beside it.

use crate::common::{Measured, timed};
use crate::ticks::Ticks;
use gosched::{chan, go};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of tokens in the ring, if the ring is large enough.
const TOKENS: usize = 1000;
/// How long the ticker runs.
const WINDOW: Duration = Duration::from_secs(3);
/// Number of hops that a task counts by itself before it adds them to the shared count.
const TOLD: u64 = 64;

/// Runs a ring of `n` tasks.
pub(crate) fn ring(n: u64) -> Measured {
    let (hops, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (txs, rxs): (Vec<_>, Vec<_>) = (0..n).map(|_| chan::<u64>(0)).unzip();
    for (from, to) in rxs.into_iter().zip(txs.iter().cycle().skip(1)) {
        let (to, hops, stop) = (to.clone(), hops.clone(), stop.clone());
        go(move || {
            let mut mine = 0;
            // A task that returns drops its channel ends, so its neighbours return too.
            while let Ok(value) = from.recv() {
                mine += 1;
                if stop.load(Ordering::Relaxed) || to.send(value + 1).is_err() {
                    break;
                }
                if mine % TOLD == 0 {
                    hops.fetch_add(TOLD, Ordering::Relaxed);
                }
            }
        });
    }
    // If every task had a token, no task could pass its token on.
    let tokens = TOKENS.min(txs.len() / 2);
    for token in 0..tokens {
        if txs[token * txs.len() / tokens].send(0).is_err() {
            unreachable!("the receiver exists");
        }
    }
    let ticks = Ticks::start(WINDOW, "latency_load", n);
    let before = hops.load(Ordering::Relaxed);
    let (ticks, wall) = timed(|| ticks.go_on());
    let hops = hops.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    ticks
        .report(Measured::new(hops, (n, wall)))
        .and("hops_per_s", hops as f64 / wall.as_secs_f64())
        .with("chan", "unbuffered")
}
