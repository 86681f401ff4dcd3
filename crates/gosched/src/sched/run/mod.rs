//! The life of an M: it finds a G, runs it, and repeats; it sleeps when there is no G to run. Code
//! in this folder never preempts a G, and never takes a P from another M.

pub(crate) mod deadlock;
pub(crate) mod find;
pub(crate) mod idle;
pub(crate) mod locked_m;
pub(crate) mod poll;
pub(crate) mod schedule;
pub(crate) mod steal;
pub(crate) mod timers;
