//! Shows what a running program does. This module never changes what it shows.

pub mod events {
    //! Records what the scheduler decides: which goroutine goes into which queue, which P takes it
    //! from where, which thread wakes which, and why.
    //!
    //! ```
    //! use gosched::debug::events::{self, EventKind};
    //!
    //! #[gosched::main]
    //! fn main() -> std::io::Result<()> {
    //!     # use gosched::runtime::{Backend, backend};
    //!     # if backend() != Backend::MultiThread { return Ok(()) }
    //!     let mut recording = events::start()?;
    //!     let child = gosched::go(|| gosched::yield_now());
    //!     let number = child.id().get();
    //!     child.join().unwrap();
    //!     let events = recording.stop();
    //!
    //!     for event in &events {
    //!         println!("{event}");
    //!     }
    //!     let spawned = |kind| matches!(kind, EventKind::Spawn { g, .. } if g == number);
    //!     assert!(events.iter().any(|event| spawned(event.kind)));
    //!     Ok(())
    //! }
    //! ```
    //!
    //! Any program can be recorded, in a plain release build. While no recording is on, recording
    //! costs nothing that can be measured; while one is on, a few tens of nanoseconds an event. A
    //! recording changes none of the decisions that it records, except by the time that it takes.
    //!
    //! Each thread keeps its last 65,536 events. A program that causes more of them must call
    //! [`Recording::read`] meanwhile, from a thread of its own or from a goroutine; otherwise the
    //! oldest events are lost, and [`Recording::lost`] says how many. This function records for a
    //! while, and returns how long goroutines that could run waited for a P:
    //!
    //! ```
    //! use gosched::debug::events::{self, EventKind};
    //! use std::collections::HashMap;
    //! use std::time::Duration;
    //!
    //! fn waits_during(time: Duration) -> std::io::Result<Vec<Duration>> {
    //!     let mut recording = events::start()?;
    //!     let mut events = Vec::new();
    //!     for _ in 0..time.as_millis() / 10 {
    //!         gosched::time::sleep(Duration::from_millis(10));
    //!         events.extend(recording.read());
    //!     }
    //!     events.extend(recording.stop());
    //!     assert_eq!(recording.lost(), 0, "read more often");
    //!     // An event that was being recorded during a `read` is in the next one.
    //!     events.sort_by_key(|event| event.time);
    //!
    //!     let (mut since, mut waits) = (HashMap::new(), Vec::new());
    //!     for event in events {
    //!         match event.kind {
    //!             EventKind::Spawn { g, .. }
    //!             | EventKind::Ready { g, .. }
    //!             | EventKind::Yield { g, continues: false }
    //!             | EventKind::Preempt { g, .. } => {
    //!                 since.insert(g, event.time);
    //!             }
    //!             EventKind::Run { g, .. } => {
    //!                 waits.extend(since.remove(&g).map(|since| event.time - since));
    //!             }
    //!             _ => {}
    //!         }
    //!     }
    //!     Ok(waits)
    //! }
    //!
    //! # #[gosched::main]
    //! # fn main() {
    //! # use gosched::runtime::{Backend, backend};
    //! # if backend() != Backend::MultiThread { return }
    //! let busy = gosched::go(|| (0..100).for_each(|_| gosched::yield_now()));
    //! let waits = waits_during(Duration::from_millis(20)).unwrap();
    //! println!("{} waits, the longest {:?}", waits.len(), waits.iter().max());
    //! busy.join().unwrap();
    //! # }
    //! ```

    pub use crate::observe::events::{Event, Recording, start};
    pub use crate::probe::event::EventKind;
    pub use crate::probe::field::{
        CallEnd, GlobalReason, Place, PreemptMethod, PreemptReason, Source, Span, StopReason, Waker,
    };
    pub use crate::probe::recorder::EventThread;
    pub use crate::probe::wait_reason::WaitReason;
}
