//! Lists of Gs, Ms and Ps, linked through a field of each item: adding an item needs no memory. A
//! list never frees an item: Gs, Ms and Ps exist as long as the process.

use super::g::G;
use gosched_fiber::base::atomic_ref::AtomicRef;
use std::ptr;

/// An item that can be in one list at a time. Items are never freed.
pub(crate) trait Linked: Sized + Sync + 'static {
    /// Returns the field that links the item to the next one in its list. Only the list writes that
    /// field.
    fn link(&self) -> &AtomicRef<Self>;
}

/// A list that accepts items at both ends and returns them from the front (see the top of this
/// file).
/// Go: gQueue, gList.
#[derive(Debug)]
pub(crate) struct List<T: Linked> {
    head: Option<&'static T>,
    tail: Option<&'static T>,
    len: usize,
}

/// A list of Gs.
pub(crate) type GList = List<G>;

impl<T: Linked> List<T> {
    #[inline]
    pub(crate) const fn new() -> List<T> {
        List { head: None, tail: None, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn push_back(&mut self, item: &'static T) {
        set_next(item, None);
        match self.tail {
            Some(tail) => set_next(tail, Some(item)),
            None => self.head = Some(item),
        }
        self.tail = Some(item);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, item: &'static T) {
        set_next(item, self.head);
        if self.tail.is_none() {
            self.tail = Some(item);
        }
        self.head = Some(item);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<&'static T> {
        let item = self.head?;
        self.head = next(item);
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(item)
    }

    /// Returns the first item without removing it.
    #[inline]
    pub(crate) fn front(&self) -> Option<&'static T> {
        self.head
    }

    /// Returns the items, the first one first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        std::iter::successors(self.head, |item| next(*item))
    }

    /// Removes the first item for which `is_wanted` returns true. The other items keep their order.
    pub(crate) fn take_where(
        &mut self,
        is_wanted: impl Fn(&'static T) -> bool,
    ) -> Option<&'static T> {
        let mut passed = List::new();
        let mut found = None;
        while found.is_none()
            && let Some(item) = self.pop_front()
        {
            if is_wanted(item) { found = Some(item) } else { passed.push_back(item) }
        }
        self.prepend(passed);
        found
    }

    /// Removes `item`. Returns false if it is not in the list.
    pub(crate) fn remove(&mut self, item: &'static T) -> bool {
        self.take_where(|other| ptr::eq(other, item)).is_some()
    }

    /// Inserts all items of `other` before the items of this list.
    #[inline]
    pub(crate) fn prepend(&mut self, other: List<T>) {
        let Some(last) = other.tail else { return };
        set_next(last, self.head);
        self.head = other.head;
        self.tail = self.tail.or(other.tail);
        self.len += other.len;
    }
}

#[inline]
fn next<T: Linked>(item: &T) -> Option<&'static T> {
    item.link().load()
}

#[inline]
fn set_next<T: Linked>(item: &T, next: Option<&'static T>) {
    item.link().store(next);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: usize) -> Vec<&'static G> {
        (0..count).map(|_| &*Box::leak(Box::new(G::new()))).collect()
    }

    fn drain(list: &mut GList) -> Vec<*const G> {
        std::iter::from_fn(|| list.pop_front()).map(ptr::from_ref).collect()
    }

    #[test]
    fn gs_pushed_at_the_back_are_popped_in_order() {
        let gs = some(3);
        let mut list = GList::new();
        gs.iter().for_each(|g| list.push_back(g));
        assert_eq!(list.len(), 3);
        assert_eq!(drain(&mut list), gs.iter().map(|g| ptr::from_ref(*g)).collect::<Vec<_>>());
        assert!(list.is_empty() && list.pop_front().is_none());
    }

    #[test]
    fn an_element_can_be_removed_at_any_position() {
        let gs = some(4);
        for out in 0..=4 {
            let mut list = GList::new();
            gs.iter().for_each(|g| list.push_back(g));
            let other = some(1)[0];
            let item = gs.get(out).copied().unwrap_or(other);
            assert_eq!(list.remove(item), out < 4);
            assert!(!list.remove(item));
            assert_eq!(list.iter().count(), list.len());
            let rest: Vec<_> = gs.iter().enumerate().filter(|(i, _)| *i != out).collect();
            assert_eq!(
                drain(&mut list),
                rest.iter().map(|(_, g)| ptr::from_ref(**g)).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn lists_are_joined_in_order() {
        let gs = some(5);
        for split in 0..=5 {
            let (mut front, mut back) = (GList::new(), GList::new());
            gs[..split].iter().for_each(|g| front.push_back(g));
            gs[split..].iter().rev().for_each(|g| back.push_front(g));
            back.prepend(front);
            assert_eq!(back.len(), 5);
            let last = some(1)[0];
            back.push_back(last);
            let mut wanted: Vec<*const G> = gs.iter().map(|g| ptr::from_ref(*g)).collect();
            wanted.push(last);
            assert_eq!(drain(&mut back), wanted);
        }
    }
}
