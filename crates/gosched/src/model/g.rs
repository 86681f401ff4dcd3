//! Stands for a G that waits: registers that must be saved before anybody lets it go on.

use super::item::Item;
use super::leak;
use crate::gmp::note::Note;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct G {
    registers: &'static Item,
    ready: Note,
}

impl G {
    pub(super) fn new(number: usize) -> &'static G {
        leak(G { registers: Item::unsaved(number), ready: Note::new() })
    }

    /// The switch away from it: from here on it may be made ready.
    pub(super) fn save(&self) {
        self.registers.save();
    }

    /// Lets it go on, once.
    pub(super) fn ready(&self) {
        self.registers.run();
        self.ready.wake();
    }

    /// What is left to do when it was saved: it sleeps until it is made ready.
    pub(super) fn sleep(&self) {
        self.ready.sleep(None);
    }
}
