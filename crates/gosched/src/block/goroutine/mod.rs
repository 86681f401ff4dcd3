//! The identity of a goroutine: id, name and labels; and `park` and `unpark`. `Goroutine::unpark`
//! never reaches a later goroutine that reuses the G: the token contains the id.

pub(crate) mod builder;
pub(crate) mod host;
pub(crate) mod join;
pub(crate) mod packet;
pub(crate) mod scope;

pub(crate) use builder::go;
pub(crate) use join::JoinHandle;

use crate::block::exit;
use crate::block::limit::{Alarm, AlarmEffect};
use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::g::{Details, G};
pub use crate::gmp::go_id::GoId;
use crate::probe::wait_reason::WaitReason;
use crate::sched;
use crate::sys::clock;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// A handle to a goroutine, returned by [`current()`] and
/// [`JoinHandle::goroutine`](crate::JoinHandle::goroutine). The goroutine may have ended.
#[derive(Clone)]
pub struct Goroutine {
    g: &'static G,
    id: GoId,
    parent: u64,
    details: Option<Arc<Details>>,
}

impl Goroutine {
    pub(crate) fn new(
        g: &'static G,
        id: u64,
        parent: u64,
        details: Option<Arc<Details>>,
    ) -> Goroutine {
        Goroutine { g, id: GoId::new(id), parent, details }
    }

    /// Returns the id of the goroutine.
    pub fn id(&self) -> GoId {
        self.id
    }

    /// Returns the name that [`Builder::name`](crate::Builder::name) set, if any.
    pub fn name(&self) -> Option<&str> {
        self.details.as_deref().and_then(|details| details.name.as_deref())
    }

    /// Returns the id of the goroutine that started this one, or `None` if an ordinary thread did.
    pub fn parent(&self) -> Option<GoId> {
        (self.parent != 0).then(|| GoId::new(self.parent))
    }

    /// Returns the labels that [`Builder::label`](crate::Builder::label) added, as pairs of key and
    /// value, in the order in which they were added.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.details.as_deref().map_or(&[][..], |details| &details.labels);
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Ends the goroutine's call of [`park`] or, if it is not parked, makes its next `park` return
    /// at once.
    ///
    /// Several calls of `unpark` before the next `park` count as one. If the goroutine has ended,
    /// nothing happens.
    pub fn unpark(&self) {
        if self.g.token.unpark(self.id.get()) {
            sched::ready(self.g);
        }
    }
}

impl fmt::Debug for Goroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Goroutine");
        debug.field("id", &self.id.get()).field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Returns the id of the calling goroutine, or `None` on an ordinary thread.
#[inline]
pub fn id() -> Option<GoId> {
    current::goroutine().map(|g| GoId::new(g.id()))
}

/// Returns a handle to the calling goroutine, or `None` on an ordinary thread.
pub fn current() -> Option<Goroutine> {
    let g = current::goroutine()?;
    Some(Goroutine::new(g, g.id(), g.parent(), g.details()))
}

/// Blocks the calling goroutine until [`Goroutine::unpark`] is called for it.
///
/// Returns immediately if `unpark` was called since the last `park`. On an ordinary thread this is
/// [`std::thread::park`].
pub fn park() {
    exit::resume_if_exiting();
    let Some(g) = current::goroutine() else { return std::thread::park() };
    if g.token.take(g.id()) {
        return;
    }
    // SAFETY: commit — `commit_park` needs nothing but the G.
    let commit = unsafe { Commit::new(commit_park, ptr::null()) };
    sched::park(WaitReason::Park, commit);
    // This call consumes a token that was stored before the goroutine was parked.
    g.token.take(g.id());
}

/// Like [`park`], but blocks for at most `duration`.
///
/// On an ordinary thread this is [`std::thread::park_timeout`].
pub fn park_timeout(duration: Duration) {
    exit::resume_if_exiting();
    let Some(g) = current::goroutine() else { return std::thread::park_timeout(duration) };
    if g.token.take(g.id()) {
        return;
    }
    // SAFETY: data — a G: they are never freed.
    let alarm = unsafe { Alarm::new(expire, ptr::from_ref(g).cast()) };
    alarm.start(clock::after(duration));
    // SAFETY: commit — `commit_park` needs nothing but the G.
    let commit = unsafe { Commit::new(commit_park, ptr::null()) };
    sched::park(WaitReason::Park, commit);
    alarm.stop();
    g.token.unexpire(g.id());
    g.token.take(g.id());
}

/// Ends [`park_timeout`]: the time limit was reached.
///
/// # Safety
/// - **data**: a `G`.
unsafe fn expire(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller; Gs are never freed.
    let g = unsafe { &*data.cast::<G>() };
    if g.token.expire(g.id()) { AlarmEffect::Ready(g) } else { AlarmEffect::Nothing }
}

/// Publishes that `g` is parked. Returns false if `unpark` was called or the time limit was
/// reached: then `g` does not wait.
///
/// # Safety
/// - **parked**: the context of `g` is saved.
unsafe fn commit_park(g: &'static G, _data: *const ()) -> bool {
    g.token.park(g.id())
}
