//! Models of the protocols, checked by loom under every interleaving.
//!
//! ```text
//! cargo test --release --manifest-path tests/models/Cargo.toml
//! ```
//!
//! The models check the product's own code: `product` includes the files of
//! `crates/gosched/src/protocol` and `crates/fiber/src/protocol`, and the queue of waiters
//! (`waiter.rs` and `linked_list.rs` in `crates/gosched/src/block`), by their paths. Those files
//! use atomics, cells, barriers and sleeps only through `crate::sys` (gosched) and `crate::base`
//! (fiber), and this crate's `sys` and `base` provide loom's.
//!
//! A model that cannot fail proves nothing, so each model comes with broken variants: an ordering
//! or a barrier is weakened ([`sys::weakness`]), or a step is left out, and loom must detect it. A
//! lost item or wake-up shows as a deadlock, and a read that comes too early shows as two
//! concurrent accesses. Each model prints how many executions loom has explored.
//!
//! loom does not model a load that takes its value from a store that comes later in the program
//! order of another thread (load buffering). It takes `SeqCst` accesses for weaker ones;
//! [`sys::atomic`] says what stands for them.

#![cfg(test)]

mod base;
mod explore;
mod gmp;
mod sys;

mod g;
mod item;
mod kernel;

mod chan_transfer;
mod event_ring;
mod hand_over;
mod io_waiters;
mod join;
mod lock;
mod mutex;
mod note;
mod park;
mod poll_role;
mod poll_role_sleeper;
mod queue;
mod queue_next;
mod readiness;
mod select;
mod semaphore;
mod signal;
mod stopping;
mod syscall;
mod timekeeping;
mod timekeeping_fixture;
mod timer;
mod waking;
mod waking_fixture;
mod waking_fixture_m;

#[expect(dead_code, reason = "the models use only a part of some files")]
#[path = "product.rs"]
mod protocol;
