//! Updates of identities when libraries are loaded and unloaded.
//!
//! ld.so writes the initial values of a library's static thread-locals on every thread that libc
//! created. It does not know identities, so this module writes the values into them after each
//! `dlopen`. Libraries also arrive in other ways (libc.so loads name services by itself); their
//! variables may already be in use and are never overwritten. To find what a `dlopen` has brought,
//! the modules are scanned before and after it. The scan before is valid only while no other
//! `dlopen` is in progress: [`LOADS_IN_PROGRESS`] counts these calls, and [`PENDING_RESCANS`]
//! counts the goroutines whose loads cannot take that lock.
//!
//! **An image is replaced while wipes read it.** A wipe that reads the old image could write the
//! bytes of an unloaded library over the values of a new library at the same place:
//!
//! - Wipe: 1. loads the image pointer; 2. writes the image's values; 3. loads the pointer again,
//!   and starts over if it has changed.
//! - Loader: 1. stores the new image pointer; 2. makes every running thread pass a full barrier
//!   (membarrier); 3. writes the new library's values.
//!
//! If step 3 of a wipe still reads the old pointer, its step 2 was complete before the loader's
//! step 2 ended, so the loader's values are written last.
//!
//! **A library brings libc.so** into a static program. libc.so's values are not part of the image:
//! they are written when libc.so is loaded, and from then on by [`create`](super::create). Both
//! happen under [`IDENTITY_WRITE_LOCK`], so that no identity is missed:
//!
//! - Loader, holding the lock: 1. sets `libc_tls`; 2. writes its values into all marked identities.
//! - Creator: 1. marks its slot; 2. reads `libc_tls`, holding the lock; 3. writes its values.
//!
//! A thread never holds [`LOADS_IN_PROGRESS`] while it calls `dlopen` or `dlclose`.

use super::modules::{Image, Modules};
use super::{GLIBC, Glibc, IDENTITY_WRITE_LOCK, symbols};
use crate::barrier;
use crate::base::unsupported::Unsupported;
use crate::lock::Lock;
use crate::stack::DEPOT;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Number of `dlopen` calls in progress. The lock is held while modules are scanned. It is not held
/// during a `dlopen`, nor while waiting for the loader's load lock, which a constructor that loads
/// a library holds.
static LOADS_IN_PROGRESS: Lock<usize> = Lock::new(0);

/// Number of goroutines inside `dl_iterate_phdr` that loaded or unloaded libraries there. They hold
/// the loader's lock, for which the owner of [`LOADS_IN_PROGRESS`] may wait, so they cannot take
/// `LOADS_IN_PROGRESS`. Incremented under the loader's lock before the load; decremented under
/// `LOADS_IN_PROGRESS` after the identities were updated. So a rescan that finds the library also
/// reads a count above 0.
static PENDING_RESCANS: AtomicUsize = AtomicUsize::new(0);

/// Publishes the result of the probe, after adding the libraries that were loaded since the probe.
/// A load that is still in progress adds its library when it ends.
pub(super) fn publish(found: Result<Glibc, Unsupported>) {
    symbols::find_second_libc();
    let _loading = LOADS_IN_PROGRESS.lock_preemptible();
    if let Ok(glibc) = &found {
        glibc.rescan_modules(NewModules::LeaveAlone);
    }
    drop(GLIBC.set(found));
}

/// Runs `load`, which is `dlopen` or an equivalent, and then updates all identities.
pub(super) fn with_load<L: FnOnce() -> R, R>(load: L) -> R {
    {
        let mut loading = LOADS_IN_PROGRESS.lock_preemptible();
        if let Some(Ok(glibc)) = GLIBC.get()
            && *loading == 0
        {
            // A module that arrived in another way may be in use already: add it to the image, but
            // do not write its values.
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

/// Runs `unload`, which is `dlclose`, and then removes the unloaded modules from the image. Wipes
/// no longer write their values, and a module that is loaded again counts as new.
pub(super) fn with_unload<U: FnOnce() -> R, R>(unload: U) -> R {
    let result = unload();
    if let Some(Ok(glibc)) = GLIBC.get() {
        let _loading = LOADS_IN_PROGRESS.lock_preemptible();
        glibc.rescan_modules(NewModules::Forget);
    }
    result
}

/// Announces that the calling goroutine, inside `dl_iterate_phdr`, is about to load or unload a
/// library. It must call [`finish_rescan`] after `dl_iterate_phdr`.
pub(super) fn announce_rescan() {
    PENDING_RESCANS.fetch_add(1, Ordering::Relaxed);
}

/// Updates all identities after loads and unloads that were announced with [`announce_rescan`].
pub(super) fn finish_rescan() {
    symbols::find_second_libc();
    let _loading = LOADS_IN_PROGRESS.lock_preemptible();
    if let Some(Ok(glibc)) = GLIBC.get() {
        glibc.rescan_modules(NewModules::Write);
    }
    PENDING_RESCANS.fetch_sub(1, Ordering::Relaxed);
}

/// Releases this module's lock in a forked child.
///
/// # Safety
/// - **child**: as for [`Lock::repair_in_child`].
pub(super) unsafe fn repair_in_child() {
    // SAFETY: child — promised by the caller.
    unsafe { LOADS_IN_PROGRESS.repair_in_child(|_| ()) };
}

/// What a rescan does with modules that are not in the old image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewModules {
    /// They were just loaded: write their initial values into all identities.
    Write,
    /// They may be in use already: only add them to the image, so that wipes reset them.
    LeaveAlone,
    /// Leave them to a later rescan: only remove modules that are gone.
    Forget,
}

impl Glibc {
    /// Scans the loaded modules, replaces the image if they have changed, and updates the
    /// identities as `values` requires. The caller holds [`LOADS_IN_PROGRESS`].
    fn rescan_modules(&self, values: NewModules) {
        // Without memory for the scan, libraries loaded by this call have zeros in the identities
        // that exist.
        let Some(modules) = Modules::scan(&self.symbols, &self.layout) else { return };
        if values == NewModules::LeaveAlone && PENDING_RESCANS.load(Ordering::Relaxed) > 0 {
            return;
        }
        // SAFETY: never null, never freed; only this function replaces it, under
        // `LOADS_IN_PROGRESS`.
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
        // PAIR identity-image: publishes the new image. The old one is not freed, because a wipe
        // may be reading it.
        self.image.store(Box::into_raw(image), Ordering::Release);
        if values != NewModules::Write && !disown && kept.is_none() {
            return;
        }
        // Orders the store of the image before the writes of the values.
        barrier::heavy();
        let _writing = IDENTITY_WRITE_LOCK.lock_preemptible();
        // From here on `create` writes these values into new identities; the loop below writes them
        // into existing ones.
        let kept = kept.map(|kept| self.libc_tls.get_or_init(|| kept));
        for tp in DEPOT.identities() {
            if values == NewModules::Write {
                // SAFETY: quiet — `dlopen` has not returned, so no goroutine uses the library's
                // variables yet.
                unsafe { new.write(tp) };
                if let Some(kept) = kept {
                    // SAFETY: quiet — as above, for the libc.so that the library brought.
                    unsafe { kept.write(tp, None) };
                }
            }
            if disown {
                // SAFETY: mapped — the slot keeps its mark while `IDENTITY_WRITE_LOCK` is held.
                unsafe { self.layout.disown_rseq(tp) };
            }
        }
    }
}

/// Calls `write` with the current image, and again if the image was replaced during the call.
#[inline]
pub(super) fn with_current_image(image: &AtomicPtr<Image>, write: impl Fn(&Image)) {
    // PAIR identity-image: sees the complete contents of the image.
    let mut now = image.load(Ordering::Acquire);
    loop {
        // SAFETY: the pointer is never null, and images are never freed.
        write(unsafe { &*now });
        // Orders the writes of the values before the second load of the pointer.
        barrier::light();
        // PAIR identity-image: as above.
        let later = image.load(Ordering::Acquire);
        if later == now {
            return;
        }
        now = later;
    }
}
