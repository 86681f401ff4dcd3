//! The public methods and traits that all polled types have in common. The macro never implements a
//! read or a write: each type does.

/// Implements `close`, `AsFd`, `AsRawFd`, `Debug`, and the conversions from and to std's type. The
/// type itself must have `from_std` and `into_std`.
macro_rules! fd_api {
    ($name:ident, $std:ty) => {
        impl $name {
            /// Closes the descriptor. Calls that wait on it, and all later calls, fail with
            /// [`NotConnected`](io::ErrorKind::NotConnected). When `close` returns, no call is in
            /// progress and the descriptor is closed.
            ///
            /// # Errors
            /// The descriptor was already closed.
            pub fn close(&self) -> io::Result<()> {
                self.polled.close()
            }
        }

        impl AsFd for $name {
            /// Returns the descriptor. After a `close`, returns a valid descriptor that can be
            /// neither read, written nor changed.
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.polled.lend()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl TryFrom<$std> for $name {
            type Error = io::Error;
            fn try_from(std: $std) -> io::Result<$name> {
                $name::from_std(std)
            }
        }

        impl TryFrom<$name> for $std {
            type Error = io::Error;
            fn try_from(polled: $name) -> io::Result<$std> {
                polled.into_std()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.polled.fmt(f)
            }
        }
    };
}
