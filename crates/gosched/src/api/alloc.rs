//! The allocation cache, which `#[gosched::main]` installs as the program's global allocator.
//!
//! Only the attribute installs the cache: linking `gosched` never does. A program that uses
//! [`run`](crate::run) instead of the attribute installs the cache itself:
//!
//! ```
//! #[global_allocator]
//! static ALLOC: gosched::alloc::Alloc = gosched::alloc::Alloc::new();
//! # assert_eq!(gosched::run(|| gosched::go(|| vec![1; 3]).join().unwrap()), [1; 3]);
//! ```
//!
//! Without the cache everything works, but an allocator that keeps a heap per thread then keeps a
//! heap for each goroutine that has allocated.

pub use gosched_alloc::{Alloc, Stats, release_memory, stats};
