//! A goroutine's first steps and its last, on its own stack.
//!
//! A stack without identity gets one from the goroutine itself: it starts with the M's thread pointer, with preemption on,
//! since building an identity allocates; then it starts over with its own. At its end the goroutine runs its thread-locals'
//! destructors, says that it is done, and leaves for good.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::{Departure, M};
use crate::sched::switch;
use crate::sched::switch::boundary::{enter, leave};
use crate::sched::switch::stacks::{self, FirstFrames};
use crate::sched::switch::syscall;
use crate::sys::barrier;
use crate::sys::fatal::fatal;
use crate::sys::forked;
use gosched_fiber::arch::{self};
use gosched_fiber::carrier::{Role, set_role};
use gosched_fiber::stack::StackError;
use gosched_fiber::{Stack, identity};
use std::ptr;
use std::sync::atomic::Ordering;

/// What `stacks` lays out.
pub(crate) const FIRST_FRAMES: FirstFrames =
    FirstFrames { with_identity: start_with_identity, without_identity: build_identity };

/// First on a stack without identity, with the M's thread pointer: builds the identity, then starts
/// over with it.
///
/// # Safety
/// - **callback**: `stacks::write_first_frame` put it there, with the G; g0 switched to it.
unsafe extern "C" fn build_identity(_message: usize, g: usize) -> ! {
    switch::publish_departure();
    // SAFETY: the G this runs for; Gs are never freed.
    let g: &'static G = unsafe { &*(g as *const G) };
    // SAFETY: carried — by the M whose g0 switched here.
    let m = unsafe { M::current() };
    // SAFETY: owner — it runs.
    let frame = unsafe { g.frame.get() };
    let Some(stack) = &frame.stack else { fatal!("goroutine {} runs without a stack", g.id()) };
    // On g0's stack, below its frames: here it would touch a second page, for good.
    // SAFETY: owner — the M's own thread; g0 waits.
    let below = unsafe { m.g0.get() }.sp - arch::RED_ZONE_BYTES;
    let mut work = Build { stack, failed: None };
    // It allocates: whoever holds the allocator's lock must be able to get a P. This M does not
    // need one for that.
    // SAFETY: carried, counted — g0 runs with preemption off.
    unsafe { arch::preempt_enable() };
    // SAFETY: mapped, quiet — g0's stack below all that it uses; callback — `build` takes a `Build`,
    // and does not unwind.
    unsafe { arch::call_on_stack(below as *mut u8, build, (&raw mut work).cast()) };
    // SAFETY: carried — as above.
    unsafe { arch::preempt_disable() };
    barrier::light();
    if m.syscall_state.load(Ordering::Relaxed) != 0 {
        syscall::exit_syscall_in_place(m);
    }
    if let Some(why) = work.failed {
        stacks::ERRNO.store(stacks::errno_of(&why), Ordering::Relaxed);
        switch::switch_to_g0(m, g, Departure::NoStack { g });
    }
    let (top, thread_pointer) = (stack.top(), identity::thread_pointer(stack));
    // SAFETY: owner — it runs.
    unsafe { g.saved.get() }.thread_pointer = thread_pointer;
    // SAFETY: mapped — the stack this runs on; fs — built above. Nothing here needs a drop.
    unsafe { arch::restart_stack(top, thread_pointer, run_goroutine, ptr::from_ref(g) as usize) }
}

/// What [`build`] works on.
struct Build<'a> {
    stack: &'a Stack,
    failed: Option<StackError>,
}

/// # Safety
/// - **callback**: `call_on_stack` calls it, with a `Build`.
unsafe extern "C" fn build(work: *mut u8) {
    // SAFETY: callback — as above; its owner waits.
    let work = unsafe { &mut *work.cast::<Build<'_>>() };
    // SAFETY: quiet — the stack has none, and only this code runs on it.
    work.failed = unsafe { identity::create(work.stack) }.err();
}

/// First on a stack with an identity.
///
/// # Safety
/// - **callback**: `stacks::write_first_frame` put it there, with the G.
unsafe extern "C" fn start_with_identity(_message: usize, g: usize) -> ! {
    switch::publish_departure();
    // SAFETY: callback — with the identity, at the top of the stack.
    unsafe { run_goroutine(g) }
}

/// The whole life of a goroutine, with its own identity.
/// Go: goexit1, from the end of the task on.
///
/// # Safety
/// - **callback**: it runs with the goroutine's identity, at the top of its stack, with the G, and
///   with preemption off.
unsafe extern "C" fn run_goroutine(g: usize) -> ! {
    // SAFETY: the G this runs for; Gs are never freed.
    let g: &'static G = unsafe { &*(g as *const G) };
    // SAFETY: own — this runs with the goroutine's identity, fresh or wiped.
    unsafe { identity::begin() };
    // SAFETY: true — an identity of its own, carried by an M.
    unsafe { set_role(Role::Goroutine) };
    current::set_goroutine(Some(g));
    leave();
    let task = g.task();
    // SAFETY: the task was given with the G, and is alive until it says otherwise.
    let kind = unsafe { (*task).kind };
    // SAFETY: as above; once.
    let needs_completion = unsafe { (kind.run)(task) };
    g.forget_details();
    // SAFETY: own — nothing of it is needed any more.
    unsafe { identity::retire() };
    if forked::is_child() {
        // The last thread of a forked child has ended.
        // SAFETY: as libc does when a thread's function returns there.
        unsafe { libc::exit(0) };
    }
    g.leave_group();
    if let Some(p) = enter().p() {
        p.count_ended();
    }
    leave();
    if needs_completion {
        // SAFETY: the task is alive: `run` said so; once.
        unsafe { (kind.complete)(task) };
    }
    let m = enter();
    switch::depart(m, g, Departure::Exit { g });
    fatal!("goroutine {} goes on after its end", g.id())
}
