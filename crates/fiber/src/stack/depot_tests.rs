//! Tests of the depot: chains, trimming, refusals of the system, and look-ups by address.

use super::*;
use crate::stack::linux::{Call, with_injected_failure};
use crate::stack::size::{Extent, GUARD, MIN_USABLE, PAGE};
use std::collections::HashSet;

const EXTENT: Extent = Extent { below: 1856, hot: 832, cold: PAGE };

/// Returns a depot for one test. Depots are never freed.
fn depot() -> &'static Depot {
    Box::leak(Box::new(Depot::new()))
}

fn size(usable: usize) -> Size {
    Size::with_extent(usable, EXTENT).unwrap()
}

fn touch(address: usize) {
    // SAFETY: the test holds this stack, and nothing runs on it.
    unsafe { std::ptr::write_volatile(address as *mut u8, 1) };
}

/// Returns a stack to the depot as warm, as if an identity had been built in it.
fn put_warm(stack: Stack) {
    stack.set_has_identity(true);
    drop(stack);
}

#[test]
fn stacks_do_not_overlap_and_are_found_by_address() {
    let depot = depot();
    let stacks: Vec<Stack> = (0..1000).map(|_| depot.take(size(MIN_USABLE)).unwrap()).collect();
    let numbers: HashSet<u32> = stacks.iter().map(Stack::number).collect();
    assert_eq!(numbers.len(), 1000);
    let mut ranges: Vec<_> = stacks.iter().map(|s| (s.guard().start, s.spacing())).collect();
    ranges.sort();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    for (owner, stack) in (1..).zip(&stacks) {
        stack.set_owner(owner);
        touch(stack.usable().start);
        touch(stack.usable().end - 1);
        for address in [stack.guard().start, stack.usable().start, stack.thread_pointer()] {
            let found = depot.find(address).unwrap();
            assert_eq!(found.owner, owner);
            assert_eq!(found.guard, stack.guard());
            assert_eq!(found.usable, stack.usable());
            // The result does not depend on the slab that is searched first.
            for mut near in [0, 1, 2, u32::MAX] {
                let same = depot.find_near(&mut near, address).unwrap();
                assert_eq!((same.owner, same.thread_pointer), (owner, stack.thread_pointer()));
                let again = depot.find_near(&mut near.clone(), address).unwrap();
                assert_eq!(again.owner, owner);
            }
        }
    }
    assert!(depot.find(0).is_none());
    assert!(depot.find_near(&mut 1, 0).is_none());
    assert!(depot.find(usize::MAX).is_none());
    assert!(depot.find(ranges[0].0 - 1).is_none());
}

#[test]
fn first_frames_and_hot_identity_share_a_page() {
    let stack = depot().take(size(MIN_USABLE)).unwrap();
    let tp = stack.thread_pointer();
    assert_eq!((tp + EXTENT.hot) % PAGE, 0);
    assert_eq!((stack.top() as usize - 64) / PAGE, tp / PAGE);
    assert_eq!(stack.top() as usize % 16, 0);
    assert_eq!(stack.guard().len(), GUARD);
}

#[test]
fn the_stack_last_put_back_is_taken_first() {
    let depot = depot();
    let (a, b) = (depot.take(size(1)).unwrap(), depot.take(size(1)).unwrap());
    let (first, second) = (a.number(), b.number());
    put_warm(a);
    put_warm(b);
    let again = depot.take(size(1)).unwrap();
    assert_eq!(again.number(), second);
    assert!(again.has_identity());
    assert_eq!(depot.take(size(1)).unwrap().number(), first);
}

#[test]
fn sizes_do_not_mix() {
    let depot = depot();
    let small = depot.take(size(1)).unwrap();
    let large = depot.take(size(1 << 20)).unwrap();
    assert!(large.usable().len() >= 1 << 20);
    put_warm(large);
    put_warm(small);
    assert!(depot.take(size(1 << 20)).unwrap().usable().len() >= 1 << 20);
    assert_eq!(depot.take(size(1)).unwrap().spacing(), size(1).spacing());
}

#[test]
fn trimming_tears_down_old_stacks_and_unmaps_empty_slabs() {
    let depot = depot();
    let stacks: Vec<Stack> = (0..300).map(|_| depot.take(size(1)).unwrap()).collect();
    let kept = depot.take(size(1)).unwrap();
    stacks.into_iter().for_each(put_warm);
    assert_eq!(depot.counts().warm, 300);
    assert_eq!(depot.trim(Duration::from_secs(1000), |_| panic!("none is that old")), 0);
    let mut torn_down = HashSet::new();
    let trimmed = depot.trim(Duration::ZERO, |stack| {
        stack.set_has_identity(false);
        assert!(torn_down.insert(stack.number()), "twice");
    });
    assert_eq!((trimmed, torn_down.len()), (300, 300));
    let counts = depot.counts();
    assert_eq!((counts.out, counts.warm, counts.slabs), (1, 0, 1), "{counts:?}");
    touch(kept.usable().start);
    drop(kept);
    depot.trim(Duration::ZERO, |_| ());
    assert_eq!(depot.counts(), Counts::default());
    // Takes stacks again, from reused records.
    let stacks: Vec<Stack> = (0..300).map(|_| depot.take(size(1)).unwrap()).collect();
    let numbers: HashSet<u32> = stacks.iter().map(Stack::number).collect();
    assert_eq!(numbers.len(), 300);
    stacks.iter().for_each(|stack| touch(stack.usable().start));
}

#[test]
fn only_the_old_stacks_of_a_chain_are_trimmed() {
    let depot = depot();
    let stacks: Vec<Stack> = (0..10).map(|_| depot.take(size(1)).unwrap()).collect();
    let numbers: Vec<u32> = stacks.iter().map(Stack::number).collect();
    stacks.into_iter().for_each(put_warm);
    // Makes the first four look as if they were put away at time 0.
    for &number in &numbers[..4] {
        let stack = std::mem::ManuallyDrop::new(depot.stack(number + 1).unwrap());
        stack.set_owner(0);
    }
    let mut trimmed = HashSet::new();
    depot.trim(Duration::from_millis(linux::milliseconds() / 2), |stack| {
        stack.set_has_identity(false);
        trimmed.insert(stack.number());
    });
    assert_eq!(trimmed, numbers[..4].iter().copied().collect());
    assert_eq!(depot.counts().warm, 6);
}

#[test]
fn pages_beyond_the_first_are_zero_when_a_stack_is_reused() {
    let depot = depot();
    let stack = depot.take(size(MIN_USABLE)).unwrap();
    let (low, top) = (stack.usable().start, stack.usable().end);
    touch(low);
    touch(top - 1);
    touch(top - 1 - PAGE);
    put_warm(stack);
    let stack = depot.take(size(MIN_USABLE)).unwrap();
    assert_eq!(stack.usable(), low..top, "the same stack");
    let read = |at: usize| {
        // SAFETY: the test holds this stack.
        unsafe { std::ptr::read_volatile(at as *const u8) }
    };
    assert_eq!(read(low), 0, "given back");
    assert_eq!((read(top - 1), read(top - 1 - PAGE)), (1, 1), "kept");
}

#[test]
fn each_refused_system_call_is_an_error_and_leaves_the_depot_empty() {
    for (call, doing) in [
        (Call::Table, "making the table of a slab of stacks"),
        (Call::Reserve, "reserving address space for stacks"),
        (Call::Commit, "making stack memory writable"),
        (Call::Guard, "guarding stacks"),
    ] {
        let depot = depot();
        let refused = with_injected_failure(call, libc::ENOMEM, || depot.take(size(1)));
        if call == Call::Guard && linux::uses_mprotect_guards() {
            continue;
        }
        let error = refused.unwrap_err();
        assert!(error.to_string().starts_with(doing), "{call:?}: {error}");
        assert!(error.to_string().ends_with("Cannot allocate memory (os error 12)"), "{error}");
        assert_eq!(depot.counts(), Counts::default(), "{call:?}");
        // The same call succeeds without the injected failure.
        touch(depot.take(size(1)).unwrap().usable().start);
    }
}

#[test]
fn a_refused_system_call_leaves_the_depot_unchanged_and_usable() {
    let depot = depot();
    let held: Vec<Stack> = (0..SLOTS_PER_CARVE).map(|_| depot.take(size(1)).unwrap()).collect();
    let before = depot.counts();
    with_injected_failure(Call::Commit, libc::ENOMEM, || depot.take(size(1))).unwrap_err();
    assert_eq!(depot.counts(), before);
    touch(depot.take(size(1)).unwrap().usable().start);
    drop(held);
}

#[test]
fn stacks_are_guarded_by_mprotect_if_the_kernel_has_no_lightweight_guards() {
    let depot = depot();
    let stacks: Vec<Stack> = with_injected_failure(Call::Guard, libc::EINVAL, || {
        (0..10).map(|_| depot.take(size(1)).unwrap()).collect()
    });
    assert!(depot.chains.lock().mappings.ours >= 20);
    for stack in &stacks {
        touch(stack.usable().start);
        touch(stack.usable().end - 1);
        assert!(!readable(stack.guard().start) && !readable(stack.guard().end - 1));
    }
    drop(stacks);
    depot.trim(Duration::ZERO, |_| ());
    assert_eq!(depot.chains.lock().mappings.ours, 0);
}

#[test]
fn guards_are_in_place() {
    let stack = depot().take(size(1)).unwrap();
    assert!(!readable(stack.guard().start));
    assert!(!readable(stack.guard().end - 1));
    assert!(readable(stack.guard().end));
}

/// Returns whether `address` is readable. The kernel reports EFAULT where an access would fault.
fn readable(address: usize) -> bool {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` is valid for writes.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the kernel checks the address.
    let written = unsafe { libc::write(pipe[1], address as *const libc::c_void, 1) };
    for end in pipe {
        // SAFETY: `end` was opened above.
        unsafe { libc::close(end) };
    }
    written == 1
}

#[test]
fn many_threads_take_and_put_at_once_while_another_trims() {
    let depot = depot();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut held = Vec::new();
                for step in 0..3000u64 {
                    let stack = depot.take(size(1)).unwrap();
                    stack.set_owner(thread << 32 | step);
                    touch(stack.usable().end - 1);
                    held.push((step, stack));
                    if step % 7 == 0 {
                        for (step, stack) in held.drain(..) {
                            let found = depot.find(stack.usable().start).unwrap();
                            assert_eq!(found.owner, thread << 32 | step, "handed out twice");
                            put_warm(stack);
                        }
                    }
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..300 {
                depot.trim(Duration::ZERO, |stack| stack.set_has_identity(false));
            }
        });
    });
    let counts = depot.counts();
    assert_eq!(counts.out, 0, "{counts:?}");
    depot.trim(Duration::ZERO, |stack| stack.set_has_identity(false));
    assert_eq!(depot.counts(), Counts::default());
}

#[test]
fn a_bare_slot_is_reused_when_no_more_slots_can_be_carved() {
    let depot = depot();
    // Enough stacks for two slabs, so that the first slab is carved completely.
    let first = FIRST_SLAB_BYTES / size(1).spacing();
    let mut stacks: Vec<Stack> = (0..first + 1).map(|_| depot.take(size(1)).unwrap()).collect();
    while depot.counts().bare > 0 {
        stacks.push(depot.take(size(1)).unwrap());
    }
    let one = stacks.swap_remove(0);
    let number = one.number();
    drop(one);
    let again = with_injected_failure(Call::Commit, libc::ENOMEM, || depot.take(size(1))).unwrap();
    assert_eq!(again.number(), number);
    drop(again);
    // Trimming rebuilds the chains.
    depot.trim(Duration::ZERO, |_| ());
    let again = with_injected_failure(Call::Commit, libc::ENOMEM, || depot.take(size(1))).unwrap();
    assert_eq!(again.number(), number);
}

#[test]
fn a_look_up_is_correct_while_other_slabs_are_mapped_and_unmapped() {
    let depot = depot();
    let stop = std::sync::atomic::AtomicBool::new(false);
    // A record with a lower number than that of the held stack is reused, each time for another
    // size.
    let low = depot.take(size(1)).unwrap();
    let held = depot.take(size(1 << 20)).unwrap();
    held.set_owner(77);
    drop(low);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..3000 {
                let other = depot.take(size([1, 8 << 20, 300_000][round % 3])).unwrap();
                touch(other.usable().start);
                drop(other);
                depot.trim(Duration::ZERO, |_| ());
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            for address in [held.guard().start, held.usable().start, held.thread_pointer()] {
                let found = depot.find(address).unwrap();
                assert_eq!((found.owner, found.guard), (77, held.guard()));
            }
        }
    });
}

#[test]
fn stacks_are_trimmed_by_their_age_in_milliseconds() {
    let depot = depot();
    put_warm(depot.take(size(1)).unwrap());
    let none = depot.trim(Duration::from_millis(60_000), |_| panic!("it is not that old"));
    assert_eq!(none, 0);
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    while depot.trim(Duration::from_millis(20), |stack| stack.set_has_identity(false)) == 0 {
        assert!(std::time::Instant::now() < deadline, "it does not grow old");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn discarding_unused_pages_keeps_the_first_pages() {
    let is_zero = |at: usize| {
        // SAFETY: the test holds this stack.
        unsafe { std::ptr::read_volatile(at as *const u8) == 0 }
    };
    let depot = depot();
    let stack = depot.take(size(1)).unwrap();
    stack.set_has_identity(true);
    let low = stack.usable().start;
    touch(low);
    stack.discard_unused_pages();
    assert!(is_zero(low));
    touch(stack.usable().end - 1);
    stack.discard_unused_pages();
    assert!(!is_zero(stack.usable().end - 1), "its first pages stay");
    stack.zero_identity();
    stack.set_has_identity(false);
    drop(stack);
}
