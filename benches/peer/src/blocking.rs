//! Workloads that block threads: calls beside a ticker, and reads of a file.

use crate::common::{Measured, timed};
use crate::ticks::Ticks;
use crate::wait_group::WaitGroup;
use gosched::{blocking, go};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io::Write};

/// How long one call blocks.
const CALL: Duration = Duration::from_millis(50);
/// How long the ticker runs.
const WINDOW: Duration = Duration::from_secs(2);

/// Runs `n` tasks that block their threads in marked or unmarked calls, beside a ticker.
pub(crate) fn calls(n: u64, marked: bool) -> Measured {
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let all = WaitGroup::new(n);
    for _ in 0..n {
        let (stop, calls, all) = (stop.clone(), calls.clone(), all.clone());
        go(move || {
            while !stop.load(Ordering::Relaxed) {
                if marked {
                    blocking(|| std::thread::sleep(CALL));
                } else {
                    std::thread::sleep(CALL);
                }
                calls.fetch_add(1, Ordering::Relaxed);
            }
            all.done();
        });
    }
    let (name, how) = if marked {
        ("blocking_marked", "blocking(sleep)")
    } else {
        ("blocking_raw", "std::thread::sleep")
    };
    let (ticks, wall) = timed(|| Ticks::start(WINDOW, name, n).go_on());
    stop.store(true, Ordering::Relaxed);
    let made = calls.load(Ordering::Relaxed);
    all.wait();
    ticks.report(Measured::new(1, (n, wall))).and("calls", made as f64).with("how", how)
}

const READERS: u64 = 64;
const PAGE: usize = 4096;
const PAGES: u64 = (16 << 20) / PAGE as u64;

/// Reads pages of a file that are in the page cache.
pub(crate) fn reads(n: u64) -> Measured {
    let file = Arc::new(pages().expect("a temporary file"));
    let each = n / READERS;
    let right = timed(|| {
        let (all, right) = (WaitGroup::new(READERS), Arc::new(AtomicU64::new(0)));
        for reader in 0..READERS {
            let (file, all, right) = (file.clone(), all.clone(), right.clone());
            go(move || {
                let mut buffer = vec![0; PAGE];
                for i in 0..each {
                    let page = (reader * 61 + i * 7) % PAGES;
                    let read = blocking(|| file.read_at(&mut buffer, page * PAGE as u64));
                    if read.is_ok_and(|read| read == PAGE) && buffer[17] == page as u8 {
                        right.fetch_add(1, Ordering::Relaxed);
                    }
                }
                all.done();
            });
        }
        all.wait();
        right.load(Ordering::Relaxed)
    });
    Measured::new(each * READERS, right).with("how", "blocking(read_at)")
}

/// Returns the number of reads that [`reads`] makes.
pub(crate) fn reads_of(n: u64) -> u64 {
    n / READERS * READERS
}

fn pages() -> std::io::Result<fs::File> {
    let path = std::env::temp_dir().join(format!("peer-pages-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).read(true).write(true).open(&path)?;
    for page in 0..PAGES {
        file.write_all(&[page as u8; PAGE])?;
    }
    fs::remove_file(&path)?;
    Ok(file)
}
