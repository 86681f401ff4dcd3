//! How a file is opened.

use super::file::File;
use crate::block::call::blocking;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How a file is opened: [`std::fs::OpenOptions`], which opens a [`File`] of ours.
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
    /// Nothing is allowed yet.
    #[expect(clippy::new_without_default, reason = "as std's: a default would open nothing")]
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// Whether the file can be read.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Whether the file can be written.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Whether every write goes to the end of the file, wherever that is by then.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Whether a file that is there loses its contents.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Whether a file that is not there is created.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Whether the file must not be there yet: it is created, or the call fails, in one step.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// The permissions of a file that is created, less the process's `umask`; 0o666 unless told.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    /// More flags for `open`, such as `O_NOFOLLOW` or `O_NONBLOCK`; those about the access are not changed.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }

    /// Opens the file. One that waits for its other end (a FIFO) keeps nobody else waiting.
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
