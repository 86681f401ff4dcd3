//! A list of Gs, linked through a field of each G: adding a G needs no memory.

use super::g::G;
use std::ptr;
use std::sync::atomic::Ordering;

/// A first-in, first-out list of Gs that also accepts Gs at the front. A G is in at most one list.
/// Go: gQueue.
#[derive(Debug)]
pub(crate) struct GList {
    head: Option<&'static G>,
    tail: Option<&'static G>,
    len: usize,
}

impl GList {
    #[inline]
    pub(crate) const fn new() -> GList {
        GList { head: None, tail: None, len: 0 }
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
    pub(crate) fn push_back(&mut self, g: &'static G) {
        g.link.store(ptr::null_mut(), Ordering::Relaxed);
        match self.tail {
            Some(tail) => tail.link.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed),
            None => self.head = Some(g),
        }
        self.tail = Some(g);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, g: &'static G) {
        let head = self.head.map_or(ptr::null(), ptr::from_ref);
        g.link.store(head.cast_mut(), Ordering::Relaxed);
        if self.tail.is_none() {
            self.tail = Some(g);
        }
        self.head = Some(g);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<&'static G> {
        let g = self.head?;
        // SAFETY: the link is null or points to a G; Gs are never freed.
        self.head = unsafe { g.link.load(Ordering::Relaxed).as_ref() };
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(g)
    }

    /// Returns the first G without removing it.
    #[inline]
    pub(crate) fn front(&self) -> Option<&'static G> {
        self.head
    }

    /// Removes the first G for which `wanted` returns true. The other Gs keep their order.
    pub(crate) fn take_where(&mut self, wanted: impl Fn(&'static G) -> bool) -> Option<&'static G> {
        let mut passed = GList::new();
        let mut found = None;
        while found.is_none()
            && let Some(g) = self.pop_front()
        {
            if wanted(g) { found = Some(g) } else { passed.push_back(g) }
        }
        self.prepend(passed);
        found
    }

    /// Inserts all Gs of `other` before the Gs of this list.
    #[inline]
    pub(crate) fn prepend(&mut self, mut other: GList) {
        let Some(last) = other.tail else { return };
        let head = self.head.map_or(ptr::null(), ptr::from_ref);
        last.link.store(head.cast_mut(), Ordering::Relaxed);
        self.head = other.head;
        self.tail = self.tail.or(other.tail);
        self.len += std::mem::take(&mut other.len);
    }
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
            let found = list.take_where(|g| gs.iter().position(|o| ptr::eq(*o, g)) == Some(out));
            assert_eq!(found.is_some(), out < 4);
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
