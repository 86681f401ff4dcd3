//! Memory: the allocation cache that `#[gosched::main]` puts into a program.
//!
//! A library never installs one; a program that uses [`run`](crate::run) instead of the attribute says
//!
//! ```
//! #[global_allocator]
//! static ALLOC: gosched::alloc::Alloc = gosched::alloc::Alloc::new();
//! # assert_eq!(gosched::run(|| gosched::go(|| vec![1; 3]).join().unwrap()), [1; 3]);
//! ```
//!
//! Without it everything works, and each goroutine that ever allocated keeps a heap of its own.

pub use gosched_alloc::{Alloc, Stats, release_memory, stats};
