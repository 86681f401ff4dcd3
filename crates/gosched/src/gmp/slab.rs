//! The memory that Gs come from: slabs that are never freed and never move. This module never
//! decides which goroutine gets a G.

use super::g::G;
use super::list::GList;
use super::state::GState;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Number of Gs in a slab.
const GS_PER_SLAB: usize = 128;

/// An array of Gs, and the slab that was allocated before it.
#[derive(Debug)]
struct Slab {
    gs: [G; GS_PER_SLAB],
    before: *const Slab,
}

/// The slab that was allocated last.
static LATEST: AtomicPtr<Slab> = AtomicPtr::new(std::ptr::null_mut());

/// Allocates a slab and returns its Gs, which are dead. Must not be called with preemption off.
pub(crate) fn grow() -> GList {
    let slab = new_slab();
    let mut list = GList::new();
    slab.before = LATEST.load(Ordering::Relaxed);
    loop {
        let before = slab.before.cast_mut();
        // PAIR g-slab: publishes the slab.
        let won = LATEST.compare_exchange(before, slab, Ordering::Release, Ordering::Relaxed);
        match won {
            Ok(_) => break,
            Err(now) => slab.before = now,
        }
    }
    let slab: &'static Slab = slab;
    for g in &slab.gs {
        g.transition(GState::Idle, GState::Dead);
        list.push_back(g);
    }
    list
}

/// Allocates a slab and builds it in place: a slab is larger than the room that a goroutine may
/// have left on its stack.
fn new_slab() -> &'static mut Slab {
    let mut slab = Box::<Slab>::new_uninit();
    let at = slab.as_mut_ptr();
    for index in 0..GS_PER_SLAB {
        // SAFETY: the field is in the box, and `index` is in bounds.
        let g = unsafe { &raw mut (*at).gs[index] };
        // SAFETY: as above; the memory is not initialized yet.
        unsafe { g.write(G::new()) };
    }
    // SAFETY: the field is in the box.
    let before = unsafe { &raw mut (*at).before };
    // SAFETY: as above.
    unsafe { before.write(std::ptr::null()) };
    // SAFETY: both fields were written.
    Box::leak(unsafe { slab.assume_init() })
}

/// Returns all Gs, including dead ones, newest slab first.
/// Go: allgs.
pub(crate) fn all() -> impl Iterator<Item = &'static G> {
    // PAIR g-slab: sees the slab complete.
    let mut slab = LATEST.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: the pointer is null or points to a slab; slabs are never freed.
        let this: &'static Slab = unsafe { slab.as_ref() }?;
        slab = this.before;
        Some(this.gs.iter())
    })
    .flatten()
}

/// Returns the Gs of all live goroutines, newest slab first.
pub(crate) fn live() -> impl Iterator<Item = &'static G> {
    all().filter(|g| g.id() != 0 && g.state().is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_gs_are_dead_and_can_be_found() {
        let mut list = grow();
        assert_eq!(list.len(), GS_PER_SLAB);
        let g = list.pop_front().unwrap();
        assert_eq!(g.state(), GState::Dead);
        assert!(all().any(|other| std::ptr::eq(other, g)));
    }

    #[test]
    fn a_g_stays_small() {
        assert!(size_of::<G>() <= 256, "{}", size_of::<G>());
    }
}
