//! Who a goroutine is: number, name, labels, and a way to let it go on.

pub(crate) mod builder;
pub(crate) mod host;
pub(crate) mod join;
pub(crate) mod packet;
pub(crate) mod scope;

pub(crate) use builder::go;
pub(crate) use join::JoinHandle;

use crate::block::exit;
use crate::block::limit::{Alarm, AlarmEffect};
use crate::gmp::current;
use crate::gmp::g::{Details, G};
pub use crate::gmp::go_id::GoId;
use crate::gmp::reason::WaitReason;
use crate::sched;
use crate::sys::clock;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// A goroutine, alive or not: see [`current()`] and [`JoinHandle::goroutine`](crate::JoinHandle).
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

    /// Its number.
    pub fn id(&self) -> GoId {
        self.id
    }

    /// The name that [`Builder::name`](crate::Builder::name) gave it.
    pub fn name(&self) -> Option<&str> {
        self.details.as_deref().and_then(|details| details.name.as_deref())
    }

    /// The goroutine that started it; `None` if an ordinary thread did.
    pub fn parent(&self) -> Option<GoId> {
        (self.parent != 0).then(|| GoId::new(self.parent))
    }

    /// What [`Builder::label`](crate::Builder::label) gave it, in that order.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.details.as_deref().map_or(&[][..], |details| &details.labels);
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Lets it go on from [`park`], now or at its next call. Of several before that call only one
    /// counts. For a goroutine that has ended it does nothing.
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

/// The number of the calling goroutine; `None` on an ordinary thread.
#[inline]
pub fn id() -> Option<GoId> {
    current::goroutine().map(|g| GoId::new(g.id()))
}

/// The calling goroutine; `None` on an ordinary thread.
pub fn current() -> Option<Goroutine> {
    let g = current::goroutine()?;
    Some(Goroutine::new(g, g.id(), g.parent(), g.details()))
}

/// Waits until somebody calls [`Goroutine::unpark`] for the calling goroutine; at once, if somebody
/// has since its last call. On an ordinary thread it is [`std::thread::park`].
pub fn park() {
    exit::resume_if_exiting();
    let Some(g) = current::goroutine() else { return std::thread::park() };
    if g.token.take(g.id()) {
        return;
    }
    // SAFETY: commit — `commit_park` needs nothing but the G.
    unsafe { sched::park(WaitReason::Park, commit_park, ptr::null()) };
    // A token that came before the goroutine was parked is used up by this call.
    g.token.take(g.id());
}

/// As [`park`], but for `duration` at most. On an ordinary thread it is [`std::thread::park_timeout`].
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
    unsafe { sched::park(WaitReason::Park, commit_park, ptr::null()) };
    alarm.stop();
    g.token.unexpire(g.id());
    g.token.take(g.id());
}

/// # Safety
/// - **data**: a G.
unsafe fn expire(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller; Gs are never freed.
    let g = unsafe { &*data.cast::<G>() };
    if g.token.expire(g.id()) { AlarmEffect::Ready(g) } else { AlarmEffect::Nothing }
}

/// # Safety
/// - **parked**: the context of `g` is saved.
unsafe fn commit_park(g: &'static G, _data: *const ()) -> bool {
    g.token.park(g.id())
}
