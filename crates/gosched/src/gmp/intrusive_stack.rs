//! A stack (last in, first out) of Ms or Ps, linked through a field of each item.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An item that can be in one stack at a time. Items are never freed.
///
/// # Safety
/// *Same*: `link` always returns the same field, and only the stack writes that field.
pub(crate) unsafe trait Linked: Sized + 'static {
    fn link(&self) -> &AtomicPtr<Self>;
}

/// A stack that needs no memory of its own (see the top of this file).
#[derive(Debug)]
pub(crate) struct IntrusiveStack<T: Linked> {
    head: Option<&'static T>,
    len: usize,
}

impl<T: Linked> IntrusiveStack<T> {
    pub(crate) const fn new() -> IntrusiveStack<T> {
        IntrusiveStack { head: None, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    #[inline]
    pub(crate) fn push(&mut self, item: &'static T) {
        let head = self.head.map_or(ptr::null(), ptr::from_ref);
        item.link().store(head.cast_mut(), Ordering::Relaxed);
        self.head = Some(item);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static T> {
        let item = self.head?;
        self.head = next(item);
        self.len -= 1;
        Some(item)
    }

    /// Removes `item`. Returns false if it is not in the stack.
    pub(crate) fn remove(&mut self, item: &'static T) -> bool {
        let mut rest = IntrusiveStack::new();
        let mut found = false;
        while let Some(other) = self.pop() {
            if ptr::eq(other, item) {
                found = true;
                break;
            }
            rest.push(other);
        }
        while let Some(other) = rest.pop() {
            self.push(other);
        }
        found
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        std::iter::successors(self.head, |item| next(*item))
    }
}

fn next<T: Linked>(item: &T) -> Option<&'static T> {
    // SAFETY: same — the link is null or points to an item that was pushed; items are never freed.
    unsafe { item.link().load(Ordering::Relaxed).as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmp::m::M;

    #[test]
    fn an_element_can_be_removed_at_any_position() {
        let ms: Vec<&'static M> = (0..4).map(M::new).collect();
        for out in 0..4 {
            let mut chain = IntrusiveStack::new();
            ms.iter().for_each(|m| chain.push(*m));
            assert!(chain.remove(ms[out]));
            assert!(!chain.remove(ms[out]));
            let wanted: Vec<u32> = (0..4).rev().filter(|&id| id != out as u32).collect();
            assert_eq!(chain.iter().map(|m| m.id).collect::<Vec<u32>>(), wanted);
            assert_eq!(chain.len(), 3);
            let ids: Vec<u32> = std::iter::from_fn(|| chain.pop()).map(|m| m.id).collect();
            assert_eq!(ids, wanted);
            assert!(chain.is_empty());
        }
    }
}
