//! What is told of each goroutine, whatever the form.

use super::level;
use crate::gmp::g::{Details, G};
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::inspector::{self, BATCH_STACKS, Frames, Inspector, InterruptPolicy};
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
    pub(super) fn status(&self) -> &'static str {
        G::status_text(self.state, self.reason)
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

    /// The function that started it, as far as it is known: a closure is named after the one that it is written in.
    pub(super) fn creator(&self) -> String {
        /// As Go writes where it does not know.
        const UNKNOWN: &str = "?";
        let is_own = self.site.is_some_and(|site| site.file().starts_with(own_folder()));
        let creator = self.runs.and_then(|runs| creator_of(runs, is_own));
        creator.map_or(UNKNOWN.to_owned(), without_arguments)
    }
}

/// Where the files of this crate are, as the compiler names them.
fn own_folder() -> &'static str {
    file!().trim_end_matches("observe/goroutines.rs")
}

/// The function that a closure is written in, by the name of its type. `None`: it is no closure.
///
/// One of this crate's has another in it, the program's, which is an argument of its function's type. That is meant,
/// unless the place too `is_own`.
fn creator_of(closure: &str, is_own: bool) -> Option<&str> {
    let function = closure.strip_suffix("::{{closure}}")?;
    if !is_own && function.trim_start_matches('<').starts_with("gosched::") {
        creator_of(last_argument(function)?, is_own)
    } else {
        Some(function)
    }
}

/// `D` of `a::b<C, D>`.
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

/// `a::B::c` of `a::B<C>::c<D>`, and `<A as B>::c` of `<A as B<C>>::c`: the types behind names are left out.
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

/// Who is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoroutineFilter<'a> {
    All,
    /// All but the caller.
    AllButCaller,
    /// Those with these ids.
    Only(&'a [u64]),
}

/// Calls `each` with every goroutine there is, one after the other: the caller, then the others in the order of
/// their ids. The frames are told beside it.
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

/// As [`for_each`]; what `print` adds to its text is written, and not kept. Whoever writes to a file need not buffer
/// it.
///
/// # Errors
/// `out` refuses, or `print` does.
pub(super) fn write_each(
    looks: &mut Inspector,
    filter: GoroutineFilter<'_>,
    out: &mut dyn Write,
    mut print: impl FnMut(&mut Vec<u8>, &Inspector, &Goroutine, &Frames) -> io::Result<()>,
) -> io::Result<()> {
    /// Whole goroutines are written, so many bytes or more.
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

/// All that `write` writes.
pub(super) fn as_text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // A vector takes everything.
    let _ = write(&mut text);
    String::from_utf8(text).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into())
}

/// Looks at all of them and tells nobody: how many there are, and how many frames they have.
pub(crate) fn count_goroutines_and_frames() -> (usize, usize) {
    let (mut goroutines, mut count) = (0, 0);
    let Ok(()) = for_each(&mut inspector(), GoroutineFilter::All, |_, _, frames| {
        goroutines += 1;
        count += frames.first.len() + frames.elided + frames.last.len();
        Ok::<(), Infallible>(())
    });
    (goroutines, count)
}

/// `None`: it has ended meanwhile.
fn look_at(
    inspector: &mut Inspector,
    g: &'static G,
    id: u64,
    frames: &mut Frames,
) -> Option<Goroutine> {
    // It has its number before it has the rest, and lives when it has everything.
    if g.id() != id || !g.state_version().state().is_alive() {
        return None;
    }
    // They are taken back before it ends, and its frames are its own until then.
    let details = g.details();
    let look = inspector.inspect(g, frames)?;
    // Where Ms are many, to look for one takes long.
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
    // Its record may be another's by now.
    (g.id() == id).then_some(goroutine)
}

/// An inspector for programs that go on.
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
    fn a_closure_is_of_the_function_that_it_is_written_in() {
        const HERE: &str =
            concat!(module_path!(), "::a_closure_is_of_the_function_that_it_is_written_in");
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
    fn a_closure_in_one_of_this_crate_is_the_programs() {
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
    fn files_of_this_crate_are_known() {
        assert!(Location::caller().file().starts_with(own_folder()));
        assert!(!"tests/src/lib.rs".starts_with(own_folder()));
    }
}
