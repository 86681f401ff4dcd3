//! `Read` and `Write` for a type whose shared references already implement them. A call on the
//! value is never anything but the same call on a reference.

/// Implements `Read` for these types through `Read` for references to them.
macro_rules! read_by_reference {
    ($($name:ty),+) => {$(
        impl std::io::Read for $name {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(buffers)
            }

            fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
                (&*self).read_to_end(buffer)
            }

            fn read_to_string(&mut self, buffer: &mut String) -> std::io::Result<usize> {
                (&*self).read_to_string(buffer)
            }

            fn read_exact(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
                (&*self).read_exact(buffer)
            }
        }
    )+};
}

/// Implements `Write` for these types through `Write` for references to them.
macro_rules! write_by_reference {
    ($($name:ty),+) => {$(
        impl std::io::Write for $name {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                (&*self).write(bytes)
            }

            fn write_vectored(&mut self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(parts)
            }

            fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
                (&*self).write_all(bytes)
            }

            fn write_fmt(&mut self, what: std::fmt::Arguments<'_>) -> std::io::Result<()> {
                (&*self).write_fmt(what)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                (&*self).flush()
            }
        }
    )+};
}

pub(crate) use {read_by_reference, write_by_reference};
