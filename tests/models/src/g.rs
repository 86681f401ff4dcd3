//! A stand-in for a G that waits: its registers must be saved before another thread makes it ready.

use super::item::Item;
use crate::explore::leak;
use crate::protocol::note::Note;

/// A waiting G (see the top of this file).
#[derive(Debug)]
pub(crate) struct G {
    registers: &'static Item,
    ready: Note,
}

impl G {
    pub(super) fn new(number: usize) -> &'static G {
        leak(G { registers: Item::unsaved(number), ready: Note::new() })
    }

    /// Saves the registers, as the switch away from the G does. From here on it may be made ready.
    pub(super) fn save(&self) {
        self.registers.save();
    }

    /// Makes the G ready. Panics on the second call.
    pub(super) fn ready(&self) {
        self.registers.run();
        self.ready.wake();
    }

    /// Sleeps until the G is made ready. Called after [`G::save`].
    pub(super) fn sleep(&self) {
        self.ready.sleep(None);
    }
}
