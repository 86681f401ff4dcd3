//! Goroutines for Rust: plain blocking code, a million goroutines on a handful of threads.
//!
//! To the code inside it, a goroutine is a thread: thread-locals, `errno` and panics belong to the
//! goroutine, whichever thread runs it. So [`go`] is a safe function.
//!
//! ```
//! let handles: Vec<_> = (0..10_000).map(|i| gosched::go(move || i * 2)).collect();
//! let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
//! assert_eq!(sum, 99_990_000);
//! ```
//!
//! `#[gosched::main]` makes `main` a goroutine. [`run`] runs a goroutine from an ordinary thread.
//! Ordinary threads can also start, join and unpark goroutines directly. The [`book`] explains how
//! the runtime works.
//!
//! Cheap goroutines need Linux on x86-64 with glibc. On other systems each goroutine is a thread:
//! see [`runtime::backend`]. The feature `hyper` adds `gosched::hyper`, which connects hyper 1.x.
//! The feature `threads` makes each goroutine a thread.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(ported),
    expect(
        dead_code,
        reason = "without a port, goroutines are threads, and the code that schedules them is not used"
    )
)]

mod api;

mod observe;

mod block;

mod sched;

mod gmp;

mod protocol;

mod sys;

mod probe;

pub mod book;

pub use api::alloc;
pub use api::blocking::{blocking, blocking_now};
pub use api::debug;
#[cfg(feature = "hyper")]
pub use api::hyper;
pub use api::run::run;
pub use api::runtime;
pub use api::stack::with_stack;
pub use api::thread::{lock_os_thread, unlock_os_thread, yield_now};
pub use block::chan::{self, chan};
pub use block::exit::goexit;
pub use block::future::block_on;
pub use block::goroutine::builder::{Builder, go};
pub use block::goroutine::host::host;
pub use block::goroutine::join::{JoinFuture, JoinHandle, ScopedJoinHandle};
pub use block::goroutine::packet::JoinError;
pub use block::goroutine::scope::{Scope, scope};
pub use block::goroutine::{GoId, Goroutine, current, id, park, park_timeout};
pub use block::select::Select;
pub use block::{context, fs, io, net, process, signal, sync, time};
pub use gosched_macros::{main, test};

#[doc(hidden)]
pub use api::attributes as __macros;
#[doc(hidden)]
pub use api::rules as __rules;
#[doc(hidden)]
pub mod __arms {
    pub use crate::block::select::arms::{ReceiveArm, SendArm, TakeArm};
    pub use crate::block::select::{Either, select, select_for, select_or_default};
}
