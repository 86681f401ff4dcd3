//! Every G, M and P in words: what a fatal error shows.

use super::{look, trace};
use crate::gmp::g::G;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sys::fatal::Stderr;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Whether the frames of waiting goroutines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    /// With the names of their functions: allocates, and reads debug information.
    Named,
    /// None: locks may be held, and memory may be broken.
    None,
}

/// Everything, in the lines of `trace`: for the end after a broken rule.
pub(crate) fn all(out: &mut Stderr) {
    let _ = trace::detailed_head(out, &look::head_at_the_end());
    let _ = look::write_ps(out);
    let _ = look::write_ms(out);
    match super::world::last_reason() {
        "" => {}
        reason => drop(writeln!(out, "last stop: {reason}")),
    }
    goroutines(out, Frames::None);
}

/// Goroutines only, in Go's layout; with [`Frames::Named`] in the order of their ids.
pub(crate) fn goroutines(out: &mut Stderr, frames: Frames) {
    let live = |g: &&'static G| g.id() != 0 && !matches!(g.state(), GState::Idle | GState::Dead);
    let all = slab::all().filter(live);
    if frames == Frames::None {
        return all.for_each(|g| goroutine(out, g, frames));
    }
    let mut sorted: Vec<(u64, &'static G)> = all.map(|g| (g.id(), g)).collect();
    sorted.sort_unstable_by_key(|(id, _)| *id);
    sorted.into_iter().for_each(|(_, g)| goroutine(out, g, frames));
}

fn goroutine(out: &mut Stderr, g: &'static G, frames: Frames) {
    let what = match g.state() {
        GState::Waiting => g.reason().words(),
        state => state.name(),
    };
    let locked = if g.locks.load(Ordering::Relaxed) > 0 { ", locked to thread" } else { "" };
    let _ = writeln!(out, "\ngoroutine {}{} [{what}{locked}]:", g.id(), g.short_name());
    if frames == Frames::Named && g.state() == GState::Waiting && g.has_stack() {
        named_frames(out, g);
    }
    if let Some(site) = g.site().filter(|_| g.parent() != 0) {
        let _ = writeln!(out, "created by goroutine {}\n\t{site}", g.parent());
    }
}

fn named_frames(out: &mut Stderr, g: &'static G) {
    let mut addresses = [0usize; 64];
    let mut count = 0;
    // SAFETY: owner — it waits, and nothing can make it ready any more.
    let saved = unsafe { g.saved.get() };
    let keep = |address: usize| {
        addresses[count] = address;
        count += 1;
        count < addresses.len()
    };
    // SAFETY: parked — as above.
    unsafe { gosched_context::unwind::walk(saved, keep) };
    for &address in &addresses[..count] {
        backtrace::resolve(address.saturating_sub(1) as *mut std::ffi::c_void, |symbol| {
            let _ = match symbol.name() {
                Some(name) => writeln!(out, "{name:#}()"),
                None => writeln!(out, "{address:#x}()"),
            };
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                let _ = writeln!(out, "\t{}:{line}", file.display());
            }
        });
    }
}
