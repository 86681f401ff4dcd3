//! What users see of everything that is polled, whatever it is.

/// `close`, the descriptor, and the ways from and to std's type; `from_std` and `into_std` are the type's own.
macro_rules! fd_api {
    ($name:ident, $std:ty) => {
        impl $name {
            /// Closes it. All calls on it end, with [`NotConnected`](io::ErrorKind::NotConnected), and it is closed
            /// when this returns.
            ///
            /// # Errors
            /// It was closed before.
            pub fn close(&self) -> io::Result<()> {
                self.polled.close()
            }
        }

        impl AsFd for $name {
            /// After a `close` this is a descriptor with which nothing can be done.
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
