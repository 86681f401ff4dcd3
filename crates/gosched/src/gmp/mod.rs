//! The data structures of the scheduler: G (work), M (thread), P (right to run), their queues and
//! their legal state transitions. This module contains no policy; `sched` decides what runs where.
//! Code in this folder never switches between Gs, and never imports from `sched`.

pub(crate) mod commit;
pub(crate) mod current;
pub(crate) mod g;
pub(crate) mod go_id;
pub(crate) mod list;
pub(crate) mod poll_desc;
pub(crate) mod short_name;
pub(crate) mod slab;
pub(crate) mod state;
pub(crate) mod task;
pub(crate) mod test_group;
pub(crate) mod timer;
pub(crate) mod track;

#[cfg(ported)]
pub(crate) mod frame;
#[cfg(ported)]
pub(crate) mod global_queue;
#[cfg(ported)]
pub(crate) mod m;
#[cfg(ported)]
pub(crate) mod p;
#[cfg(ported)]
pub(crate) mod pinned;
#[cfg(ported)]
pub(crate) mod preempt_request;
#[cfg(ported)]
pub(crate) mod record;
#[cfg(ported)]
pub(crate) mod spin_state;
#[cfg(ported)]
pub(crate) mod token;

#[cfg(not(ported))]
#[path = "frame_none.rs"]
pub(crate) mod frame;
#[cfg(not(ported))]
#[path = "pinned_none.rs"]
pub(crate) mod pinned;
#[cfg(not(ported))]
#[path = "record_none.rs"]
pub(crate) mod record;
