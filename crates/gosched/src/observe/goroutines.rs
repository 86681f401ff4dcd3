//! What is told of each goroutine, whatever the form.

use super::level;
use crate::gmp::g::{Details, G};
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::viewer::{self, Frames, MANY, Manners, Viewer};
use crate::sys::clock;
use std::convert::Infallible;
use std::io::{self, Write};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A goroutine, as it was when it was looked at.
#[derive(Debug)]
pub(super) struct Goroutine {
    pub(super) id: u64,
    /// Where its record is.
    pub(super) gp: usize,
    /// The number of its M, and where that one's record is; where it has one, and details are told.
    pub(super) m: Option<(u32, usize)>,
    pub(super) state: GState,
    /// Why it waits, if it does.
    pub(super) reason: WaitReason,
    /// For how long it has waited, or has been in its call, in nanoseconds, about, if that is known.
    pub(super) waiting: Option<u64>,
    pub(super) is_locked: bool,
    /// Who started it; 0: no goroutine did.
    pub(super) parent: u64,
    /// Where.
    pub(super) site: Option<&'static Location<'static>>,
    /// What it runs.
    pub(super) runs: Option<&'static str>,
    pub(super) details: Option<Arc<Details>>,
}

impl Goroutine {
    /// What it does: Go's word.
    pub(super) fn what(&self) -> &'static str {
        G::words(self.state, self.reason)
    }

    /// Its labels; a name is one.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let details = self.details.as_deref();
        let name = details.and_then(|details| details.name.as_deref());
        let labels = details.map_or(&[][..], |details| &details.labels);
        let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        name.map(|name| ("name", name)).into_iter().chain(labels)
    }

    /// Where it was started; main was not, by the program.
    pub(super) fn site_of_creation(&self) -> Option<&'static Location<'static>> {
        self.site.filter(|_| self.id != 1)
    }

    /// The function that started it, as far as it is known: a closure is named after it.
    pub(super) fn creator(&self) -> &'static str {
        let runs = self.runs.unwrap_or("");
        match runs.find("::{{closure}}") {
            Some(end) => &runs[..end],
            None => "gosched::go",
        }
    }
}

/// Who is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    All,
    /// All but the caller.
    Others,
}

/// Calls `each` with every goroutine there is, one after the other: the caller, then the others in the order of
/// their ids. The frames are told beside it.
pub(super) fn for_each<E>(
    looks: &mut Viewer,
    whom: Whom,
    mut each: impl FnMut(&Viewer, &Goroutine, &Frames) -> Result<(), E>,
) -> Result<(), E> {
    let own = viewer::own();
    let is_own = |g: &'static G| own.is_some_and(|own| std::ptr::eq(own, g));
    let mut all: Vec<(u64, &'static G)> = slab::live().map(|g| (g.id(), g)).collect();
    all.sort_unstable_by_key(|&(id, g)| (!is_own(g), id));
    all.retain(|&(_, g)| whom == Whom::All || !is_own(g));
    let mut frames = Frames::default();
    for some in all.chunks(MANY) {
        looks.look_ahead(some.iter().map(|&(_, g)| g));
        for &(id, g) in some {
            if let Some(goroutine) = look_at(looks, g, id, &mut frames) {
                each(looks, &goroutine, &frames)?;
            }
        }
    }
    Ok(())
}

/// As [`for_each`]; what `print` adds to its text is written, and not kept. Whoever writes to a file need not buffer
/// it.
///
/// # Errors
/// `out` refuses, or `print` does.
pub(super) fn write_each(
    looks: &mut Viewer,
    whom: Whom,
    out: &mut dyn Write,
    mut print: impl FnMut(&mut Vec<u8>, &Viewer, &Goroutine, &Frames) -> io::Result<()>,
) -> io::Result<()> {
    /// Whole goroutines are written, so many bytes or more.
    const AT_ONCE: usize = 8 << 10;
    let mut text = Vec::new();
    for_each(looks, whom, |viewer, goroutine, frames| {
        print(&mut text, viewer, goroutine, frames)?;
        if text.len() < AT_ONCE {
            return Ok(());
        }
        let written = out.write_all(&text);
        text.clear();
        written
    })?;
    out.write_all(&text)
}

/// All that `write` writes.
pub(super) fn as_text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // A vector takes everything.
    let _ = write(&mut text);
    String::from_utf8(text).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into())
}

/// Looks at all of them and tells nobody: how many there are, and how many frames they have.
pub(crate) fn count() -> (usize, usize) {
    let (mut goroutines, mut count) = (0, 0);
    let Ok(()) = for_each(&mut viewer(), Whom::All, |_, _, frames| {
        goroutines += 1;
        count += frames.first.len() + frames.elided + frames.last.len();
        Ok::<(), Infallible>(())
    });
    (goroutines, count)
}

/// `None`: it has ended meanwhile.
fn look_at(viewer: &mut Viewer, g: &'static G, id: u64, frames: &mut Frames) -> Option<Goroutine> {
    // It has its number before it has the rest, and lives when it has everything.
    if g.id() != id || !g.moment().state().is_alive() {
        return None;
    }
    // They are taken back before it ends, and its frames are its own until then.
    let details = g.details();
    let look = viewer.look_at(g, frames)?;
    // Where Ms are many, to look for one takes long.
    let has_m = level::is_detailed() && matches!(look.state, GState::Running | GState::Syscall);
    let m = has_m.then(|| look.m.or_else(|| viewer::m_of(g))).flatten();
    let goroutine = Goroutine {
        id,
        gp: std::ptr::from_ref(g) as usize,
        m,
        state: look.state,
        reason: look.reason,
        waiting: look
            .since
            .filter(|_| matches!(look.state, GState::Waiting | GState::Syscall))
            .map(|since| clock::real_now().saturating_sub(since)),
        is_locked: g.locks.load(Ordering::Relaxed) > 0,
        parent: g.parent(),
        site: g.site(),
        runs: g.runs(),
        details,
    };
    // Its record may be another's by now.
    (g.id() == id).then_some(goroutine)
}

/// A viewer for programs that go on.
pub(super) fn viewer() -> Viewer {
    Viewer::new(Manners::Polite)
}
