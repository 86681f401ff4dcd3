//! What is shown of each goroutine, in every output format. This module never chooses the format:
//! `text`, `json` and `folded` do.

use super::level;
use crate::gmp::g::{Details, G};
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::probe::wait_reason::WaitReason;
use crate::sched::inspector::{self, BATCH_STACKS, Frames, Inspector, InterruptPolicy};
use crate::sys::clock;
use std::convert::Infallible;
use std::io::{self, Write};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A goroutine, as it was when it was inspected.
#[derive(Debug)]
pub(super) struct Goroutine {
    pub(super) id: u64,
    /// The address of its G.
    pub(super) gp: usize,
    /// The number and the address of its M. `None` if it has no M, or if details are not shown.
    pub(super) m: Option<(u32, usize)>,
    pub(super) state: GState,
    /// Why the goroutine waits, if it does.
    pub(super) reason: WaitReason,
    /// How long the goroutine has waited or has been in a system call, approximately, in
    /// nanoseconds. `None` if it does neither, or if that is not known.
    pub(super) waiting: Option<u64>,
    pub(super) is_locked: bool,
    /// The id of the goroutine that started this one; 0 if no goroutine did.
    pub(super) parent: u64,
    /// Where the goroutine was started.
    pub(super) site: Option<&'static Location<'static>>,
    /// The type name of the closure or function that the goroutine runs.
    pub(super) runs: Option<&'static str>,
    pub(super) details: Option<Arc<Details>>,
}

impl Goroutine {
    /// Returns the status in Go's words.
    pub(super) fn status(&self) -> &'static str {
        G::status_text(self.state, self.reason)
    }

    /// Returns the labels as keys and values. The name of the goroutine is a label with the key
    /// `name`.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let details = self.details.as_deref();
        let name = details.and_then(|details| details.name.as_deref());
        let labels = details.map_or(&[][..], |details| &details.labels);
        let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        name.map(|name| ("name", name)).into_iter().chain(labels)
    }

    /// Returns where the goroutine was started. Returns `None` for main, which the program did not
    /// start.
    pub(super) fn site_of_creation(&self) -> Option<&'static Location<'static>> {
        self.site.filter(|_| self.id != 1)
    }

    /// Returns the name of the function that started the goroutine, or `?` if it is not known. If
    /// the goroutine runs a closure, that is the function that contains the closure.
    pub(super) fn creator(&self) -> String {
        /// What Go prints if the name is not known.
        const UNKNOWN: &str = "?";
        let is_own = self.site.is_some_and(|site| site.file().starts_with(own_folder()));
        let creator = self.runs.and_then(|runs| creator_of(runs, is_own));
        creator.map_or(UNKNOWN.to_owned(), without_arguments)
    }
}

/// Returns the folder of this crate's source files, as the compiler names it.
fn own_folder() -> &'static str {
    file!().trim_end_matches("observe/goroutines.rs")
}

/// Returns the function that contains a closure, from the name of the closure's type. Returns
/// `None` if the type is not a closure.
///
/// A closure of this crate wraps the program's closure, whose type is then the last type argument
/// of the function that contains the wrapper. In that case the function that contains the program's
/// closure is returned, unless the goroutine was started in this crate (`is_own`).
fn creator_of(closure: &str, is_own: bool) -> Option<&str> {
    let function = closure.strip_suffix("::{{closure}}")?;
    if !is_own && function.trim_start_matches('<').starts_with("gosched::") {
        creator_of(last_argument(function)?, is_own)
    } else {
        Some(function)
    }
}

/// Returns `D` from `a::b<C, D>`.
fn last_argument(function: &str) -> Option<&str> {
    let arguments = function.strip_suffix('>')?;
    let mut depth = 0;
    let start = arguments.rmatch_indices(['<', '>', ' ']).find(|&(at, found)| {
        let is_behind = |before| arguments[..at].ends_with(before);
        match found {
            ">" if !is_behind('-') => depth += 1,
            "<" if depth > 0 => depth -= 1,
            _ => return depth == 0 && (found == "<" || is_behind(',')),
        }
        false
    });
    start.map(|(at, bracket)| &arguments[at + bracket.len()..])
}

/// Removes the type arguments from a name: `a::B<C>::c<D>` becomes `a::B::c`, and `<A as B<C>>::c`
/// becomes `<A as B>::c`.
fn without_arguments(name: &str) -> String {
    let mut shown = String::new();
    let (mut depth, mut before) = (0, ' ');
    for c in name.chars() {
        let is_behind_a_name = shown.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        match c {
            '<' if depth > 0 || is_behind_a_name => depth += 1,
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth > 0 => {}
            _ => shown.push(c),
        }
        before = c;
    }
    shown
}

/// Which goroutines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoroutineFilter<'a> {
    All,
    /// All goroutines except the caller.
    AllButCaller,
    /// The goroutines with these ids.
    Only(&'a [u64]),
}

/// Calls `each` with every goroutine that the filter selects, and with its frames. The caller comes
/// first, then the other goroutines in the order of their ids.
pub(super) fn for_each<E>(
    looks: &mut Inspector,
    filter: GoroutineFilter<'_>,
    mut each: impl FnMut(&Inspector, &Goroutine, &Frames) -> Result<(), E>,
) -> Result<(), E> {
    let own = inspector::own();
    let is_own = |g: &'static G| own.is_some_and(|own| std::ptr::eq(own, g));
    let mut all: Vec<(u64, &'static G)> = slab::live().map(|g| (g.id(), g)).collect();
    all.sort_unstable_by_key(|&(id, g)| (!is_own(g), id));
    all.retain(|&(id, g)| match filter {
        GoroutineFilter::All => true,
        GoroutineFilter::AllButCaller => !is_own(g),
        GoroutineFilter::Only(ids) => ids.contains(&id),
    });
    let mut frames = Frames::default();
    for some in all.chunks(BATCH_STACKS) {
        looks.prefetch(some.iter().map(|&(_, g)| g));
        for &(id, g) in some {
            if let Some(goroutine) = look_at(looks, g, id, &mut frames) {
                each(looks, &goroutine, &frames)?;
            }
        }
    }
    Ok(())
}

/// Calls `print` for each goroutine, as [`for_each`] does, and writes the text that `print` appends
/// to its buffer. The text is written in large pieces, so `out` needs no buffer, and is not kept in
/// memory.
///
/// # Errors
/// `out` or `print` fails.
pub(super) fn write_each(
    looks: &mut Inspector,
    filter: GoroutineFilter<'_>,
    out: &mut dyn Write,
    mut print: impl FnMut(&mut Vec<u8>, &Inspector, &Goroutine, &Frames) -> io::Result<()>,
) -> io::Result<()> {
    /// The minimum size of a write in bytes, except the last. No goroutine is split between two
    /// writes.
    const FLUSH_BYTES: usize = 8 << 10;
    let mut text = Vec::new();
    for_each(looks, filter, |inspector, goroutine, frames| {
        print(&mut text, inspector, goroutine, frames)?;
        if text.len() < FLUSH_BYTES {
            return Ok(());
        }
        let written = out.write_all(&text);
        text.clear();
        written
    })?;
    out.write_all(&text)
}

/// Returns everything that `write` writes.
pub(super) fn as_text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // A write to a `Vec` does not fail.
    let _ = write(&mut text);
    String::from_utf8(text).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into())
}

/// Inspects all goroutines without printing them. Returns the number of goroutines and the number
/// of their frames.
pub(crate) fn count_goroutines_and_frames() -> (usize, usize) {
    let (mut goroutines, mut count) = (0, 0);
    let Ok(()) = for_each(&mut inspector(), GoroutineFilter::All, |_, _, frames| {
        goroutines += 1;
        count += frames.first.len() + frames.elided + frames.last.len();
        Ok::<(), Infallible>(())
    });
    (goroutines, count)
}

/// Inspects a goroutine. Returns `None` if it has ended meanwhile.
fn look_at(
    inspector: &mut Inspector,
    g: &'static G,
    id: u64,
    frames: &mut Frames,
) -> Option<Goroutine> {
    // A G gets its id before its other fields, and becomes alive when all fields are set.
    if g.id() != id || !g.state_version().state().is_alive() {
        return None;
    }
    // Read before the frames: a goroutine drops its details before it ends, and its frames stay its
    // own until it ends.
    let details = g.details();
    let look = inspector.inspect(g, frames)?;
    // Only if the M is shown: the search takes long if there are many Ms.
    let has_m = level::is_detailed() && matches!(look.state, GState::Running | GState::Syscall);
    let m = has_m.then(|| look.m.or_else(|| inspector::m_of(g))).flatten();
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
        is_locked: g.os_thread_lock_count.load(Ordering::Relaxed) > 0,
        parent: g.parent(),
        site: g.site(),
        runs: g.task_type_name(),
        details,
    };
    // The G may belong to another goroutine by now.
    (g.id() == id).then_some(goroutine)
}

/// Creates an inspector for a program that continues.
pub(super) fn inspector() -> Inspector {
    Inspector::new(InterruptPolicy::RestartableOnly)
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Starts {
        fn starts<F: FnOnce()>(&self, f: F) -> &'static str;
    }

    struct Of<T>(T);

    impl<T> Starts for Of<T> {
        fn starts<F: FnOnce()>(&self, f: F) -> &'static str {
            let _ = &f;
            name_of(&move || f())
        }
    }

    impl<T> Of<T> {
        fn runs<F: FnOnce()>(&self, f: F) -> &'static str {
            name_of(&move || f())
        }
    }

    fn name_of<F>(_: &F) -> &'static str {
        std::any::type_name::<F>()
    }

    fn creator(runs: &'static str) -> Option<String> {
        creator_of(runs, true).map(without_arguments)
    }

    #[test]
    fn a_closure_belongs_to_the_function_that_contains_it() {
        const HERE: &str =
            concat!(module_path!(), "::a_closure_belongs_to_the_function_that_contains_it");
        let closure = || {};
        assert_eq!(creator(name_of(&closure)).as_deref(), Some(HERE));
        let outer = || name_of(&|| {});
        assert_eq!(creator(outer()), Some(format!("{HERE}::{{{{closure}}}}")));
        let given: Of<fn(u8) -> u8> = Of(|x| x);
        let method = concat!(module_path!(), "::Of::runs");
        assert_eq!(creator(given.runs(closure)).as_deref(), Some(method));
        let of_trait = creator(given.starts(closure)).unwrap();
        let (ours, its) = (concat!(module_path!(), "::Of"), concat!(module_path!(), "::Starts"));
        assert_eq!(of_trait, format!("<{ours} as {its}>::starts"));
        assert_eq!(creator(name_of(&creator)), None, "a function may be started by any");
        assert_eq!(creator(name_of(&given.0)), None);
    }

    #[test]
    fn a_closure_inside_one_of_this_crate_belongs_to_the_program() {
        for (runs, wanted) in [
            ("gosched::a::G::go<my::f::{{closure}}>::{{closure}}", Some("my::f")),
            ("gosched::a::G<my::E>::go<u8, my::f<A, B>::{{closure}}>::{{closure}}", Some("my::f")),
            (
                "gosched::G<E>::go<<my::A<fn() -> B> as C>::f::{{closure}}>::{{closure}}",
                Some("<my::A as C>::f"),
            ),
            ("gosched::G::go<my::f>::{{closure}}", None),
            ("gosched::G::go::{{closure}}", None),
            ("gosched_tests::f<gosched::G>::{{closure}}", Some("gosched_tests::f")),
            (
                "my::<impl my::A for gosched::G<B>>::f<C>::{{closure}}",
                Some("my::<impl my::A for gosched::G>::f"),
            ),
            ("<>>::{{closure}}", Some("<>>")),
            ("gosched::>>::{{closure}}", None),
        ] {
            assert_eq!(creator_of(runs, false).map(without_arguments).as_deref(), wanted, "{runs}");
        }
    }

    #[test]
    fn files_of_this_crate_are_recognized() {
        assert!(Location::caller().file().starts_with(own_folder()));
        assert!(!"tests/src/lib.rs".starts_with(own_folder()));
    }
}
