//! A value that shares its cache line with no other.

/// Begins a cache line (and the one that the CPU fetches with it).
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Apart<T>(T);

impl<T> Apart<T> {
    pub(crate) const fn new(value: T) -> Apart<T> {
        Apart(value)
    }
}

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
