//! Locks and other synchronisation primitives for goroutines. Types that std also has follow the
//! interface of std; the other types follow Go. The locks are as fair as those of Go.
//!
//! A panic never poisons a lock, so `lock` returns a guard and not a `Result`. All types work on
//! ordinary threads too.

mod barrier;
mod condvar;
mod group;
mod mutex;
mod once;
mod parking;
mod pool;
mod rwlock;
mod semaphore;
mod single_flight;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::Condvar;
pub use group::Group;
pub(crate) use mutex::RawMutex;
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceLock};
pub use pool::{Lent, Pool};
pub(crate) use rwlock::TRACKED_READERS;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use single_flight::SingleFlight;
pub use wait_group::WaitGroup;
