//! The scheduler's state: its tables and their lock, the roles of sleeping threads, and requests
//! between threads. Nothing here decides which G runs. Code in this folder never switches to a G
//! and never makes one ready: the folders above do.

pub(crate) mod available_cpu;
pub(crate) mod backend;
pub(crate) mod report;
pub(crate) mod spawn_request;

#[cfg(ported)]
pub(crate) mod counts;
#[cfg(ported)]
pub(crate) mod fork;
#[cfg(ported)]
pub(crate) mod global;
#[cfg(ported)]
pub(crate) mod idle_lists;
#[cfg(ported)]
pub(crate) mod multi_thread;
#[cfg(ported)]
pub(crate) mod poller_role;
#[cfg(ported)]
pub(crate) mod ps;
#[cfg(ported)]
pub(crate) mod seeded;
#[cfg(ported)]
pub(crate) mod stopping;
#[cfg(ported)]
pub(crate) mod sysmon_alarm;
#[cfg(ported)]
pub(crate) mod thread_requests;
#[cfg(ported)]
pub(crate) mod timekeeper;
