//! The first and the last steps of a goroutine, on its own stack.
//!
//! On a stack without identity, the goroutine builds the identity itself. It starts with the M's
//! thread pointer, and builds with preemption on, because building an identity allocates. Then it
//! starts over with its own thread pointer. At its end, the goroutine runs the destructors of its
//! thread-locals, reports that it is done, and switches away for the last time. This module never
//! allocates or frees a stack: `stacks` does both.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::Departure;
use crate::gmp::token::MayMove;
use crate::sched::switch;
use crate::sched::switch::boundary::{InRuntime, while_inside};
use crate::sched::switch::stacks::{self, FirstFrames};
use crate::sched::switch::syscall;
use crate::sys::fatal::fatal;
use crate::sys::forked;
use gosched_fiber::arch::{self};
use gosched_fiber::carrier::{Role, set_role};
use gosched_fiber::exit_guard;
use gosched_fiber::stack::StackError;
use gosched_fiber::{Stack, identity};
use std::ptr;
use std::sync::atomic::Ordering;

/// The functions that `stacks` writes into the first frame.
pub(crate) static FIRST_FRAMES: FirstFrames =
    FirstFrames { with_identity: start_with_identity, without_identity: build_identity };

/// Starts on a stack without identity, with the M's thread pointer: builds the identity, then
/// starts over with it.
///
/// # Safety
/// - **callback**: `stacks::write_first_frame` wrote this function and the G into the first frame,
///   and g0 switched to it.
unsafe extern "C" fn build_identity(_message: usize, g: usize) -> ! {
    switch::publish_departure();
    // SAFETY: this is the G that the stack was prepared for, and Gs are never freed.
    let g: &'static G = unsafe { &*(g as *const G) };
    // SAFETY: carried — the M's g0 switched here, with preemption off; only — g0 has lent its token
    // to the switch.
    let mut may_move = unsafe { MayMove::current() };
    // SAFETY: owner — the G runs here.
    let frame = unsafe { g.frame.get() };
    let Some(stack) = &frame.stack else { fatal!("goroutine {} runs without a stack", g.id()) };
    // Build on g0's stack, below its frames: on the G's own stack, the work would touch a second
    // page, which then stays in memory.
    // SAFETY: owner — this is the M's own thread, and g0 waits.
    let below = unsafe { may_move.g0.get() }.sp - arch::RED_ZONE_BYTES;
    let mut work = Build { stack, failed: None };
    // Building allocates. A G that holds the allocator's lock must be able to get a P, so
    // preemption is on and this M's P may be taken. The work itself needs no P.
    // SAFETY: carried, counted — g0 runs with preemption off.
    unsafe { arch::preempt_enable() };
    // SAFETY: mapped, quiet — this is the unused part of g0's stack; callback — `build` takes a
    // `Build`, and does not unwind.
    unsafe { arch::call_on_stack(below as *mut u8, build, (&raw mut work).cast()) };
    // SAFETY: carried — as above.
    unsafe { arch::preempt_disable() };
    if may_move.syscall_state.must_settle_after_barrier() {
        syscall::exit_syscall_in_place(may_move.on_m());
    }
    if let Some(why) = work.failed {
        stacks::ERRNO.store(stacks::errno_of(&why), Ordering::Relaxed);
        switch::switch_to_g0(may_move, g, Departure::NoStack { g });
    }
    let (top, thread_pointer) = (stack.top(), identity::thread_pointer(stack));
    // SAFETY: owner — the G runs here.
    unsafe { g.saved.get() }.thread_pointer = thread_pointer;
    // SAFETY: mapped — this function runs on that stack; fs — the identity was built above. No
    // frame holds a value that needs a drop.
    unsafe { arch::restart_stack(top, thread_pointer, run_goroutine, ptr::from_ref(g) as usize) }
}

/// The argument and the result of [`build`].
struct Build<'a> {
    stack: &'a Stack,
    failed: Option<StackError>,
}

/// Builds the identity of a stack.
///
/// # Safety
/// - **callback**: `call_on_stack` calls this function, with a `Build`.
unsafe extern "C" fn build(work: *mut u8) {
    // SAFETY: callback — promised by the caller; the owner of the `Build` waits.
    let work = unsafe { &mut *work.cast::<Build<'_>>() };
    // SAFETY: quiet — the stack has no identity, and only this code uses it.
    work.failed = unsafe { identity::create(work.stack) }.err();
}

/// Starts on a stack with an identity.
///
/// # Safety
/// - **callback**: `stacks::write_first_frame` wrote this function and the G into the first frame.
unsafe extern "C" fn start_with_identity(_message: usize, g: usize) -> ! {
    switch::publish_departure();
    // SAFETY: callback — this runs with the G's identity, at the top of its stack.
    unsafe { run_goroutine(g) }
}

/// Runs the goroutine from its first step to its last, with its own identity.
/// Go: goexit1, from the end of the task on.
///
/// # Safety
/// - **callback**: this function runs with the identity of the G `g`, at the top of its stack, with
///   preemption off.
unsafe extern "C" fn run_goroutine(g: usize) -> ! {
    // SAFETY: this is the G that the stack was prepared for, and Gs are never freed.
    let g: &'static G = unsafe { &*(g as *const G) };
    // SAFETY: own — this runs with the G's identity, which is new or wiped.
    unsafe { identity::begin() };
    // SAFETY: true — the G has its own identity and is carried by an M.
    unsafe { set_role(Role::Goroutine) };
    current::set_goroutine(Some(g));
    // SAFETY: carried — as above; counted — preemption is off when a goroutine is switched to.
    drop(unsafe { InRuntime::new() });
    let task = g.task();
    // SAFETY: the task was given together with the G, and is alive until `run` reports otherwise.
    let kind = unsafe { (*task).kind };
    // SAFETY: as above; `run` is called once.
    let needs_completion = unsafe { (kind.run)(task) };
    g.forget_details();
    // SAFETY: own — no thread-local is needed from here on.
    unsafe { identity::retire() };
    if forked::is_child() {
        // The goroutine is the last thread of the forked child, so the child ends with it.
        exit_guard::exit_forked_child();
    }
    g.leave_group();
    while_inside(|mut on| on.own_p().map(|p| p.count_ended()));
    if needs_completion {
        // SAFETY: `run` has returned that the task is alive; `complete` is called once.
        unsafe { (kind.complete)(task) };
    }
    while_inside(|on| switch::depart(on, g, Departure::Exit { g }));
    fatal!("goroutine {} continues after its exit", g.id())
}
