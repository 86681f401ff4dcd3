//! The words that threads share, each as a type whose methods are its transitions.
//!
//! Every file states its protocol at the top: who may change the word, in which order, and why no
//! change is lost. The product uses these files, and `tests/models` includes them and checks them
//! under every interleaving: there, `crate::sys` provides loom's atomics, barriers and sleeps
//! instead of the real ones. So code here uses no atomic, cell, barrier or sleep except those of
//! `crate::sys`.
//!
//! Code in this folder never imports the types of goroutines, Ms and Ps, and never decides what
//! runs.

pub(crate) mod event_ring;
pub(crate) mod io_waiters;
pub(crate) mod join_word;
pub(crate) mod mutex_word;
pub(crate) mod park_token;
pub(crate) mod readiness;
pub(crate) mod timer_place;

#[cfg(ported)]
pub(crate) mod attention;
#[cfg(ported)]
pub(crate) mod hand_over;
#[cfg(ported)]
pub(crate) mod note;
#[cfg(ported)]
pub(crate) mod poll_role;
#[cfg(ported)]
pub(crate) mod run_queue;
#[cfg(ported)]
pub(crate) mod syscall_state;
#[cfg(ported)]
pub(crate) mod timekeeping;
#[cfg(ported)]
pub(crate) mod waking;
#[cfg(ported)]
pub(crate) mod world_stop;

#[cfg(test)]
mod event_ring_tests;
#[cfg(test)]
mod park_token_tests;
#[cfg(all(test, ported))]
mod run_queue_tests;
