//! Measures a switch, a new goroutine and a reused goroutine: `cargo bench -p gosched-fiber`.
//!
//! The results are the fastest of many rounds, in nanoseconds. Set `GOSCHED_FSGSBASE=off` to
//! measure `arch_prctl`.

use gosched_fiber::arch::{self, SavedContext};
use gosched_fiber::stack::Cache;
use gosched_fiber::{Routine, Size, Stack, host, identity, stack, suspend};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Returns the nanoseconds per operation in the fastest of `rounds` calls of `f`. Each call
/// performs `count` operations.
fn best(rounds: usize, count: usize, mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    best
}

fn line(what: &str, nanoseconds: f64, expected: &str) {
    println!("{what:<58} {nanoseconds:>9.1} ns   {expected}");
}

fn size() -> Size {
    Size::from_environment().expect("a stack size")
}

/// Measures one switch. Each resume takes two.
fn switches(mut routine: Routine<()>) -> f64 {
    const COUNT: usize = 100_000;
    routine.resume().expect("a stack");
    best(40, 2 * COUNT, || {
        for _ in 0..COUNT {
            routine.resume().expect("a stack");
        }
    })
}

fn forever() {
    loop {
        suspend();
    }
}

/// Measures the bare switch between this thread and a context that only switches back. If `alike`,
/// both have the same floating-point flags.
fn bare(identity: bool, alike: bool) -> f64 {
    const COUNT: usize = 100_000;
    #[repr(C)]
    struct Two {
        outside: SavedContext,
        inside: SavedContext,
    }
    impl Two {
        fn split(two: *mut Two) -> (*mut SavedContext, *mut SavedContext) {
            let outside = two.cast::<SavedContext>();
            (outside, outside.wrapping_add(1))
        }
    }
    /// # Safety
    /// - **callback**: `bare` switches here, with the address of its two contexts.
    unsafe extern "C" fn pong(_: usize, two: usize) -> ! {
        let (outside, inside) = Two::split(two as *mut Two);
        loop {
            // SAFETY: `bare` keeps both contexts alive and waits.
            unsafe { arch::switch(inside, outside, 0) };
        }
    }
    let stack = Stack::new(size()).expect("a stack");
    let here = SavedContext::for_caller();
    let thread_pointer = if identity {
        // SAFETY: quiet — no other code uses this stack.
        unsafe { identity::create(&stack) }.expect("an identity");
        identity::thread_pointer(&stack)
    } else {
        here.thread_pointer
    };
    if alike {
        // Sets the sticky flag that arithmetic on this thread sets sooner or later.
        black_box(black_box(1.0) / black_box(3.0));
    }
    let mut two = Box::new(Two { outside: here, inside: SavedContext::empty(thread_pointer) });
    let at = &raw mut *two;
    // SAFETY: mapped, quiet — no other code uses this stack.
    two.inside.sp = unsafe { arch::first_frame(stack.top(), pong, at as usize) };
    let (outside, inside) = Two::split(Box::into_raw(two));
    let each = best(40, 2 * COUNT, || {
        for _ in 0..COUNT {
            // SAFETY: both contexts stay allocated, and `pong` always switches back.
            unsafe { arch::switch(outside, inside, 0) };
        }
    });
    std::mem::forget(stack); // the frame of `pong` is still on it
    each
}

/// Measures a slot that was never used: stack, guard and identity. Includes the page faults.
fn fresh() -> f64 {
    const COUNT: usize = 4000;
    let size = size();
    let mut kept = Vec::new();
    best(8, COUNT, || {
        for _ in 0..COUNT {
            let stack = Stack::new(size).expect("a stack");
            // SAFETY: quiet — no other code uses this stack.
            unsafe { identity::create(&stack) }.expect("an identity");
            kept.push(stack);
        }
    })
}

fn fresh_and_run() -> f64 {
    const COUNT: usize = 4000;
    let size = size();
    let mut kept = Vec::new();
    best(8, COUNT, || {
        for _ in 0..COUNT {
            let mut routine = Routine::new(size, suspend);
            routine.resume().expect("a stack");
            kept.push(routine);
        }
    })
}

/// Measures a slot that was used before: taken, laid out, wiped, put away.
fn reused() -> f64 {
    const COUNT: usize = 20_000;
    /// # Safety
    /// - **callback**: never called.
    unsafe extern "C" fn never(_: usize, _: usize) -> ! {
        std::process::abort()
    }
    let size = size();
    let mut cache = Cache::new(size);
    let stack = Stack::new(size).expect("a stack");
    // SAFETY: quiet — no other code uses this stack.
    unsafe { identity::create(&stack) }.expect("an identity");
    cache.put(stack);
    best(60, COUNT, || {
        for _ in 0..COUNT {
            let stack = cache.take(size).expect("a stack");
            // SAFETY: mapped, quiet — no other code uses this stack.
            black_box(unsafe { arch::first_frame(stack.top(), never, 0) });
            // SAFETY: quiet — nothing runs with this identity.
            unsafe { identity::wipe(&stack) };
            cache.put(stack);
        }
    })
}

fn reused_and_run() -> f64 {
    const COUNT: usize = 20_000;
    let size = size();
    best(60, COUNT, || {
        for _ in 0..COUNT {
            Routine::new(size, || ()).resume().expect("a stack");
        }
    })
}

fn main() {
    let size = size();
    let unlike = bare(true, false);
    line("switch, bare", bare(true, true), "18 to 25");
    line("switch, bare, without identity", bare(false, true), "3 to 9");
    line("switch, bare, floating-point flags differ each time", unlike, "");
    line("switch, in resume and suspend", switches(Routine::new(size, forever)), "");
    // SAFETY: no thread-locals — `forever` uses none, and the routine stays on this thread.
    let plain = unsafe { Routine::without_identity(size, forever) };
    line("switch, in resume and suspend, without identity", switches(plain), "");
    line("new: stack, guard and identity, never used before", fresh(), "up to 4000");
    stack::trim(Duration::ZERO);
    line("new, run to its first suspension", fresh_and_run(), "");
    line("reused: taken, laid out, wiped, put away", reused(), "up to 50");
    line("reused, a whole routine that does nothing", reused_and_run(), "");
    let mut hosted = Routine::new(size, || {
        best(40, 10_000, || {
            for _ in 0..10_000 {
                black_box(host(|| black_box(1)));
            }
        })
    });
    hosted.resume().expect("a stack");
    if let Some(Ok(each)) = hosted.into_result() {
        line("host(f)", each, "");
    }
    let thread = best(20, 200, || {
        for _ in 0..200 {
            std::thread::spawn(|| ()).join().expect("a thread");
        }
    });
    line("for comparison: a std thread that does nothing", thread, "");
}
