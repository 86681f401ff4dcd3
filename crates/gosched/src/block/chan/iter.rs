//! Iterators over the values that a channel receives. An iterator never receives ahead: each call
//! of `next` takes at most one value.

use super::receiver::Receiver;
use std::iter::FusedIterator;

/// A blocking iterator over received values, returned by [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// A non-blocking iterator over received values, returned by [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T>(&'a Receiver<T>);

/// A blocking iterator over received values that owns its [`Receiver`].
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<'a, T> Iter<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Iter<'a, T> {
        Iter(receiver)
    }
}

impl<'a, T> TryIter<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> TryIter<'a, T> {
        TryIter(receiver)
    }
}

impl<T> IntoIter<T> {
    pub(super) fn new(receiver: Receiver<T>) -> IntoIter<T> {
        IntoIter(receiver)
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> FusedIterator for Iter<'_, T> {}
impl<T> FusedIterator for IntoIter<T> {}
