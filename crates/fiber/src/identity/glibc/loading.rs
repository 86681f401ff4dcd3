//! Libraries that come and go while there are goroutines.
//!
//! libc gives a library's static thread-locals their first values on every thread it knows. It does
//! not know identities: after each `dlopen` they get them here. What `dlopen` has brought is told
//! from what other ways brought (libc.so's own loads, for a name service) by looking before and
//! after; nothing that may be in use already is written over. Looking before is only right while no
//! other `dlopen` is on its way: [`LOADS_IN_PROGRESS`] counts them, and [`PENDING_RESCANS`] those that could not take
//! that lock.
//!
//! **An image is replaced while wipes read it.** A wipe that still has the old one could write bytes
//! of an unloaded library over a new one in the same place:
//!
//! Wipe: 1. loads the image; 2. writes its values; 3. loads it again, and starts over if it changed.
//! Loader: 1. stores the new image; 2. makes every running thread pass a full barrier (membarrier);
//! 3. writes the new library's values.
//!
//! If a wipe's step 3 still saw the old image, its step 2 was done before the loader's step 2 ended,
//! so the loader's values come last.
//!
//! **A library brings libc.so** into a program with libc inside it. libc.so's values are not part of
//! the image: they are written when it comes, and by [`create`](super::create) from then on. Both
//! under [`IDENTITY_WRITE_LOCK`], so that no identity is missed:
//!
//! Loader, with the lock: 1. says what is kept; 2. writes it into all identities that are marked.
//! Creator: 1. marks its slot; 2. with the lock, looks what is kept; 3. writes that.

use super::modules::{Image, Modules};
use super::{GLIBC, Glibc, IDENTITY_WRITE_LOCK, symbols};
use crate::barrier;
use crate::base::unsupported::Unsupported;
use crate::lock::Lock;
use crate::stack::DEPOT;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// `dlopen`s on their way. Held while modules are looked at, never during a `dlopen`, nor while the
/// loader's lock for loads is waited for: a constructor that loads has that one.
static LOADS_IN_PROGRESS: Lock<usize> = Lock::new(0);

/// Goroutines inside `dl_iterate_phdr` that loaded libraries there. They have the loader's lock, which
/// whoever holds [`LOADS_IN_PROGRESS`] may wait for. Counted up with the loader's lock, before the load, and
/// down with `LOADS_IN_PROGRESS`, after identities were told: who saw the library in a scan sees the count.
static PENDING_RESCANS: AtomicUsize = AtomicUsize::new(0);

/// Makes known what was found out of libc, and of the libraries that have come meanwhile. A load that
/// is still on its way tells of its library at its end.
pub(super) fn publish(found: Result<Glibc, Unsupported>) {
    symbols::find_second_libc();
    let _loading = LOADS_IN_PROGRESS.lock_preemptible();
    if let Ok(glibc) = &found {
        glibc.rescan_modules(NewModules::LeaveAlone);
    }
    drop(GLIBC.set(found));
}

/// Runs `dlopen` (or what loads libraries by another name) and tells all identities.
pub(super) fn with_load<L: FnOnce() -> R, R>(load: L) -> R {
    {
        let mut loading = LOADS_IN_PROGRESS.lock_preemptible();
        if let Some(Ok(glibc)) = GLIBC.get()
            && *loading == 0
        {
            // What came by other ways is of unknown age: known from here on, and left alone.
            glibc.rescan_modules(NewModules::LeaveAlone);
        }
        *loading += 1;
    }
    let result = load();
    symbols::find_second_libc();
    let mut loading = LOADS_IN_PROGRESS.lock_preemptible();
    if let Some(Ok(glibc)) = GLIBC.get() {
        glibc.rescan_modules(NewModules::Write);
    }
    *loading -= 1;
    result
}

/// Runs `dlclose`; what is gone is not written any more, and is new when it comes again.
pub(super) fn with_unload<U: FnOnce() -> R, R>(unload: U) -> R {
    let result = unload();
    if let Some(Ok(glibc)) = GLIBC.get() {
        let _loading = LOADS_IN_PROGRESS.lock_preemptible();
        glibc.rescan_modules(NewModules::Forget);
    }
    result
}

/// The calling goroutine, inside `dl_iterate_phdr`, is about to load or unload; it will
/// [`finish_rescan`] when it is out.
pub(super) fn announce_rescan() {
    PENDING_RESCANS.fetch_add(1, Ordering::Relaxed);
}

/// Tells all identities what has changed, where the change itself could not.
pub(super) fn finish_rescan() {
    symbols::find_second_libc();
    let _loading = LOADS_IN_PROGRESS.lock_preemptible();
    if let Some(Ok(glibc)) = GLIBC.get() {
        glibc.rescan_modules(NewModules::Write);
    }
    PENDING_RESCANS.fetch_sub(1, Ordering::Relaxed);
}

/// # Safety
/// - **child**: as for [`Lock::repair_in_child`].
pub(super) unsafe fn repair_in_child() {
    // SAFETY: child — promised by the caller.
    unsafe { LOADS_IN_PROGRESS.repair_in_child(|_| ()) };
}

/// What to do about modules that were not there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewModules {
    /// They are new: give everyone their first values.
    Write,
    /// Their age is unknown: wipe them from now on.
    LeaveAlone,
    /// They are not our business: only see what is gone.
    Forget,
}

impl Glibc {
    fn rescan_modules(&self, values: NewModules) {
        // Without memory to look: libraries loaded now keep zeros in goroutines that exist.
        let Some(modules) = Modules::scan(&self.symbols, &self.layout) else { return };
        if values == NewModules::LeaveAlone && PENDING_RESCANS.load(Ordering::Relaxed) > 0 {
            return;
        }
        // SAFETY: never null, never freed; only this function replaces it, under `LOADS_IN_PROGRESS`.
        let old = unsafe { &*self.image.load(Ordering::Relaxed) };
        let mut image = modules.image();
        let new = image.without(old);
        if values == NewModules::Forget {
            image = image.without(&new);
        }
        let disown = modules.rseq_readers && !self.rseq_readers.swap(true, Ordering::Relaxed);
        let kept = if self.libc_tls.get().is_none() { modules.kept() } else { None };
        if new.is_empty() && image.len() == old.len() && !disown && kept.is_none() {
            return;
        }
        let image = Box::new(image);
        // PAIR identity-image: publishes the image. The old one stays: a wipe may read it.
        self.image.store(Box::into_raw(image), Ordering::Release);
        if values != NewModules::Write && !disown && kept.is_none() {
            return;
        }
        // Orders the store of the image before the values.
        barrier::heavy();
        let _writing = IDENTITY_WRITE_LOCK.lock_preemptible();
        // An identity that is being made gets these from now on; all others below.
        let kept = kept.map(|kept| self.libc_tls.get_or_init(|| kept));
        for tp in DEPOT.identities() {
            if values == NewModules::Write {
                // SAFETY: quiet — the library was just loaded: nobody was told of its variables.
                unsafe { new.write(tp) };
                if let Some(kept) = kept {
                    // SAFETY: quiet — as above: it has brought libc.so.
                    unsafe { kept.write(tp, None) };
                }
            }
            if disown {
                // SAFETY: mapped — it cannot lose its mark while `IDENTITY_WRITE_LOCK` is held.
                unsafe { self.layout.disown_rseq(tp) };
            }
        }
    }
}

/// Runs `write` with the image, again if it was replaced meanwhile.
#[inline]
pub(super) fn with_current_image(image: &AtomicPtr<Image>, write: impl Fn(&Image)) {
    // PAIR identity-image: the image is complete.
    let mut now = image.load(Ordering::Acquire);
    loop {
        // SAFETY: never null, and images are never freed.
        write(unsafe { &*now });
        // Orders the values before the second look.
        barrier::light();
        // PAIR identity-image: as above.
        let later = image.load(Ordering::Acquire);
        if later == now {
            return;
        }
        now = later;
    }
}
