//! Recognizes readers and writers of this crate, so that the kernel can move bytes between them.
//!
//! [`copy`](super::copy()) takes any reader and writer, as std's does. A trait bound would exclude
//! types of other crates, and separate functions for our types would have to be known to be used.
//! So `copy` compares the type with the types below, and with references to them, by [`TypeId`].
//!
//! `TypeId::of` requires a `'static` type, and the caller's type may borrow. [`id`] ignores
//! lifetimes. That is sound here: the types below have no lifetimes, and a reference to one of them
//! is used only as long as the caller's own value is borrowed.
//!
//! This module never moves bytes: `copy` passes the operation that does.

use super::{PipeReader, PipeWriter};
use crate::block::fs::File;
use crate::block::io::polled::Polled;
use crate::block::net::{TcpStream, UnixStream};
use crate::block::process::{ChildStderr, ChildStdin, ChildStdout};
use crate::sys::poller::Direction;
use std::any::TypeId;
use std::io;
use std::marker::PhantomData;
use std::mem::transmute;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

/// The source or the sink of a copy in the kernel.
#[derive(Clone, Copy)]
pub(super) enum CopyEnd<'a> {
    Socket(&'a dyn AnyPolled),
    Pipe(&'a dyn AnyPolled),
    File(&'a File),
}

/// An operation on a descriptor.
pub(super) type Use<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> io::Result<usize>;

/// A [`Polled`] whose source may be of any type.
pub(super) trait AnyPolled {
    /// See [`Polled::try_once`].
    fn try_once(&self, direction: Direction, f: Use<'_>) -> io::Result<usize>;

    /// See [`Polled::read`] and [`Polled::write`].
    fn wait(&self, direction: Direction, f: Use<'_>) -> io::Result<usize>;
}

impl<S: AsFd> AnyPolled for Polled<S> {
    fn try_once(&self, direction: Direction, f: Use<'_>) -> io::Result<usize> {
        Polled::try_once(self, direction, |source| f(source.as_fd()))
    }

    fn wait(&self, direction: Direction, f: Use<'_>) -> io::Result<usize> {
        match direction {
            Direction::Read => self.read(|source| f(source.as_fd())),
            Direction::Write => self.write(|source| f(source.as_fd())),
        }
    }
}

/// Recognizes a reader. Returns `None` if it is of another type.
pub(super) fn source<R: ?Sized>(reader: &R) -> Option<CopyEnd<'_>> {
    None.or_else(|| stream(reader))
        .or_else(|| downcast::<PipeReader, R>(reader).map(|pipe| CopyEnd::Pipe(&pipe.polled)))
        .or_else(|| downcast::<ChildStdout, R>(reader).map(|pipe| CopyEnd::Pipe(&pipe.polled)))
        .or_else(|| downcast::<ChildStderr, R>(reader).map(|pipe| CopyEnd::Pipe(&pipe.polled)))
}

/// Recognizes a writer. Returns `None` if it is of another type.
pub(super) fn sink<W: ?Sized>(writer: &W) -> Option<CopyEnd<'_>> {
    None.or_else(|| stream(writer))
        .or_else(|| downcast::<PipeWriter, W>(writer).map(|pipe| CopyEnd::Pipe(&pipe.polled)))
        .or_else(|| downcast::<ChildStdin, W>(writer).map(|pipe| CopyEnd::Pipe(&pipe.polled)))
}

/// Recognizes the types that can be both read and written.
fn stream<T: ?Sized>(value: &T) -> Option<CopyEnd<'_>> {
    None.or_else(|| downcast::<TcpStream, T>(value).map(|stream| CopyEnd::Socket(&stream.polled)))
        .or_else(|| downcast::<UnixStream, T>(value).map(|stream| CopyEnd::Socket(&stream.polled)))
        .or_else(|| downcast::<File, T>(value).map(CopyEnd::File))
}

/// Returns the value if it is a `T` or a reference to a `T`.
fn downcast<T: 'static, V: ?Sized>(value: &V) -> Option<&T> {
    let found = id::<V>();
    let place = ptr::from_ref(value);
    if found == TypeId::of::<T>() {
        // SAFETY: the value is a `T`, and the result borrows it as long as `value` is borrowed.
        return Some(unsafe { &*place.cast::<T>() });
    }
    if found == TypeId::of::<&'static T>() || found == TypeId::of::<&'static mut T>() {
        // SAFETY: the value is a reference to a `T`, which lives at least as long as `value` is
        // borrowed. If it is a `&mut T`, it cannot be used to change the `T` while `value` is
        // borrowed.
        return Some(unsafe { *place.cast::<&T>() });
    }
    None
}

/// Returns the id of a type, ignoring lifetimes: types that differ only in lifetimes have the same
/// id.
fn id<V: ?Sized>() -> TypeId {
    trait HasId {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<V: ?Sized> HasId for PhantomData<V> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<V>()
        }
    }
    let nothing = PhantomData::<V>;
    let borrowed: &dyn HasId = &nothing;
    // SAFETY: only lifetimes change, and the value behind the reference contains nothing that could
    // be used for too long.
    let forever = unsafe { transmute::<&dyn HasId, &(dyn HasId + 'static)>(borrowed) };
    forever.id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn values_and_references_are_recognized_and_wrappers_are_not() {
        let (mut stream, _other) = UnixStream::pair().unwrap();
        let (reader, writer) = crate::io::pipe().unwrap();
        assert!(matches!(source(&stream), Some(CopyEnd::Socket(_))));
        assert!(matches!(source(&&stream), Some(CopyEnd::Socket(_))));
        assert!(matches!(sink(&&mut stream), Some(CopyEnd::Socket(_))));
        assert!(matches!(
            (source(&reader), sink(&&writer)),
            (Some(CopyEnd::Pipe(_)), Some(CopyEnd::Pipe(_)))
        ));
        assert!(sink(&reader).is_none() && source(&writer).is_none());
        let null = File::open("/dev/null").unwrap();
        assert!(matches!(
            (source(&null), sink(&&null)),
            (Some(CopyEnd::File(_)), Some(CopyEnd::File(_)))
        ));
        assert!(source(&std::io::BufReader::new(&stream)).is_none());
        let any: &mut dyn Read = &mut stream;
        assert!(source(any).is_none() && source(&any).is_none());
        assert!(source(&&&reader).is_none() && source::<[u8]>(&[]).is_none());
    }

    #[test]
    fn downcast_returns_the_value_itself() {
        let null = File::open("/dev/null").unwrap();
        assert!(downcast::<File, &&File>(&&&null).is_none());
        assert!(ptr::eq(downcast::<File, &File>(&&null).unwrap(), &null));
        assert!(ptr::eq(downcast::<File, File>(&null).unwrap(), &null));
    }
}
