//! [`OpenOptions`]: how a file is opened. Setting an option never makes a system call: only
//! `OpenOptions::open` does.

use super::file::File;
use crate::block::call::blocking;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Options for opening a file, like [`std::fs::OpenOptions`]. They open a [`File`] of this crate.
///
/// ```
/// use gosched::fs::OpenOptions;
///
/// let missing = OpenOptions::new().read(true).open("no such file");
/// assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

impl OpenOptions {
    /// Creates options that are all off. Set at least one of `read`, `write` and `append`.
    #[expect(clippy::new_without_default, reason = "as in std: default options cannot open a file")]
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// Sets whether the file can be read.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Sets whether the file can be written.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Sets whether each write goes to the current end of the file.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Sets whether an existing file is truncated to length 0.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Sets whether the file is created if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Sets whether the file must be new: opening it fails if it exists. The check and the creation
    /// are atomic.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// Sets the permissions of a file that is created; the default is 0o666. The bits of the
    /// process's `umask` are cleared.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    /// Sets additional flags for `open`, such as `O_NOFOLLOW` or `O_NONBLOCK`. Flags that set the
    /// access mode are ignored.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }

    /// Opens the file at `path`. If the call blocks, such as on a FIFO whose other end is not open,
    /// other goroutines run meanwhile.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        blocking(|| self.0.open(path)).map(File::from)
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(options: std::fs::OpenOptions) -> OpenOptions {
        OpenOptions(options)
    }
}
