//! The data structures of the scheduler: G (work), M (thread), P (right to run), their queues and
//! their legal state transitions. This module contains no policy; `sched` decides what runs where.

pub(crate) mod park_token;
pub(crate) mod readiness;

#[cfg(any(ported, loom))]
pub(crate) mod note;
#[cfg(any(ported, loom))]
pub(crate) mod poll_role;
#[cfg(any(ported, loom))]
pub(crate) mod run_queue;
#[cfg(any(ported, loom))]
pub(crate) mod waking;

#[cfg(not(loom))]
pub(crate) mod current;
#[cfg(not(loom))]
pub(crate) mod g;
#[cfg(not(loom))]
pub(crate) mod go_id;
#[cfg(not(loom))]
pub(crate) mod list;
#[cfg(not(loom))]
pub(crate) mod poll_desc;
#[cfg(not(loom))]
pub(crate) mod reason;
#[cfg(not(loom))]
pub(crate) mod short_name;
#[cfg(not(loom))]
pub(crate) mod slab;
#[cfg(not(loom))]
pub(crate) mod state;
#[cfg(not(loom))]
pub(crate) mod task;
#[cfg(not(loom))]
pub(crate) mod test_group;
#[cfg(not(loom))]
pub(crate) mod timer;
#[cfg(not(loom))]
pub(crate) mod track;

#[cfg(all(ported, not(loom)))]
pub(crate) mod frame;
#[cfg(all(ported, not(loom)))]
pub(crate) mod global_queue;
#[cfg(all(ported, not(loom)))]
pub(crate) mod intrusive_stack;
#[cfg(all(ported, not(loom)))]
pub(crate) mod m;
#[cfg(all(ported, not(loom)))]
pub(crate) mod p;

#[cfg(all(not(ported), not(loom)))]
#[path = "frame_none.rs"]
pub(crate) mod frame;
