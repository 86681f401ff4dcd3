//! Polling where goroutines are threads: one thread that does nothing else.

use super::{netpoll, threads};
use crate::gmp::list::GList;
use std::sync::OnceLock;

/// Starts the thread, if that was not done.
pub(super) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("gosched-poller".into());
        if let Err(why) = thread.spawn(poll) {
            panic!("no thread for polling: {why}");
        }
    });
}

fn poll() {
    loop {
        let mut ready = GList::new();
        netpoll::collect(&mut ready, None);
        while let Some(g) = ready.pop_front() {
            threads::ready(g);
        }
    }
}
