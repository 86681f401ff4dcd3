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
    //!     let recording = events::start()?;
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
    //! oldest events are lost, and [`Recording::lost`] says how many.

    pub use crate::observe::events::{Event, Recording, start};
    pub use crate::probe::event::EventKind;
    pub use crate::probe::field::{
        CallEnd, GlobalReason, Place, PreemptMethod, PreemptReason, Source, Span, StopReason, Waker,
    };
    pub use crate::probe::recorder::EventThread;
    pub use crate::probe::wait_reason::WaitReason;
}
