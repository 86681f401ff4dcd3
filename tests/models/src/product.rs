//! The product's protocols: the files that the product is built from.

#[path = "../../../crates/gosched/src/protocol/attention.rs"]
pub(crate) mod attention;
#[path = "../../../crates/gosched/src/protocol/event_ring.rs"]
pub(crate) mod event_ring;
#[path = "../../../crates/gosched/src/protocol/hand_over.rs"]
pub(crate) mod hand_over;
#[path = "../../../crates/gosched/src/protocol/io_waiters.rs"]
pub(crate) mod io_waiters;
#[path = "../../../crates/gosched/src/protocol/join_word.rs"]
pub(crate) mod join_word;
#[path = "../../../crates/gosched/src/block/linked_list.rs"]
pub(crate) mod linked_list;
#[path = "../../../crates/fiber/src/protocol/lock_word.rs"]
pub(crate) mod lock_word;
#[path = "../../../crates/gosched/src/protocol/mutex_word.rs"]
pub(crate) mod mutex_word;
#[path = "../../../crates/gosched/src/protocol/note.rs"]
pub(crate) mod note;
#[path = "../../../crates/gosched/src/protocol/park_token.rs"]
pub(crate) mod park_token;
#[path = "../../../crates/gosched/src/protocol/poll_role.rs"]
pub(crate) mod poll_role;
#[path = "../../../crates/gosched/src/protocol/readiness.rs"]
pub(crate) mod readiness;
#[path = "../../../crates/gosched/src/protocol/run_queue.rs"]
pub(crate) mod run_queue;
#[path = "../../../crates/fiber/src/protocol/signal_word.rs"]
pub(crate) mod signal_word;
#[path = "../../../crates/gosched/src/protocol/syscall_state.rs"]
pub(crate) mod syscall_state;
#[path = "../../../crates/gosched/src/protocol/timekeeping.rs"]
pub(crate) mod timekeeping;
#[path = "../../../crates/gosched/src/protocol/timer_place.rs"]
pub(crate) mod timer_place;
#[path = "../../../crates/gosched/src/block/waiter.rs"]
pub(crate) mod waiter;
#[path = "../../../crates/gosched/src/protocol/waking.rs"]
pub(crate) mod waking;
#[path = "../../../crates/gosched/src/protocol/world_stop.rs"]
pub(crate) mod world_stop;

impl note::Note {
    /// Returns whether a thread sleeps on the note and was not woken, as the kernel reports it.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.0.has_sleeper()
    }
}
