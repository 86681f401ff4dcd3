//! The life of an M: it looks for a G, runs it, looks again; sleeps when there is none.

pub(crate) mod deadlock;
pub(crate) mod find;
pub(crate) mod idle;
pub(crate) mod locked_m;
pub(crate) mod poll;
pub(crate) mod schedule;
pub(crate) mod steal;
pub(crate) mod timers;
