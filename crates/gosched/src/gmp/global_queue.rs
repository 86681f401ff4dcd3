//! The global run queue, with two lists beside it: for Gs that were stopped together with their M,
//! and for *interrupted* Gs, which come before all others: Gs that made room so that another G
//! could run at once, or that stopped with their M for a stop of the world, and Gs that I/O made
//! ready and a thread without a P queued. Protected by the scheduler's lock. The queue never takes
//! that lock and never updates `Sched::queued`: its callers do both.

use super::g::G;
use super::list::GList;
use std::sync::atomic::Ordering;

/// The global run queue (see the top of this file).
/// Go: sched.runq.
#[derive(Debug)]
pub(crate) struct GlobalQueue {
    main_list: GList,
    /// Gs that were stopped together with their M, which alone can continue them.
    /// [`G::queue_position`] determines their turn among the Gs of `main_list`.
    stopped: GList,
    /// Interrupted Gs (see the top of this file). They come before all others.
    interrupted: GList,
    /// Number of Gs ever appended to `main_list`.
    appended: u64,
}

impl GlobalQueue {
    pub(crate) const fn new() -> GlobalQueue {
        GlobalQueue {
            main_list: GList::new(),
            stopped: GList::new(),
            interrupted: GList::new(),
            appended: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.main_list.len() + self.stopped.len() + self.interrupted.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `g` to the tail.
    /// Go: globrunqput.
    #[inline]
    pub(crate) fn push_back(&mut self, g: &'static G) {
        self.appended += 1;
        self.main_list.push_back(g);
    }

    /// Appends `g`, which was stopped together with its M, to the tail.
    pub(crate) fn push_stopped(&mut self, g: &'static G) {
        g.queue_position.store(self.appended, Ordering::Relaxed);
        self.stopped.push_back(g);
    }

    /// Puts `g` before all Gs that are not interrupted.
    pub(crate) fn push_interrupted(&mut self, g: &'static G) {
        self.interrupted.push_back(g);
    }

    /// Puts `gs` at the head of the main list.
    pub(crate) fn prepend(&mut self, gs: GList) {
        self.main_list.prepend(gs);
    }

    /// Returns the next G without removing it.
    pub(crate) fn front(&self) -> Option<&'static G> {
        let beside = self.interrupted.front().or_else(|| self.next_due_stopped());
        beside.or_else(|| self.main_list.front())
    }

    fn next_due_stopped(&self) -> Option<&'static G> {
        let passed = self.appended - (self.main_list.len() as u64).min(self.appended);
        let in_turn = |g: &&'static G| g.queue_position.load(Ordering::Relaxed) <= passed;
        self.stopped.front().filter(|g| self.main_list.is_empty() || in_turn(g))
    }

    /// Removes the next G, which [`GlobalQueue::front`] returns.
    /// Go: globrunqget.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<&'static G> {
        self.pop_stopped_or_interrupted().or_else(|| self.main_list.pop_front())
    }

    /// Removes the next G if it was stopped or interrupted; see [`GlobalQueue::pop_front`].
    #[inline]
    pub(crate) fn pop_stopped_or_interrupted(&mut self) -> Option<&'static G> {
        if self.stopped.is_empty() && self.interrupted.is_empty() {
            return None;
        }
        match self.next_due_stopped() {
            Some(_) if self.interrupted.is_empty() => self.stopped.pop_front(),
            _ => self.interrupted.pop_front(),
        }
    }

    /// Removes the first interrupted G.
    pub(crate) fn pop_interrupted(&mut self) -> Option<&'static G> {
        self.interrupted.pop_front()
    }

    /// Removes the first stopped G, even if it is not its turn.
    pub(crate) fn pop_stopped(&mut self) -> Option<&'static G> {
        self.stopped.pop_front()
    }

    pub(crate) fn has_interrupted(&self) -> bool {
        !self.interrupted.is_empty()
    }

    /// Removes the first G that was stopped or interrupted together with its M, even if it is not
    /// its turn.
    pub(crate) fn pop_pinned(&mut self) -> Option<&'static G> {
        self.stopped.pop_front().or_else(|| self.interrupted.take_where(is_pinned))
    }

    /// Removes the first G that only one M can run, from any list. The other Gs keep their order.
    pub(crate) fn remove_pinned(&mut self) -> Option<&'static G> {
        self.pop_pinned().or_else(|| self.main_list.take_where(is_pinned))
    }

    pub(crate) fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// Returns the main list, without the stopped and the interrupted Gs.
    pub(crate) fn any(&mut self) -> &mut GList {
        &mut self.main_list
    }
}

fn is_pinned(g: &'static G) -> bool {
    g.pinned.is_pinned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: usize) -> Vec<&'static G> {
        (0..count).map(|_| &*Box::leak(Box::new(G::new()))).collect()
    }

    fn drain(queue: &mut GlobalQueue, gs: &[&'static G]) -> Vec<usize> {
        let number = |g: &'static G| gs.iter().position(|other| std::ptr::eq(*other, g)).unwrap();
        let next = || {
            let front = queue.front().map(std::ptr::from_ref);
            let g = queue.pop_front();
            assert_eq!(front, g.map(std::ptr::from_ref));
            g
        };
        std::iter::from_fn(next).map(number).collect()
    }

    #[test]
    fn stopped_gs_are_popped_in_the_order_of_arrival() {
        let gs = some(6);
        let mut queue = GlobalQueue::new();
        queue.push_stopped(gs[0]);
        queue.push_back(gs[1]);
        queue.push_back(gs[2]);
        queue.push_stopped(gs[3]);
        queue.push_back(gs[4]);
        queue.push_stopped(gs[5]);
        assert_eq!(queue.len(), 6);
        assert_eq!(drain(&mut queue, &gs), [0, 1, 2, 3, 4, 5]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_interrupted_g_is_popped_first() {
        let gs = some(4);
        let mut queue = GlobalQueue::new();
        queue.push_back(gs[1]);
        queue.push_stopped(gs[2]);
        queue.push_interrupted(gs[0]);
        queue.push_back(gs[3]);
        assert!(queue.has_interrupted() && queue.has_stopped());
        assert_eq!(drain(&mut queue, &gs), [0, 1, 2, 3]);
    }
}
