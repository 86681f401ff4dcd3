//! A doubly linked list of entries that live in the frames or allocations of their owners: adding
//! an entry needs no memory, and an entry can be removed from any position.
//!
//! The owner of the list protects the list and the links of its entries with a lock. This module
//! never takes a lock, and never frees an entry.

use crate::sys::cell::Cell;
use std::fmt;
use std::ptr;

/// What a list stores in each entry.
pub(crate) struct Links<T> {
    next: Cell<*const T>,
    before: Cell<*const T>,
    is_linked: Cell<bool>,
}

impl<T> Links<T> {
    /// Creates the links of an entry that is in no list.
    pub(crate) fn new() -> Links<T> {
        Links {
            next: Cell::new(ptr::null()),
            before: Cell::new(ptr::null()),
            is_linked: Cell::new(false),
        }
    }
}

/// An entry that can be in one list at a time.
///
/// # Safety
/// *Same*: `links` always returns the same field, and only the list accesses that field.
pub(crate) unsafe trait Entry: Sized {
    fn links(&self) -> &Links<Self>;
}

/// A list, first in, first out (see the top of this file).
pub(crate) struct LinkedList<T> {
    first: *const T,
    last: *const T,
}

// SAFETY: the entries are accessed only under the lock of the list's owner.
unsafe impl<T> Send for LinkedList<T> {}

impl<T: Entry> LinkedList<T> {
    pub(crate) const fn new() -> LinkedList<T> {
        LinkedList { first: ptr::null(), last: ptr::null() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Returns the first entry, or null.
    #[inline]
    pub(crate) fn first(&self) -> *const T {
        self.first
    }

    /// Appends an entry.
    ///
    /// # Safety
    /// - **alive**: the entry is in no list, and is neither moved nor freed before it is removed.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, entry: &T) {
        let links = entry.links();
        links.next.set(ptr::null());
        links.before.set(self.last);
        links.is_linked.set(true);
        // SAFETY: alive — the entries in the list are.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.links().next.set(entry),
            None => self.first = entry,
        }
        self.last = entry;
    }

    /// Inserts an entry before all others.
    ///
    /// # Safety
    /// - **alive**: as for [`LinkedList::push_back`].
    pub(crate) unsafe fn push_front(&mut self, entry: &T) {
        let links = entry.links();
        links.before.set(ptr::null());
        links.next.set(self.first);
        links.is_linked.set(true);
        // SAFETY: alive — the entries in the list are.
        match unsafe { self.first.as_ref() } {
            Some(first) => first.links().before.set(entry),
            None => self.last = entry,
        }
        self.first = entry;
    }

    /// Removes an entry, which is in this list or in none. Returns whether it was in the list.
    #[inline]
    pub(crate) fn remove(&mut self, entry: &T) -> bool {
        let links = entry.links();
        if !links.is_linked.replace(false) {
            return false;
        }
        let (before, next) = (links.before.get(), links.next.get());
        // SAFETY: alive — the entries in the list are.
        match unsafe { before.as_ref() } {
            Some(before) => before.links().next.set(next),
            None => self.first = next,
        }
        // SAFETY: alive — as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.links().before.set(before),
            None => self.last = before,
        }
        true
    }
}

impl<T> fmt::Debug for LinkedList<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LinkedList({:?} to {:?})", self.first, self.last)
    }
}

impl<T> fmt::Debug for Links<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Links({:?}, {:?})", self.before.get(), self.next.get())
    }
}
