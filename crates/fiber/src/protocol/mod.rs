//! The words that threads share, each as a type whose methods are its transitions.
//!
//! Every file states its protocol at the top: which thread may change the word, in which order, and
//! why no change is lost. The product uses these files, and `tests/models` includes them and checks
//! them under every interleaving: there, `crate::base` provides loom's atomics, barriers and sleeps
//! instead of the real ones. So code here uses no atomic, barrier or sleep except those of
//! `crate::base`.
//!
//! Code in this folder never refers to the rest of the crate, except `base`, and never accesses the
//! memory that a word protects.

pub(crate) mod lock_word;
#[cfg(ported)]
pub(crate) mod signal_word;
