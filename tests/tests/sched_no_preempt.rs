//! What must never happen with preemption off: an allocation (fatal in debug builds) or a panic
//! (fatal in all builds). All suites run with the allocation cache, which checks this.

use gosched::{go, run, scope, yield_now};
use gosched_tests::children;
use std::hint::black_box;

#[test]
fn the_scheduler_allocates_nothing_with_preemption_off() {
    run(|| {
        for round in 0..4 {
            let handles: Vec<_> = (0..2000u64)
                .map(|i| {
                    go(move || {
                        yield_now();
                        let inner = go(move || i);
                        if i.is_multiple_of(64) {
                            gosched::lock_os_thread();
                            yield_now();
                            gosched::unlock_os_thread();
                        }
                        inner.join().unwrap()
                    })
                })
                .collect();
            if round == 2 {
                let before = gosched::runtime::set_procs(3);
                yield_now();
                gosched::runtime::set_procs(before);
            }
            let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            assert_eq!(sum, 1999 * 1000);
        }
        let mut numbers = [0; 100];
        scope(|s| {
            for number in &mut numbers {
                s.go(move || *number += 1);
            }
        });
        assert_eq!(numbers, [1; 100]);
    });
}

/// Checks that the scenario is fatal with this sentence in builds that check the rule, and succeeds
/// in other builds.
fn assert_fatal_in_debug_builds(scenario: &str, sentence: &str) {
    let output = children::run(scenario);
    let text = children::stderr(&output);
    if cfg!(all(debug_assertions, not(feature = "threads"), not(feature = "system-alloc"))) {
        assert!(
            text.contains(&format!("runtime: the allocator was entered {sentence}\n")),
            "{text}"
        );
        assert!(text.contains("gomaxprocs="), "everything is shown: {text}");
        assert!(!output.status.success());
    } else {
        assert!(output.status.success(), "{text}");
    }
}

#[test]
fn an_allocation_with_preemption_off_is_fatal_in_debug_builds() {
    assert_fatal_in_debug_builds("allocates", "with preemption off");
}

#[test]
fn an_allocation_while_the_world_is_stopped_is_fatal_in_debug_builds() {
    let sentence = "by a thread that has stopped the world";
    assert_fatal_in_debug_builds("a thread allocates in a stopped world", sentence);
    assert_fatal_in_debug_builds("a goroutine allocates in a stopped world", sentence);
}

#[cfg(not(feature = "threads"))]
#[test]
fn a_panic_with_preemption_off_is_fatal() {
    let output = children::run("panics");
    let text = children::stderr(&output);
    assert!(text.contains("runtime: a panic inside the runtime, with preemption off"), "{text}");
    assert!(!output.status.success());
}

#[test]
fn child() {
    match children::scenario().as_deref() {
        Some("allocates") => {
            run(|| gosched::__rules::with_preemption_off(|| drop(black_box(Box::new(1)))));
        }
        Some("a thread allocates in a stopped world") => {
            run(|| ());
            gosched::__rules::with_world_stopped(|| drop(black_box(Box::new(1))));
        }
        Some("a goroutine allocates in a stopped world") => {
            run(|| gosched::__rules::with_world_stopped(|| drop(black_box(Box::new(1)))));
        }
        Some("panics") => {
            run(|| gosched::__rules::with_preemption_off(|| panic!("not here")));
        }
        _ => {}
    }
}

#[cfg(not(feature = "threads"))]
#[test]
fn a_fiber_routine_is_an_ordinary_thread_to_the_runtime() {
    use gosched_fiber::{Routine, Size, Status};
    let size = Size::from_environment().unwrap();
    let mut routine = Routine::new(size, || {
        assert!(gosched::current().is_none());
        yield_now();
        let doubled = run(|| go(|| 21 * 2).join().unwrap());
        gosched::lock_os_thread();
        doubled + go(|| 1).join().unwrap()
    });
    assert_eq!(routine.resume(), Ok(Status::Finished));
    assert_eq!(routine.into_result().unwrap().unwrap(), 43);
}
