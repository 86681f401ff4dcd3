//! A value that shares its cache line with no other value. The wrapper never gives mutable access
//! to the value.

/// A value aligned to a pair of cache lines, because the CPU prefetches cache lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }
}

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
