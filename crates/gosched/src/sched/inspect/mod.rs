//! Shows the state of the scheduler to callers: stack snapshots, tables and traces. Nothing here
//! decides what runs. Code in this folder never puts a G into a queue and never takes one out.

pub(crate) mod contract;
pub(crate) mod cpu_use;
pub(crate) mod schedtrace;
pub(crate) mod stats;
pub(crate) mod thread_tables;
pub(crate) mod types;

#[cfg(ported)]
pub(crate) mod batch;
#[cfg(ported)]
pub(crate) mod dump;
#[cfg(ported)]
pub(crate) mod inspector;
#[cfg(ported)]
pub(crate) mod recordings;
#[cfg(ported)]
pub(crate) mod snapshot;
#[cfg(ported)]
pub(crate) mod stack_copy;
#[cfg(ported)]
pub(crate) mod tables;

#[cfg(not(ported))]
#[path = "inspector_none.rs"]
pub(crate) mod inspector;
#[cfg(not(ported))]
#[path = "recordings_none.rs"]
pub(crate) mod recordings;
