//! Files and directories behave as those of std, in goroutines and on threads. A call that blocks
//! does not hold up other goroutines.

use gosched::fs::{self, DirBuilder, File, FileTimes, OpenOptions, TryLockError};
use gosched::{__rules as rules, blocking, chan, go, goexit, run};
use gosched_tests::actors::{ActorKind, in_goroutine_and_thread, join_all, run_alternating};
use gosched_tests::children;
use gosched_tests::sockets::{tcp_pair, unique_name};
use gosched_tests::wait::{settle, until};
use std::ffi::{CString, OsString};
use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

/// A temporary directory of one test, removed when this value is dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        let path = std::env::temp_dir().join(unique_name());
        std::fs::create_dir(&path).unwrap();
        TempDir(path.canonicalize().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let text = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: `text` is a C string.
        assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
        path
    }

    /// Returns the number of the process's descriptors that refer to files in this directory.
    fn descriptors(&self) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(&self.0)).count()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `f` in a goroutine and in a thread, in a new directory each time.
fn in_temp_dir(f: impl Fn(&TempDir) + Clone + Send + 'static) {
    in_goroutine_and_thread(move || f(&TempDir::new()));
}

#[track_caller]
fn assert_same_error<A: Debug, B: Debug>(ours: io::Result<A>, stds: io::Result<B>) {
    let (ours, stds) = (ours.unwrap_err(), stds.unwrap_err());
    assert_eq!(ours.kind(), stds.kind());
    assert_eq!(ours.raw_os_error(), stds.raw_os_error());
    assert_eq!(ours.to_string(), stds.to_string());
}

/// Asserts that a call fails with the same error in `gosched::fs` and in `std::fs`.
macro_rules! same_error {
    ($($call:tt)*) => {
        assert_same_error({ use gosched::fs; fs::$($call)* }, { use std::fs; fs::$($call)* })
    };
}

/// Checks all functions that take the path of something that must exist.
fn all_fail_alike_on(path: &Path, place: &TempDir) {
    let other = place.path("other");
    same_error!(File::open(path));
    same_error!(OpenOptions::new().read(true).write(true).open(path));
    same_error!(read(path));
    same_error!(read_to_string(path));
    same_error!(copy(path, &other));
    same_error!(rename(path, &other));
    same_error!(remove_file(path));
    same_error!(remove_dir(path));
    same_error!(remove_dir_all(path));
    same_error!(metadata(path));
    same_error!(symlink_metadata(path));
    same_error!(set_permissions(path, std::fs::Permissions::from_mode(0o600)));
    same_error!(read_dir(path));
    same_error!(canonicalize(path));
    same_error!(hard_link(path, &other));
    same_error!(read_link(path));
}

#[test]
fn calls_on_a_missing_path_fail_as_those_of_std() {
    in_temp_dir(|place| {
        let missing = place.path("missing");
        all_fail_alike_on(&missing, place);
        assert_eq!(File::open(&missing).unwrap_err().kind(), ErrorKind::NotFound);
        all_fail_alike_on(Path::new(""), place);
        let deep = missing.join("deep");
        same_error!(write(&deep, "text"));
        same_error!(File::create(&deep));
        same_error!(File::create_new(&deep));
        same_error!(create_dir(&deep));
        same_error!(DirBuilder::new().create(&deep));
        assert_same_error(fs::symlink("x", &deep), std::os::unix::fs::symlink("x", &deep));
        assert!(!fs::exists(&missing).unwrap());
    });
}

#[test]
fn a_name_with_a_zero_byte_is_invalid() {
    in_temp_dir(|place| {
        let invalid = PathBuf::from(OsString::from_vec(b"a\0b".to_vec()));
        all_fail_alike_on(&invalid, place);
        same_error!(exists(&invalid));
        same_error!(write(&invalid, "text"));
        same_error!(create_dir_all(&invalid));
        same_error!(File::create(&invalid));
        assert_eq!(fs::read(&invalid).unwrap_err().kind(), ErrorKind::InvalidInput);
        let link = place.path("link");
        assert_same_error(
            fs::symlink(&invalid, &link),
            std::os::unix::fs::symlink(&invalid, &link),
        );
    });
}

#[test]
fn a_path_through_a_file_or_a_name_that_is_too_long_is_refused() {
    in_temp_dir(|place| {
        let through = place.file("file", "text").join("below");
        all_fail_alike_on(&through, place);
        same_error!(create_dir_all(&through));
        assert_eq!(fs::read(&through).unwrap_err().kind(), ErrorKind::NotADirectory);
        all_fail_alike_on(&place.path(&"n".repeat(300)), place);
    });
}

#[test]
fn a_directory_is_no_file_and_a_file_no_directory() {
    in_temp_dir(|place| {
        let file = place.file("file", "text");
        same_error!(read(&place.0));
        same_error!(write(&place.0, "text"));
        same_error!(remove_file(&place.0));
        same_error!(copy(&place.0, place.path("copy")));
        same_error!(read_dir(&file));
        same_error!(remove_dir(&file));
        same_error!(rename(&place.0, &file));
        same_error!(read_link(&file));
        same_error!(remove_dir(&place.0));
        assert_eq!(fs::write(&place.0, "").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(fs::remove_dir(&place.0).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
    });
}

#[test]
fn an_existing_file_or_directory_is_not_created_again() {
    in_temp_dir(|place| {
        let file = place.file("file", "text");
        same_error!(File::create_new(&file));
        same_error!(create_dir(&file));
        same_error!(create_dir_all(&file));
        same_error!(hard_link(&file, &file));
        same_error!(create_dir(&place.0));
        assert_same_error(fs::symlink("x", &file), std::os::unix::fs::symlink("x", &file));
        assert_eq!(File::create_new(&file).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
    });
}

#[test]
fn writing_to_a_full_disk_is_an_error() {
    in_temp_dir(|place| {
        same_error!(write("/dev/full", "text"));
        let ours = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let stds = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_same_error((&ours).write(b"text"), (&stds).write(b"text"));
        assert_same_error(
            (&ours).write_vectored(&[IoSlice::new(b"text")]),
            (&stds).write_vectored(&[IoSlice::new(b"text")]),
        );
        assert_same_error(ours.write_all_at(b"text", 7), stds.write_all_at(b"text", 7));
        assert_eq!((&ours).write(b"text").unwrap_err().kind(), ErrorKind::StorageFull);
        same_error!(copy(place.file("file", "text"), "/dev/full"));
    });
}

#[test]
fn calls_that_an_open_file_does_not_allow_are_refused() {
    in_temp_dir(|place| {
        let path = place.file("file", "text");
        let (ours, stds) = (File::open(&path).unwrap(), std::fs::File::open(&path).unwrap());
        assert_same_error((&ours).write(b"x"), (&stds).write(b"x"));
        assert_same_error(ours.write_at(b"x", 0), stds.write_at(b"x", 0));
        assert_same_error(ours.set_len(1), stds.set_len(1));
        assert_same_error((&ours).seek(SeekFrom::Current(-1)), (&stds).seek(SeekFrom::Current(-1)));
        assert_same_error(ours.read_at(&mut [0], u64::MAX), stds.read_at(&mut [0], u64::MAX));
        let buffer = &mut [0; 8];
        assert_same_error(ours.read_exact_at(buffer, 1), stds.read_exact_at(&mut [0; 8], 1));
        assert_eq!(ours.read_exact_at(buffer, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        same_error!(OpenOptions::new().open(&path));
        same_error!(OpenOptions::new().read(true).truncate(true).open(&path));

        let append = |options: &mut OpenOptions| options.append(true).open(&path).unwrap();
        let ours = append(&mut OpenOptions::new());
        let stds = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_same_error((&ours).read(&mut [0]), (&stds).read(&mut [0]));
        assert_same_error((&ours).read_to_end(&mut vec![]), (&stds).read_to_end(&mut vec![]));

        let fifo = place.fifo("fifo");
        let open = |path| std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (ours, stds) = (File::from(open(&fifo)), open(&fifo));
        assert_same_error(ours.read_at(&mut [0], 0), stds.read_at(&mut [0], 0));
        assert_same_error((&ours).seek(SeekFrom::Start(0)), (&stds).seek(SeekFrom::Start(0)));
        assert_same_error(ours.sync_all(), stds.sync_all());
        assert_same_error(ours.sync_data(), stds.sync_data());
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    });
}

#[test]
fn text_must_be_utf_8() {
    in_temp_dir(|place| {
        let path = place.file("file", b"\xff\xfe");
        same_error!(read_to_string(&path));
        let mut text = "before".to_owned();
        let error = File::open(&path).unwrap().read_to_string(&mut text).unwrap_err();
        assert_eq!((error.kind(), text.as_str()), (ErrorKind::InvalidData, "before"));
        assert_eq!(fs::read(&path).unwrap(), b"\xff\xfe");
    });
}

/// The environment variable with the path of the directory that a child uses.
const PLACE: &str = "GOSCHED_TEST_PLACE";

#[test]
fn accesses_without_permission_are_denied() {
    let place = TempDir::new();
    let secret = place.file("secret", "text");
    let closed = place.path("closed");
    std::fs::create_dir(&closed).unwrap();
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    allow(&secret, 0o000).unwrap();
    allow(&closed, 0o000).unwrap();
    let output = children::command("denied").env(PLACE, &place.0).output().unwrap();
    allow(&closed, 0o700).unwrap();
    assert!(output.status.success(), "{}", children::stderr(&output));
}

/// Checks accesses without permission, as a user other than root.
fn denied() {
    // SAFETY: geteuid has no precondition.
    let root = unsafe { libc::geteuid() } == 0;
    // SAFETY: there is no goroutine yet, and no other thread depends on the user id.
    if root && unsafe { libc::setuid(65534) } != 0 {
        return eprintln!("skipped: root cannot become somebody else");
    }
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    in_goroutine_and_thread(move || {
        let (secret, closed) = (place.join("secret"), place.join("closed"));
        same_error!(File::open(&secret));
        same_error!(read(&secret));
        same_error!(write(&secret, "text"));
        same_error!(read_dir(&closed));
        same_error!(metadata(closed.join("x")));
        same_error!(exists(closed.join("x")));
        same_error!(create_dir(closed.join("x")));
        same_error!(remove_file(closed.join("x")));
        assert_eq!(fs::read(&secret).unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
}

#[test]
fn reads_and_writes_continue_at_the_file_position() {
    in_temp_dir(|place| {
        let mut file = File::create_new(place.path("file")).unwrap();
        file.write_all(b"one two three").unwrap();
        (&file).write_all(b" four").unwrap();
        file.flush().unwrap();
        assert_eq!(file.stream_position().unwrap(), 18);
        assert_eq!(file.seek(SeekFrom::Start(4)).unwrap(), 4);
        let mut word = [0; 3];
        file.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"two");
        assert_eq!((&file).seek(SeekFrom::Current(1)).unwrap(), 8);
        let mut text = String::from("-");
        assert_eq!((&file).read_to_string(&mut text).unwrap(), 10);
        assert_eq!(text, "-three four");
        assert_eq!(file.read(&mut word).unwrap(), 0);
        assert_eq!(file.seek(SeekFrom::End(-4)).unwrap(), 14);
        let mut bytes = vec![b'-'];
        assert_eq!(file.read_to_end(&mut bytes).unwrap(), 4);
        assert_eq!(bytes, b"-four");
        file.rewind().unwrap();
        assert_eq!(file.read(&mut []).unwrap(), 0);
        assert_eq!((&file).write(&[]).unwrap(), 0);
        assert_eq!(file.stream_position().unwrap(), 0);
    });
}

#[test]
fn vectored_file_calls_use_all_buffers() {
    in_temp_dir(|place| {
        let mut file = File::create_new(place.path("file")).unwrap();
        let written = file.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cdef")]).unwrap();
        assert_eq!(written, 6);
        assert_eq!((&file).write_vectored(&[IoSlice::new(b"gh"), IoSlice::new(b"i")]).unwrap(), 3);
        file.rewind().unwrap();
        let (mut first, mut second) = ([0; 4], [0; 8]);
        let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(file.read_vectored(&mut buffers).unwrap(), 9);
        assert_eq!((&first, &second), (b"abcd", b"efghi\0\0\0"));
        assert_eq!((&file).read_vectored(&mut [IoSliceMut::new(&mut first)]).unwrap(), 0);
    });
}

#[test]
fn positional_calls_do_not_move_the_file_position() {
    in_temp_dir(|place| {
        let mut file = File::create_new(place.path("file")).unwrap();
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(3)).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 8).unwrap(), 2);
        assert_eq!(&bytes, b"89\0\0");
        assert_eq!(file.read_at(&mut bytes, 10).unwrap(), 0);
        file.read_exact_at(&mut bytes, 6).unwrap();
        assert_eq!(&bytes, b"6789");
        assert_eq!(file.write_at(b"ab", 1).unwrap(), 2);
        file.write_all_at(b"end", 12).unwrap();
        assert_eq!(file.stream_position().unwrap(), 3);
        assert_eq!(std::fs::read(place.path("file")).unwrap(), b"0ab3456789\0\0end");

        fn last_byte(file: &impl FileExt) -> u8 {
            let byte = &mut [0];
            file.read_exact_at(byte, 14).unwrap();
            file.write_all_at(b"!", 14).unwrap();
            byte[0]
        }
        assert_eq!((last_byte(&file), last_byte(&file)), (b'd', b'!'));
    });
}

#[test]
fn a_file_is_opened_according_to_its_options() {
    in_temp_dir(|place| {
        let path = place.path("file");
        let contents = || std::fs::read_to_string(&path).unwrap();
        let mut appending = File::options();
        appending.append(true).create(true).mode(0o600);
        let mut one = appending.open(&path).unwrap();
        let mut two = appending.clone().open(&path).unwrap();
        assert_eq!(one.metadata().unwrap().mode() & 0o7777, 0o600);
        one.write_all(b"a").unwrap();
        two.write_all(b"b").unwrap();
        one.write_all(b"c").unwrap();
        assert_eq!(contents(), "abc");
        OpenOptions::new().write(true).open(&path).unwrap().write_all(b"A").unwrap();
        assert_eq!(contents(), "Abc");
        drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        assert_eq!(contents(), "");
        OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err();
        File::create(&path).unwrap().write_all(b"longer").unwrap();
        File::create(&path).unwrap().write_all(b"new").unwrap();
        assert_eq!(contents(), "new");

        let link = place.path("link");
        fs::symlink(&path, &link).unwrap();
        File::open(&link).unwrap();
        let mut no_links = OpenOptions::from(std::fs::File::options());
        no_links.read(true).custom_flags(libc::O_NOFOLLOW).open(&path).unwrap();
        let error = no_links.open(&link).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    });
}

#[test]
fn a_file_s_length_times_and_permissions_can_be_changed() {
    in_temp_dir(|place| {
        let path = place.file("file", "0123456789");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(4).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0123");
        file.set_len(6).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0123\0\0");
        assert_eq!(file.metadata().unwrap().len(), 6);

        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let later = then + Duration::from_secs(5);
        file.set_times(FileTimes::new().set_accessed(then).set_modified(then)).unwrap();
        file.set_modified(later).unwrap();
        let known = fs::metadata(&path).unwrap();
        assert_eq!((known.accessed().unwrap(), known.modified().unwrap()), (then, later));

        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(mode(), 0o640);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(mode(), 0o400);
    });
}

#[test]
fn clones_share_the_position_and_outlive_each_other() {
    in_temp_dir(|place| {
        let mut file = File::open(place.file("file", "abcdef")).unwrap();
        let mut clone = file.try_clone().unwrap();
        assert_ne!(file.as_raw_fd(), clone.as_raw_fd());
        let mut bytes = [0; 2];
        file.read_exact(&mut bytes).unwrap();
        clone.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"cd");
        drop(file);
        clone.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ef");
        assert_eq!(place.descriptors(), 1);
    });
}

#[test]
fn a_file_converts_to_std_and_back() {
    in_temp_dir(|place| {
        let file = File::open(place.file("file", "text")).unwrap();
        let number = file.as_raw_fd();
        assert_eq!(file.as_fd().as_raw_fd(), number);
        let printed = format!("{file:?}");
        let mut stds = std::fs::File::from(file);
        assert_eq!((stds.as_raw_fd(), format!("{stds:?}")), (number, printed));
        stds.seek(SeekFrom::Start(1)).unwrap();
        let descriptor = OwnedFd::from(File::from(stds));
        assert_eq!(place.descriptors(), 1);
        let mut file = File::from(descriptor);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((file.as_raw_fd(), text.as_str()), (number, "ext"));
        let raw = file.into_raw_fd();
        assert_eq!((raw, place.descriptors()), (number, 1));
        // SAFETY: `into_raw_fd` gave up the ownership of the descriptor.
        assert_eq!(unsafe { libc::close(raw) }, 0);

        let output = File::create(place.path("output")).unwrap();
        let child = Command::new("echo").arg("hello").stdout(Stdio::from(output)).status();
        assert!(child.unwrap().success());
        assert_eq!(fs::read(place.path("output")).unwrap(), b"hello\n");
        assert_eq!(place.descriptors(), 0);
    });
}

#[test]
fn whole_files_are_read_written_and_copied() {
    in_temp_dir(|place| {
        let path = place.path("file");
        let large: Vec<u8> =
            (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(&path, &large).unwrap();
        assert_eq!(fs::read(&path).unwrap(), large);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let copy = place.file("copy", "x".repeat(400_000));
        assert_eq!(fs::copy(&path, &copy).unwrap(), 300_000);
        assert_eq!(fs::read(&copy).unwrap(), large);
        assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o777, 0o640);
        fs::write(&path, "short, with ü").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short, with ü");
        // This file reports a length of 0.
        assert!(fs::read_to_string("/proc/self/status").unwrap().contains("Name:"));
    });
}

#[test]
fn files_are_renamed_linked_and_removed() {
    in_temp_dir(|place| {
        let [one, two, three] = ["one", "two", "three"].map(|name| place.path(name));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        fs::rename(&one, &two).unwrap();
        assert!(!fs::exists(&one).unwrap() && fs::exists(&two).unwrap());
        fs::hard_link(&two, &one).unwrap();
        assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
        fs::symlink("two", &three).unwrap();
        assert_eq!(fs::read_link(&three).unwrap(), Path::new("two"));
        assert!(fs::symlink_metadata(&three).unwrap().is_symlink());
        assert!(fs::metadata(&three).unwrap().is_file());
        assert_eq!(fs::canonicalize(place.path("./three")).unwrap(), two);
        fs::remove_file(&one).unwrap();
        fs::remove_file(&two).unwrap();
        // The target of the link is removed, the link is not.
        assert!(!fs::exists(&three).unwrap());
        fs::remove_file(&three).unwrap();
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);
    });
}

#[test]
fn directories_are_created_and_removed() {
    in_temp_dir(|place| {
        fs::create_dir(place.path("a")).unwrap();
        fs::create_dir_all(place.path("a/b/c")).unwrap();
        fs::create_dir_all(place.path("a/b/c")).unwrap();
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(place.path("d")).unwrap();
        assert_eq!(fs::metadata(place.path("d")).unwrap().mode() & 0o7777, 0o700);
        builder.create(place.path("d")).unwrap_err();
        builder.create(place.path("d/e/f")).unwrap_err();
        builder.recursive(true).create(place.path("d/e/f")).unwrap();
        builder.create(place.path("d")).unwrap();

        let kept = place.file("kept", "text");
        fs::symlink(&kept, place.path("a/b/link")).unwrap();
        fs::symlink(place.path("d"), place.path("a/directory")).unwrap();
        fs::remove_dir(place.path("a/b/c")).unwrap();
        fs::remove_dir_all(place.path("a")).unwrap();
        assert!(!fs::exists(place.path("a")).unwrap());
        assert!(fs::exists(kept).unwrap() && fs::exists(place.path("d/e/f")).unwrap());
    });
}

#[test]
fn a_directory_lists_its_entries() {
    in_temp_dir(|place| {
        let inode = fs::metadata(place.file("file", "text")).unwrap().ino();
        fs::create_dir(place.path("directory")).unwrap();
        fs::symlink("file", place.path("link")).unwrap();
        let mut found: Vec<_> = fs::read_dir(&place.0).unwrap().map(Result::unwrap).collect();
        found.sort_by_key(fs::DirEntry::file_name);
        // The entries keep the directory open.
        assert_eq!(place.descriptors(), 1);
        let names: Vec<_> = found.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(names, ["directory", "file", "link"]);
        assert!(found[0].file_type().unwrap().is_dir());
        assert!(found[2].file_type().unwrap().is_symlink());
        assert!(found[2].metadata().unwrap().is_symlink());
        assert_eq!((found[1].path(), found[1].ino()), (place.path("file"), inode));
        assert_eq!(found[1].metadata().unwrap().len(), 4);
        assert!(format!("{:?}", found[1]).contains("file"));
        fs::remove_file(found[1].path()).unwrap();
        assert_eq!(found[1].metadata().unwrap_err().kind(), ErrorKind::NotFound);
        drop(found);
        assert_eq!(place.descriptors(), 0);
    });
}

#[test]
fn many_parties_can_list_a_large_directory_at_once() {
    let place = Arc::new(TempDir::new());
    for i in 0..2000 {
        place.file(&format!("a file with a name that is not short, number {i}"), "");
    }
    run_alternating(8, {
        let place = place.clone();
        move |_| {
            let entries = fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(entries.collect::<std::collections::HashSet<_>>().len(), 2000);
        }
    });
    assert_eq!(place.descriptors(), 0);
}

const BLOCK: usize = 4096;

/// Returns the contents of the block with this number.
fn contents(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..BLOCK / 8).flat_map(|_| next()).collect()
}

#[test]
fn many_parties_can_read_and_write_one_file_at_different_offsets() {
    const WRITERS: u64 = 32;
    const EACH: u64 = 8;
    let place = TempDir::new();
    let file = Arc::new(File::create_new(place.path("file")).unwrap());
    run_alternating(WRITERS as usize, {
        let file = file.clone();
        move |i| {
            for number in (0..EACH).map(|nth| nth * WRITERS + i as u64) {
                file.write_all_at(&contents(number), number * BLOCK as u64).unwrap();
            }
        }
    });
    assert_eq!(file.metadata().unwrap().len(), WRITERS * EACH * BLOCK as u64);
    let expected: Arc<Vec<Vec<u8>>> = Arc::new((0..WRITERS * EACH).map(contents).collect());
    run_alternating(64, {
        let file = file.clone();
        move |i| {
            let mut block = [0; BLOCK];
            for nth in 0..200 {
                let number = (i * 37 + nth * 101) % expected.len();
                match nth % 2 {
                    0 => file.read_exact_at(&mut block, (number * BLOCK) as u64).unwrap(),
                    _ => assert_eq!(
                        file.read_at(&mut block, (number * BLOCK) as u64).unwrap(),
                        BLOCK
                    ),
                }
                assert!(block[..] == expected[number], "block {number}");
            }
        }
    });
}

#[test]
fn lines_appended_by_many_parties_stay_whole() {
    let place = TempDir::new();
    let path = place.path("file");
    run_alternating(16, {
        let path = path.clone();
        move |i| {
            let mut file = File::options().append(true).create(true).open(&path).unwrap();
            for nth in 0..50 {
                file.write_all(format!("{i} {nth}\n").as_bytes()).unwrap();
            }
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let lines: std::collections::HashSet<&str> = text.lines().collect();
    assert_eq!((lines.len(), text.lines().count()), (800, 800));
}

#[test]
fn a_file_lock_is_exclusive_or_shared() {
    in_temp_dir(|place| {
        let path = place.file("file", "");
        let [one, two] = [(); 2].map(|()| File::open(&path).unwrap());
        one.lock().unwrap();
        assert!(matches!(two.try_lock(), Err(TryLockError::WouldBlock)));
        assert!(matches!(two.try_lock_shared(), Err(TryLockError::WouldBlock)));
        one.unlock().unwrap();
        one.lock_shared().unwrap();
        two.try_lock_shared().unwrap();
        assert!(matches!(two.try_lock(), Err(TryLockError::WouldBlock)));
        drop(one);
        two.try_lock().unwrap();
        two.unlock().unwrap();
    });
}

#[test]
fn goroutines_and_threads_wait_for_a_lock() {
    let place = TempDir::new();
    let path = place.file("count", "0");
    run_alternating(8, {
        let path = path.clone();
        move |_| {
            for _ in 0..10 {
                let file = File::open(&path).unwrap();
                file.lock().unwrap();
                let count: u32 = fs::read_to_string(&path).unwrap().parse().unwrap();
                gosched::yield_now();
                fs::write(&path, (count + 1).to_string()).unwrap();
            }
        }
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "80");
}

#[test]
fn other_goroutines_run_while_some_wait_for_the_other_end_of_a_fifo() {
    for procs in ["1", "2"] {
        let output = children::command("fifo").env("GOMAXPROCS", procs).output().unwrap();
        assert!(output.status.success(), "{procs} Ps: {}", children::stderr(&output));
    }
}

fn fifo() {
    const PIPES: usize = 6;
    let place = TempDir::new();
    let names: Vec<PathBuf> = (0..PIPES).map(|i| place.fifo(&format!("fifo {i}"))).collect();
    let done = Arc::new(AtomicUsize::new(0));
    run(move || {
        let readers: Vec<_> = names
            .iter()
            .map(|path| {
                let (path, done) = (path.clone(), done.clone());
                go(move || {
                    let mut file = File::open(path).unwrap();
                    let mut bytes = [0; 5];
                    file.read_exact(&mut bytes[..2]).unwrap();
                    file.read_exact(&mut bytes[2..]).unwrap();
                    done.fetch_add(1, SeqCst);
                    bytes
                })
            })
            .collect();
        exchange();
        assert_eq!(done.load(SeqCst), 0);
        // The readers have opened their files, and get fewer bytes than they need.
        let mut writers: Vec<File> = names.iter().map(open_to_write).collect();
        writers.iter_mut().for_each(|writer| writer.write_all(b"he").unwrap());
        exchange();
        assert_eq!(done.load(SeqCst), 0);
        writers.iter_mut().for_each(|writer| writer.write_all(b"llo").unwrap());
        for reader in readers {
            assert_eq!(&reader.join().unwrap(), b"hello");
        }
    });
}

fn open_to_write(path: &PathBuf) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// Exchanges a thousand messages with another goroutine, and sleeps after every 250th.
fn exchange() {
    let (there, theirs) = chan::<u32>(0);
    let (back, ours) = chan::<u32>(0);
    go(move || {
        while let Ok(number) = theirs.recv() {
            back.send(number + 1).unwrap();
        }
    });
    for number in 0..1000 {
        there.send(number).unwrap();
        assert_eq!(ours.recv().unwrap(), number + 1);
        if number % 250 == 0 {
            gosched::time::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
#[cfg_attr(feature = "threads", ignore = "goroutines are threads")]
fn file_calls_that_block_are_marked() {
    let output = children::command("marked").env("GOMAXPROCS", "1").output().unwrap();
    assert!(output.status.success(), "{}", children::stderr(&output));
}

/// Checks, with one P, that `call` blocks until `end`, and that its P is handed off because the
/// call is marked.
fn assert_marked(what: &str, call: impl FnOnce() + Send + 'static, end: impl FnOnce()) {
    let before = rules::hand_offs();
    let over = Arc::new(AtomicBool::new(false));
    let caller = go({
        let over = over.clone();
        move || {
            call();
            over.store(true, SeqCst);
        }
    });
    let is_marked = || rules::hand_offs().0 > before.0;
    until(&format!("{what} is marked"), || is_marked() || over.load(SeqCst));
    assert!(!over.load(SeqCst), "{what} does not wait");
    blocking(end);
    caller.join().unwrap();
}

fn marked() {
    let place = TempDir::new();
    let path = Arc::new(place.fifo("fifo"));
    let file = place.file("file", "");
    let text = |path: &Path| drop(std::fs::write(path, "text"));
    run(|| {
        let fifo = path.clone();
        assert_marked("open", move || drop(File::open(&*fifo).unwrap()), || text(&path));
        let fifo = path.clone();
        let read = move || assert_eq!(fs::read(&*fifo).unwrap(), b"text");
        assert_marked("read all", read, || text(&path));
        let fifo = path.clone();
        let read = move || assert_eq!(fs::read_to_string(&*fifo).unwrap(), "text");
        assert_marked("read text", read, || text(&path));
        let (fifo, to) = (path.clone(), place.path("copy"));
        // `copy` opens the FIFO, and then fails because it is not a regular file.
        let copy = move || drop(fs::copy(&*fifo, to).unwrap_err());
        assert_marked("copy", copy, || text(&path));
        let fifo = path.clone();
        let write = move || fs::write(&*fifo, "text").unwrap();
        assert_marked("write all", write, || assert_eq!(std::fs::read(&*path).unwrap(), b"text"));

        let open = || File::options().read(true).write(true).open(&*path).unwrap();
        let (end, both) = (open(), open());
        let read = move || assert_eq!((&both).read(&mut [0; 9]).unwrap(), 2);
        assert_marked("read", read, || (&end).write_all(b"ab").unwrap());
        let both = end.try_clone().unwrap();
        let read = move || {
            let mut bytes = [0; 9];
            let read = (&both).read_vectored(&mut [IoSliceMut::new(&mut bytes)]);
            assert_eq!(read.unwrap(), 2);
        };
        assert_marked("read to many", read, || (&end).write_all(b"ab").unwrap());
        // More bytes than a pipe holds.
        const PIPE_OVERFILL_BYTES: usize = 1 << 20;
        let both = end.try_clone().unwrap();
        let write = move || (&both).write_all(&vec![7; PIPE_OVERFILL_BYTES]).unwrap();
        assert_marked("write", write, || {
            (&end).read_exact(&mut vec![0; PIPE_OVERFILL_BYTES]).unwrap()
        });
        let both = end.try_clone().unwrap();
        let write = move || {
            let buffer = vec![7; PIPE_OVERFILL_BYTES];
            // Writes as many bytes as there is room for, then the rest.
            let some = (&both).write_vectored(&[IoSlice::new(&buffer)]).unwrap();
            (&both).write_all(&buffer[some..]).unwrap();
        };
        assert_marked("write of many", write, || {
            (&end).read_exact(&mut vec![0; PIPE_OVERFILL_BYTES]).unwrap()
        });

        for (what, lock) in [("lock", File::lock as fn(&File) -> _), ("shared", File::lock_shared)]
        {
            let holder = std::fs::File::open(&file).unwrap();
            holder.lock().unwrap();
            let waiter = File::open(&file).unwrap();
            assert_marked(what, move || lock(&waiter).unwrap(), || holder.unlock().unwrap());
        }

        let (file, mut peer) = slow_to_close();
        assert_marked(
            "close",
            || drop(file),
            || assert!(io::copy(&mut peer, &mut io::sink()).is_ok()),
        );
    });
}

/// Returns a descriptor whose close waits until the peer has read everything, and the peer.
fn slow_to_close() -> (File, TcpStream) {
    let (stream, peer) = tcp_pair();
    let (mut stream, peer) = (stream.into_std().unwrap(), peer.into_std().unwrap());
    stream.set_nonblocking(true).unwrap();
    // Sends more bytes than both buffers hold, so that some remain to be sent. If there is no room
    // after a while, the bytes in transit have arrived.
    until("there is no room for more", || {
        while stream.write(&[0; 65536]).is_ok() {}
        settle();
        stream.write(&[0; 65536]).is_err()
    });
    stream.set_nonblocking(false).unwrap();
    let linger = libc::linger { l_onoff: 1, l_linger: 600 };
    // SAFETY: a socket, and the value that this option takes.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    (File::from(OwnedFd::from(stream)), peer)
}

#[test]
fn goroutines_that_panic_or_exit_leave_no_file_open() {
    let place = Arc::new(TempDir::new());
    for i in 0..10 {
        place.file(&format!("file {i}"), "text");
    }
    let ends: [fn(); 3] = [|| panic!("meant to"), || goexit(), || {}];
    let handles: Vec<_> = (0..60)
        .map(|i| {
            let place = place.clone();
            go(move || {
                let file = File::open(place.path("file 3")).unwrap();
                let clone = file.try_clone().unwrap();
                let mut entries = fs::read_dir(&place.0).unwrap();
                let entry = entries.next().unwrap().unwrap();
                gosched::yield_now();
                match i % 2 {
                    0 => ends[i % 3](),
                    _ => blocking(ends[i % 3]),
                }
                drop((file, clone, entries, entry));
            })
        })
        .collect();
    let ended_well = handles.into_iter().filter_map(|handle| handle.join().ok()).count();
    assert_eq!((ended_well, place.descriptors()), (20, 0));
}

#[test]
fn closing_a_file_does_not_continue_a_caught_goexit() {
    let place = Arc::new(TempDir::new());
    let path = place.file("file", "text");
    let steps = Arc::new(AtomicUsize::new(0));
    let handle = go({
        let (place, steps) = (place.clone(), steps.clone());
        move || {
            let file = File::open(&path).unwrap();
            let entries = fs::read_dir(&place.0).unwrap();
            let caught = catch_unwind(AssertUnwindSafe(|| goexit()));
            assert!(caught.is_err());
            drop((file, entries));
            steps.store(1 + place.descriptors(), SeqCst);
            // `metadata` continues the exit.
            let _ = fs::metadata(&path);
            steps.store(100, SeqCst);
        }
    });
    assert!(handle.join().is_err());
    assert_eq!(steps.load(SeqCst), 1);
}

#[test]
fn a_file_may_be_closed_by_another_goroutine_or_thread() {
    let place = TempDir::new();
    let path = place.file("file", "text");
    let opened = join_all((0..20).map(|i| {
        let path = path.clone();
        [ActorKind::Goroutine, ActorKind::Thread][i % 2].start(move || File::open(path).unwrap())
    }));
    assert_eq!(place.descriptors(), 20);
    let closers = opened.into_iter().enumerate().map(|(i, file)| {
        [ActorKind::Thread, ActorKind::Goroutine][i / 2 % 2].start(move || drop(file))
    });
    join_all(closers.collect::<Vec<_>>());
    assert_eq!(place.descriptors(), 0);
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// Sends a signal to a thread once the thread is in this system call, and waits until the signal is
/// handled.
fn interrupt(thread: i32, call: i64) {
    let status = format!("/proc/self/task/{thread}/syscall");
    until("the call is under way", || {
        std::fs::read_to_string(&status).is_ok_and(|text| text.starts_with(&format!("{call} ")))
    });
    let before = SIGNALS.load(SeqCst);
    let process = std::process::id();
    // SAFETY: a thread of this process, and a signal with a handler.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
    until("the signal is there", || SIGNALS.load(SeqCst) > before);
}

#[test]
fn a_call_interrupted_by_a_signal_is_retried_where_std_retries_it() {
    extern "C" fn count(_: i32) {
        SIGNALS.fetch_add(1, SeqCst);
    }
    // SAFETY: all zero is a valid value of this type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    // SAFETY: the handler only counts. It is installed without SA_RESTART, so the kernel does not
    // restart system calls.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);

    for kind in [ActorKind::Goroutine, ActorKind::Thread] {
        let place = TempDir::new();
        let path = place.fifo("fifo");
        let (told, thread) = std::sync::mpsc::channel();
        let fifo = path.clone();
        let reader = kind.start(move || {
            if gosched::id().is_some() {
                gosched::lock_os_thread();
            }
            // SAFETY: gettid has no precondition.
            told.send(unsafe { libc::syscall(libc::SYS_gettid) } as i32).unwrap();
            let mut file = File::open(fifo).unwrap();
            let mut bytes = [0; 4];
            let interrupted = file.read(&mut bytes).unwrap_err();
            told.send(0).unwrap();
            file.read_exact(&mut bytes).unwrap();
            (interrupted.kind(), bytes)
        });
        let number = thread.recv().unwrap();
        interrupt(number, libc::SYS_openat);
        interrupt(number, libc::SYS_openat);
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        interrupt(number, libc::SYS_read);
        thread.recv().unwrap();
        interrupt(number, libc::SYS_read);
        writer.write_all(b"text").unwrap();
        assert_eq!(reader.join(), (ErrorKind::Interrupted, *b"text"));
    }
}

#[test]
fn child() {
    match children::scenario().as_deref() {
        Some("denied") => denied(),
        Some("fifo") => fifo(),
        Some("marked") => marked(),
        _ => {}
    }
}
