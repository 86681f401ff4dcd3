//! Every function of the scheduler's public API, called in goroutines and on ordinary threads. A
//! case that needs a process of its own runs in a child or in a program: see
//! `src/bin/sched_program.rs`.

use gosched::{
    Builder, GoId, Goroutine, JoinHandle, current, go, goexit, host, lock_os_thread, park, run,
    runtime, scope, unlock_os_thread, with_stack, yield_now,
};
use gosched_tests::children;
use gosched_tests::wait::until;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// Runs `f` in a goroutine, then on the calling thread, then on a new thread.
fn everywhere(f: impl Fn() + Sync + Send) {
    run(&f);
    f();
    std::thread::scope(|s| s.spawn(&f).join().unwrap());
}

fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

fn panic_text<T>(f: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => "no panic".into(),
        Err(payload) => text(&*payload).to_owned(),
    }
}

fn thread() -> i32 {
    // SAFETY: gettid has no precondition.
    unsafe { libc::gettid() }
}

fn program(name: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sched_program")).arg(name).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program that must exit with this status. Returns its standard output and standard error.
fn ends_with(name: &str, status: i32) -> (String, String) {
    let output = program(name);
    let (out, error) = (stdout(&output), children::stderr(&output));
    assert_eq!(output.status.code(), Some(status), "{name}: {:?}: {out} {error}", output.status);
    (out, error)
}

fn passes_with(scenario: &str, procs: usize) {
    let output = children::command(scenario).env("GOMAXPROCS", procs.to_string()).output().unwrap();
    let text = children::stderr(&output);
    assert!(output.status.success(), "{scenario}, {procs} Ps: {:?}: {text}", output.status);
}

fn passes(scenario: &str) {
    for procs in [1, 2, 4] {
        passes_with(scenario, procs);
    }
}

/// Increments the counter when dropped.
#[derive(Clone, Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else { return };
    match scenario.as_str() {
        "tokens" => run(tokens),
        "reused records" => run(reused_records),
        "locked" => run(locked),
        "locked twice" => run(locked_twice),
        "locked end" => run(locked_end),
        "at most procs" => run(at_most_procs),
        "resize" => resize(),
        "counts" => counts(),
        "asks for procs" => asks_for_procs(),
        other => panic!("no scenario {other}"),
    }
}

// ---- go, join ----

// S17, S20
#[test]
fn join_returns_the_result_of_the_goroutine() {
    everywhere(|| {
        assert_eq!(go(|| 6 * 7).join().unwrap(), 42);
        assert_eq!(go(|| vec![1; 1000]).join().unwrap().len(), 1000);
        let handles: Vec<_> = (0..500u64).map(|i| go(move || i * i)).collect();
        let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
        assert_eq!(sum, (0..500u64).map(|i| i * i).sum());
    });
}

// S20
#[test]
fn a_result_may_be_of_any_size_and_alignment() {
    #[repr(align(256))]
    #[derive(Debug)]
    struct Aligned([u8; 512]);
    everywhere(|| {
        let big = [7u8; 8192];
        let back = go(move || big).join().unwrap();
        assert_eq!(back, [7; 8192]);
        let aligned = Aligned([3; 512]);
        let back = go(move || {
            assert_eq!(&raw const aligned as usize % 256, 0);
            aligned
        });
        let back = back.join().unwrap();
        assert_eq!(&raw const back as usize % 256, 0);
        assert_eq!(back.0, [3; 512]);
        go(|| ()).join().unwrap();
    });
}

// S34
#[test]
fn a_panic_ends_the_goroutine_and_join_returns_its_payload() {
    everywhere(|| {
        let error = go(|| panic!("number {}", 5)).join().map(|(): ()| ()).unwrap_err();
        assert!(error.is_panic() && !error.is_goexit());
        assert!(error.to_string().contains("number 5"), "{error}");
        assert_eq!(text(&*error.into_panic()), "number 5");
        let error = go(|| std::panic::panic_any(17i64)).join().map(|(): ()| ()).unwrap_err();
        assert_eq!(*error.into_panic().downcast::<i64>().unwrap(), 17);
    });
}

// S34
#[test]
fn a_join_error_is_an_error_that_can_be_sent() {
    fn is_error<E: std::error::Error + Send + 'static>(_: &E) {}
    let error = go(|| goexit()).join().map(|(): ()| ()).unwrap_err();
    is_error(&error);
    assert!(error.is_goexit() && !error.is_panic());
    assert!(!error.to_string().is_empty());
    assert!(panic_text(|| error.into_panic()) != "no panic");
}

// S34
#[test]
fn is_finished_returns_whether_join_would_block() {
    everywhere(|| {
        let gate = Arc::new(AtomicBool::new(false));
        let opened = gate.clone();
        let handle = go(move || until("the gate is open", || opened.load(SeqCst)));
        assert!(!handle.is_finished());
        gate.store(true, SeqCst);
        until("it has ended", || handle.is_finished());
        handle.join().unwrap();
    });
}

// S34
#[test]
fn a_panic_message_names_the_goroutine_once() {
    let (out, error) = ends_with("message", 0);
    let mut lines = out.lines();
    let worker = lines.next().unwrap().strip_prefix("worker ").unwrap();
    let id = worker.strip_suffix(" true").unwrap();
    assert!(error.contains(&format!("goroutine {id} (worker) panicked at ")), "{error}");
    assert_eq!(error.matches("boom 1").count(), 1, "{error}");
    assert!(lines.next().unwrap().contains("boom 1"), "{out}");
    let plain = lines.next().unwrap().strip_prefix("plain ").unwrap();
    let id = plain.strip_suffix(" true").unwrap();
    assert!(error.contains(&format!("goroutine {id} panicked at ")), "{error}");
    assert_eq!(error.matches("bang").count(), 1, "{error}");
    assert!(error.contains("thread 'std's'"), "threads are named as ever: {error}");
    assert_eq!(error.matches("panicked at").count(), 3, "{error}");
}

// S34
#[test]
fn with_policy_abort_a_panic_ends_the_process_with_status_2() {
    let (out, error) = ends_with("abort", 2);
    assert_eq!(out, "before Isolate\ndestructor\n");
    assert_eq!(error.matches("the last word").count(), 1, "{error}");
}

// ---- goexit ----

// S34, S24
#[test]
fn goexit_runs_destructors_and_ends_only_its_goroutine() {
    everywhere(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Counted(drops.clone());
        let result = go(move || {
            let _first = counted.clone();
            let _second = counted;
            fn inner() {
                goexit()
            }
            inner();
            unreachable!()
        })
        .join()
        .map(|(): ()| ());
        assert!(result.unwrap_err().is_goexit());
        assert_eq!(drops.load(SeqCst), 2);
    });
}

// S34
#[test]
fn a_caught_goexit_resumes_at_the_next_wait() {
    let waits: [(&str, fn()); 4] = [
        ("park", park),
        ("yield_now", yield_now),
        ("join", || drop(go(|| ()).join())),
        ("scope", || {
            scope(|s| {
                s.go(|| ());
            });
        }),
    ];
    for (name, wait) in waits {
        let reached = Arc::new(AtomicUsize::new(0));
        let seen = reached.clone();
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Counted(drops.clone());
        let result = go(move || {
            let _counted = counted;
            let caught = catch_unwind(|| goexit()).map(|(): ()| ());
            assert!(caught.is_err());
            seen.store(1, SeqCst);
            wait();
            seen.store(2, SeqCst);
        })
        .join();
        assert!(result.unwrap_err().is_goexit(), "{name}");
        assert_eq!(reached.load(SeqCst), 1, "{name}");
        assert_eq!(drops.load(SeqCst), 1, "{name}");
    }
}

// S34
#[test]
fn a_goexit_caught_again_and_again_still_ends_the_goroutine() {
    let rounds = Arc::new(AtomicUsize::new(0));
    let seen = rounds.clone();
    let result = go(move || {
        for _ in 0..5 {
            let caught =
                catch_unwind(|| if seen.load(SeqCst) == 0 { goexit() } else { yield_now() });
            assert!(caught.is_err());
            seen.fetch_add(1, SeqCst);
        }
        yield_now();
    })
    .join();
    assert!(result.unwrap_err().is_goexit());
    assert_eq!(rounds.load(SeqCst), 5);
}

// S34
#[test]
fn goexit_prints_nothing() {
    let (out, error) = ends_with("main exits in run", 0);
    assert_eq!(out, "run has no result: true\n");
    assert!(!error.contains("Any"), "{error}");
}

// S34
#[test]
fn goexit_outside_a_goroutine_panics_with_the_reason() {
    let text = panic_text(|| goexit());
    assert!(text.contains("goexit") && text.contains("goroutine"), "{text}");
}

// ---- Builder, ids ----

// S13
#[test]
fn a_builder_sets_the_name_the_labels_and_the_stack_size() {
    everywhere(|| {
        let builder = Builder::new().name("worker").label("kind", "io").label("shard", "7");
        let handle = builder.stack_size(4 << 20).go(|| {
            let me = current().unwrap();
            let labels: Vec<_> = me.labels().map(|(k, v)| format!("{k}={v}")).collect();
            (me.name().map(str::to_owned), labels, deep(2000))
        });
        let handle = handle.unwrap();
        assert_eq!(handle.goroutine().name(), Some("worker"));
        let (name, labels, depth) = handle.join().unwrap();
        assert_eq!(name.as_deref(), Some("worker"));
        assert_eq!(labels, ["kind=io", "shard=7"]);
        assert_eq!(depth, 2000);
        assert!(go(|| current().unwrap().name().is_none()).join().unwrap());
    });
}

// S26
#[test]
fn impossible_stack_sizes_are_errors() {
    everywhere(|| {
        for bytes in
            [usize::MAX, usize::MAX - 4096, usize::MAX / 2, 1 << 62, 1 << 60, 1 << 50, 1 << 48]
        {
            let ran = Arc::new(AtomicBool::new(false));
            let seen = ran.clone();
            let result = Builder::new().stack_size(bytes).go(move || seen.store(true, SeqCst));
            assert!(result.is_err(), "{bytes:#x}");
            assert!(!result.unwrap_err().to_string().is_empty());
            assert!(!ran.load(SeqCst));
            assert!(with_stack(bytes, || ()).is_err(), "{bytes:#x}");
        }
        for bytes in [1, 4095, 1 << 20] {
            assert_eq!(
                Builder::new().stack_size(bytes).go(|| 5).unwrap().join().unwrap(),
                5,
                "{bytes}"
            );
        }
    });
}

// S26
#[test]
fn a_huge_stack_size_is_an_error_or_works() {
    if let Ok(handle) = Builder::new().stack_size(0).go(|| 0) {
        handle.join().unwrap();
    }
    for shift in 30..47 {
        if let Ok(handle) = Builder::new().stack_size(1 << shift).go(move || shift) {
            assert_eq!(handle.join().unwrap(), shift);
        }
    }
}

// S16
#[test]
fn ids_are_unique_over_a_hundred_thousand_spawns_from_many_threads() {
    fn spawn(count: usize) -> Vec<GoId> {
        (0..count)
            .map(|_| go(|| gosched::id().unwrap()))
            .map(|handle| {
                let id = handle.id();
                assert_eq!(handle.join().unwrap(), id);
                id
            })
            .collect()
    }
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(|| spawn(20_000))).collect();
    let goroutines: Vec<_> = (0..4).map(|_| go(|| spawn(10_000))).collect();
    let mut ids: Vec<GoId> = vec![];
    threads.into_iter().for_each(|thread| ids.extend(thread.join().unwrap()));
    goroutines.into_iter().for_each(|handle| ids.extend(handle.join().unwrap()));
    assert_eq!(ids.len(), 100_000);
    let unique: HashSet<GoId> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len());
}

// S16, S157, S158
#[test]
fn main_is_goroutine_1() {
    let (out, _) = ends_with("is one", 0);
    assert_eq!(out, "id 1\nparent None\nchild's parent 1\n");
}

// S40, S158
#[test]
fn the_main_goroutine_starts_on_the_main_thread() {
    let (out, _) = ends_with("main thread", 0);
    assert_eq!(out, "first on the main thread true\n");
}

// S13
#[test]
fn a_goroutine_has_the_id_of_its_parent() {
    let first = go(|| (gosched::id().unwrap(), go(|| current().unwrap().parent()).join().unwrap()));
    assert_eq!(first.goroutine().parent(), None, "an ordinary thread has no number");
    let (id, parent) = first.join().unwrap();
    assert_eq!(parent, Some(id));
}

// S13
#[test]
fn an_ordinary_thread_is_not_a_goroutine() {
    assert!(gosched::id().is_none() && current().is_none());
    yield_now();
    lock_os_thread();
    unlock_os_thread();
    let me = std::thread::current();
    me.unpark();
    park();
    run(|| {
        assert!(gosched::id().is_some());
        let std_thread = std::thread::spawn(|| gosched::id().is_none() && current().is_none());
        let inside = std_thread.join().unwrap();
        assert!(inside, "a thread that a goroutine started is an ordinary one");
        assert!(host(|| gosched::id().is_none()), "so is the thread below");
    });
}

// ---- park, unpark ----

// S22, S23
#[test]
fn park_waits_for_one_unpark_and_an_early_unpark_is_kept() {
    everywhere(|| {
        let passed = Arc::new(AtomicUsize::new(0));
        let seen = passed.clone();
        let handle = go(move || {
            for i in 1..=100 {
                park();
                seen.store(i, SeqCst);
            }
        });
        for i in 1..=100 {
            handle.goroutine().unpark();
            until("it goes on", || passed.load(SeqCst) == i);
        }
        handle.join().unwrap();
        go(|| {
            current().unwrap().unpark();
            park();
        })
        .join()
        .unwrap();
    });
}

/// Unparks do not accumulate: five early unparks make one `park` return.
fn tokens() {
    let passed = Arc::new(AtomicUsize::new(0));
    let seen = passed.clone();
    let handle = go(move || {
        let me = current().unwrap();
        for _ in 0..5 {
            me.unpark();
        }
        park();
        seen.store(1, SeqCst);
        park();
        seen.store(2, SeqCst);
    });
    until("the first park is over", || passed.load(SeqCst) == 1);
    for _ in 0..2000 {
        yield_now();
    }
    assert_eq!(passed.load(SeqCst), 1);
    handle.goroutine().unpark();
    handle.join().unwrap();
    assert_eq!(passed.load(SeqCst), 2);
}

// S22, S23
#[test]
fn early_unparks_do_not_accumulate() {
    passes("tokens");
}

/// A handle of a goroutine that has ended does not affect the goroutine that reuses its G.
fn reused_records() {
    for _ in 0..50 {
        let old: Vec<Goroutine> = (0..20)
            .map(|_| {
                let handle = go(|| ());
                let goroutine = handle.goroutine().clone();
                handle.join().unwrap();
                goroutine
            })
            .collect();
        let passed = Arc::new(AtomicUsize::new(0));
        let started = Arc::new(AtomicUsize::new(0));
        let new: Vec<_> = (0..20)
            .map(|_| {
                let (passed, started) = (passed.clone(), started.clone());
                go(move || {
                    started.fetch_add(1, SeqCst);
                    park();
                    passed.fetch_add(1, SeqCst);
                })
            })
            .collect();
        old.iter().for_each(Goroutine::unpark);
        until("all have started", || started.load(SeqCst) == 20);
        old.iter().for_each(Goroutine::unpark);
        for _ in 0..20 {
            yield_now();
        }
        assert_eq!(passed.load(SeqCst), 0);
        new.iter().for_each(|handle| handle.goroutine().unpark());
        new.into_iter().for_each(|handle| handle.join().unwrap());
        old.iter().for_each(Goroutine::unpark);
    }
}

// S25, S16
#[test]
fn unparking_an_ended_goroutine_does_not_affect_the_goroutine_that_reuses_its_g() {
    passes("reused records");
}

// S23
#[test]
fn concurrent_unparks_from_many_threads_are_not_lost() {
    let passed = Arc::new(AtomicUsize::new(0));
    let seen = passed.clone();
    let handle = go(move || {
        while seen.load(SeqCst) < 8 * 5000 {
            park();
        }
    });
    std::thread::scope(|s| {
        for _ in 0..4 {
            let unparker = || {
                for _ in 0..5000 {
                    passed.fetch_add(1, SeqCst);
                    handle.goroutine().unpark();
                }
            };
            s.spawn(unparker);
            s.spawn(move || run(unparker));
        }
    });
    handle.join().unwrap();
}

// ---- scope ----

// S20
#[test]
fn scoped_goroutines_may_borrow_and_the_scope_waits_for_them() {
    everywhere(|| {
        let mut numbers: Vec<usize> = (0..200).collect();
        let done = AtomicUsize::new(0);
        let result = scope(|s| {
            for number in &mut numbers {
                let done = &done;
                s.go(move || {
                    for _ in 0..*number % 7 {
                        yield_now();
                    }
                    *number *= 2;
                    done.fetch_add(1, SeqCst);
                });
            }
            "from the closure"
        });
        assert_eq!(result, "from the closure");
        assert_eq!(done.into_inner(), 200);
        assert_eq!(numbers, (0..200).map(|i| i * 2).collect::<Vec<_>>());
    });
}

// S34
#[test]
fn a_scope_raises_an_unjoined_panic_after_all_its_goroutines_have_ended() {
    everywhere(|| {
        let done = AtomicUsize::new(0);
        let text = panic_text(|| {
            scope(|s| {
                s.go(|| panic!("unheard"));
                for _ in 0..20 {
                    s.go(|| {
                        for _ in 0..20 {
                            yield_now();
                        }
                        done.fetch_add(1, SeqCst);
                    });
                }
            })
        });
        assert_eq!(text, "unheard");
        assert_eq!(done.load(SeqCst), 20);
    });
}

// S34
#[test]
fn a_scope_whose_closure_panics_waits_for_its_goroutines_and_raises_that_panic() {
    everywhere(|| {
        let done = AtomicUsize::new(0);
        let text = panic_text(|| {
            scope(|s| {
                s.go(|| {
                    for _ in 0..50 {
                        yield_now();
                    }
                    done.fetch_add(1, SeqCst);
                });
                s.go(|| panic!("the goroutine's"));
                panic!("the closure's");
            })
        });
        assert_eq!(text, "the closure's");
        assert_eq!(done.load(SeqCst), 1);
    });
}

// S34
#[test]
fn a_joined_panic_or_a_goexit_is_not_raised_by_the_scope() {
    everywhere(|| {
        let error = scope(|s| {
            s.go(|| goexit());
            s.go(|| panic!("heard")).join().map(|(): ()| ()).unwrap_err()
        });
        assert_eq!(text(&*error.into_panic()), "heard");
    });
}

// S20
#[test]
fn scopes_nest_and_scoped_goroutines_may_start_more() {
    everywhere(|| {
        let total = AtomicUsize::new(0);
        scope(|outer| {
            for _ in 0..5 {
                outer.go(|| {
                    scope(|inner| {
                        for _ in 0..5 {
                            inner.go(|| total.fetch_add(1, SeqCst));
                        }
                    });
                    outer.go(|| total.fetch_add(100, SeqCst));
                });
            }
        });
        assert_eq!(total.into_inner(), 525);
    });
}

// S20
#[test]
fn join_returns_the_result_of_a_scoped_goroutine() {
    everywhere(|| {
        let words = ["a".to_owned(), "bc".to_owned()];
        let longest = scope(|s| {
            let handles: Vec<_> = words.iter().map(|word| s.go(move || word.as_str())).collect();
            let found = handles.into_iter().map(|handle| handle.join().unwrap());
            found.max_by_key(|word| word.len()).unwrap()
        });
        assert_eq!(longest, "bc");
    });
}

// ---- run ----

// S20
#[test]
fn run_may_borrow_and_returns_the_result() {
    let mut numbers = vec![1, 2, 3];
    let sum = run(|| {
        numbers.push(4);
        numbers.iter().sum::<i32>()
    });
    assert_eq!((sum, numbers.len()), (10, 4));
}

// S20
#[test]
fn run_in_a_goroutine_calls_the_closure_directly() {
    run(|| {
        let outer = gosched::id();
        let inner = run(gosched::id);
        assert_eq!(inner, outer);
    });
}

// S34
#[test]
fn a_panic_in_run_is_raised_in_its_caller() {
    assert_eq!(panic_text(|| run(|| panic!("out of run"))), "out of run");
    run(|| assert_eq!(panic_text(|| run(|| panic!("out of run"))), "out of run"));
}

// S160
#[test]
fn goroutines_left_by_run_keep_running() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = gate.clone();
    let handle = run(move || go(move || until("the gate is open", || opened.load(SeqCst))));
    assert!(!handle.is_finished());
    gate.store(true, SeqCst);
    handle.join().unwrap();
}

// S57
#[test]
fn many_threads_call_run_at_once() {
    let total = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..16 {
            s.spawn(|| {
                for _ in 0..100 {
                    total.fetch_add(run(|| go(|| 1).join().unwrap()), SeqCst);
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 1600);
}

// ---- futures ----

/// A waker that counts its calls and unparks the goroutine or thread that created it.
struct UnparkWaker {
    wake_count: AtomicUsize,
    goroutine: Option<Goroutine>,
    thread: std::thread::Thread,
}

impl UnparkWaker {
    fn new() -> Arc<UnparkWaker> {
        let (goroutine, thread) = (current(), std::thread::current());
        Arc::new(UnparkWaker { wake_count: AtomicUsize::new(0), goroutine, thread })
    }

    fn rings(&self) -> usize {
        self.wake_count.load(SeqCst)
    }
}

impl Wake for UnparkWaker {
    fn wake(self: Arc<UnparkWaker>) {
        self.wake_count.fetch_add(1, SeqCst);
        match &self.goroutine {
            Some(goroutine) => goroutine.unpark(),
            None => self.thread.unpark(),
        }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(UnparkWaker::new());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        park();
    }
}

// S34
#[test]
fn a_join_handle_is_a_future() {
    everywhere(|| {
        let gate = Arc::new(AtomicBool::new(false));
        let opened = gate.clone();
        let handle = go(move || {
            until("the gate is open", || opened.load(SeqCst));
            42
        });
        go(move || gate.store(true, SeqCst));
        assert_eq!(block_on(handle.into_future()).unwrap(), 42);
        assert_eq!(block_on(async { go(|| 5).await.unwrap() + go(|| 6).await.unwrap() }), 11);
        assert!(
            block_on(go(|| panic!("in a future")).into_future())
                .map(|(): ()| ())
                .unwrap_err()
                .is_panic()
        );
        assert!(block_on(go(|| goexit()).into_future()).map(|(): ()| ()).unwrap_err().is_goexit());
    });
}

/// Starts a goroutine that returns `result` once the gate is open. Returns its handle and the gate.
fn gated<T: Send + 'static>(result: T) -> (JoinHandle<T>, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = gate.clone();
    let handle = go(move || {
        until("the gate is open", || opened.load(SeqCst));
        result
    });
    (handle, gate)
}

// S34
#[test]
fn only_the_last_waker_is_called() {
    everywhere(|| {
        let (handle, gate) = gated(9);
        let mut future = handle.into_future();
        let bells: Vec<_> = (0..5).map(|_| UnparkWaker::new()).collect();
        for bell in &bells {
            let waker = Waker::from(bell.clone());
            let mut context = Context::from_waker(&waker);
            assert!(pin!(&mut future).poll(&mut context).is_pending());
            assert!(pin!(&mut future).poll(&mut context).is_pending());
        }
        gate.store(true, SeqCst);
        until("the bell rang", || bells[4].rings() == 1);
        assert!(bells[..4].iter().all(|bell| bell.rings() == 0));
        let mut context = Context::from_waker(Waker::noop());
        match pin!(&mut future).poll(&mut context) {
            Poll::Ready(result) => assert_eq!(result.unwrap(), 9),
            Poll::Pending => panic!("woken, and not ready"),
        }
        drop(future);
        until("wakers are dropped", || bells.iter().all(|bell| Arc::strong_count(bell) == 1));
    });
}

// S34
#[test]
fn a_future_dropped_while_it_waits_detaches_the_goroutine() {
    everywhere(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (handle, gate) = gated(Counted(drops.clone()));
        let mut future = handle.into_future();
        let bell = UnparkWaker::new();
        let waker = Waker::from(bell.clone());
        assert!(pin!(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        drop((future, waker));
        assert_eq!(Arc::strong_count(&bell), 1, "nobody keeps the waker");
        gate.store(true, SeqCst);
        until("its result is dropped", || drops.load(SeqCst) == 1);
        assert_eq!(bell.rings(), 0);
    });
}

// S34
#[test]
fn a_future_of_a_goroutine_that_has_ended_is_ready_at_once() {
    everywhere(|| {
        let handle = go(|| 3);
        until("it has ended", || handle.is_finished());
        let bell = UnparkWaker::new();
        let waker = Waker::from(bell.clone());
        let mut future = handle.into_future();
        assert!(pin!(&mut future).poll(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(bell.rings(), 0);
    });
}

// S34
#[test]
fn a_poll_that_races_with_the_end_is_woken_or_ready() {
    for _ in 0..2000 {
        let handle = go(|| 1);
        let bell = UnparkWaker::new();
        let waker = Waker::from(bell.clone());
        let mut future = handle.into_future();
        let mut context = Context::from_waker(&waker);
        if pin!(&mut future).poll(&mut context).is_pending() {
            let other = &mut Context::from_waker(Waker::noop());
            if pin!(&mut future).poll(other).is_ready() {
                continue;
            }
            match pin!(&mut future).poll(&mut context) {
                Poll::Ready(_) => {}
                Poll::Pending => until("the bell rang", || bell.rings() == 1),
            }
        }
    }
}

// ---- drops ----

// S24, S36
#[test]
fn closures_and_results_are_dropped_exactly_once() {
    everywhere(|| {
        let captured = Arc::new(AtomicUsize::new(0));
        let results = Arc::new(AtomicUsize::new(0));
        let make = || {
            let (captured, result) = (Counted(captured.clone()), Counted(results.clone()));
            move || {
                let _captured = &captured;
                result
            }
        };
        let check = |what: &str, n: usize| {
            let now = || (captured.load(SeqCst), results.load(SeqCst));
            until(what, || now().0 >= n && now().1 >= n);
            assert_eq!(now(), (n, n), "{what}");
        };
        drop(go(make()).join().unwrap());
        check("joined", 1);
        let (f, gate) = (make(), Arc::new(AtomicBool::new(false)));
        let opened = gate.clone();
        drop(go(move || {
            until("the gate is open", || opened.load(SeqCst));
            f()
        }));
        gate.store(true, SeqCst);
        check("detached before its end", 2);
        let handle = go(make());
        until("it has ended", || handle.is_finished());
        assert_eq!(results.load(SeqCst), 2);
        drop(handle);
        check("detached after its end", 3);
        let f = make();
        let handle = go(move || {
            let _result = f();
            panic!("dropped while unwinding");
        });
        assert!(handle.join().map(|(): ()| ()).is_err());
        check("panicked", 4);
        let f = make();
        let handle = go(move || {
            let _result = f();
            goexit();
        });
        assert!(handle.join().map(|(): ()| ()).is_err());
        check("exited", 5);
        let f = make();
        let detached: JoinHandle<()> = go(move || {
            let _result = f();
            panic!("nobody joins");
        });
        drop(detached);
        check("panicked, detached", 6);
        for _ in 0..300 {
            drop(go(make()));
        }
        check("detached at any time", 306);
    });
}

// S34
#[test]
fn the_panic_payload_of_a_detached_goroutine_is_dropped() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let detached: JoinHandle<()> = go(move || std::panic::panic_any(counted));
    drop(detached);
    until("the payload is dropped", || drops.load(SeqCst) == 1);
}

// S34
#[test]
fn a_result_whose_destructor_panics_does_not_end_the_process() {
    let (out, error) = ends_with("result that panics when dropped", 0);
    let expected =
        "joined: true 1\ndetached before: 2\ndetached after: 3\ncaptured: true 4\nall over\n";
    assert_eq!(out, expected, "{error}");
}

// ---- stacks, threads ----

#[inline(never)]
fn deep(left: usize) -> usize {
    let frame = black_box([left; 64]);
    if left == 0 { 0 } else { black_box(deep(left - 1) + usize::from(frame[5] == left)) }
}

// S6, S35
#[test]
fn with_stack_has_room_for_a_deep_recursion() {
    everywhere(|| {
        let id = gosched::id();
        let depth = with_stack(128 << 20, || {
            assert_eq!(gosched::id(), id);
            deep(50_000)
        });
        assert_eq!(depth.unwrap(), 50_000);
    });
}

// S6
#[test]
fn panics_and_goexit_pass_through_with_stack() {
    everywhere(|| {
        for _ in 0..20 {
            let text = panic_text(|| with_stack(1 << 20, || panic!("through")).map(|(): ()| ()));
            assert_eq!(text, "through");
            assert_eq!(with_stack(1 << 20, || 8).unwrap(), 8);
        }
        let exited = go(|| with_stack(1 << 20, || goexit()).map(|(): ()| ())).join();
        assert!(exited.unwrap_err().is_goexit());
    });
}

// S6, S15
#[test]
fn a_goroutine_can_wait_and_move_inside_with_stack() {
    everywhere(|| {
        let handles: Vec<_> = (0..50)
            .map(|i| {
                go(move || {
                    let inside = with_stack(1 << 20, || {
                        park();
                        let below = with_stack(1 << 20, || {
                            yield_now();
                            deep(500) + go(|| 1).join().unwrap()
                        });
                        park();
                        below.unwrap()
                    });
                    inside.unwrap() + i
                })
            })
            .collect();
        for (i, handle) in handles.into_iter().enumerate() {
            while !handle.is_finished() {
                handle.goroutine().unpark();
                yield_now();
            }
            assert_eq!(handle.join().unwrap(), 501 + i);
        }
    });
}

// S6
#[test]
fn with_stack_may_borrow_and_keeps_the_thread_locals() {
    thread_local!(static HERE: Cell<i32> = const { Cell::new(0) });
    everywhere(|| {
        HERE.set(5);
        let mut list = vec![1];
        with_stack(1 << 20, || {
            assert_eq!(HERE.get(), 5);
            HERE.set(6);
            list.push(2);
        })
        .unwrap();
        assert_eq!((HERE.get(), list), (6, vec![1, 2]));
    });
}

// S37
#[cfg(not(feature = "threads"))]
#[test]
fn host_runs_with_the_identity_of_the_os_thread() {
    thread_local!(static VALUE: Cell<i32> = const { Cell::new(0) });
    run(|| {
        lock_os_thread();
        VALUE.set(1);
        let kernel = thread();
        let mine = std::thread::current().id();
        let first = host(|| {
            assert_eq!(VALUE.get(), 0, "the thread's own");
            VALUE.set(2);
            (thread(), std::thread::current().id())
        });
        assert_eq!(first.0, kernel);
        assert_ne!(first.1, mine);
        for _ in 0..10 {
            yield_now();
            assert_eq!(VALUE.get(), 1);
            assert_eq!(host(|| VALUE.get()), 2);
            assert_eq!(host(|| (thread(), std::thread::current().id())), first);
        }
        unlock_os_thread();
        assert_eq!(panic_text(|| host(|| panic!("out of host"))), "out of host");
        assert_eq!(host(|| 1) + host(|| host(|| 2)), 3);
    });
    VALUE.set(3);
    assert_eq!(host(|| VALUE.get()), 3, "on an ordinary thread it is a call");
}

/// Starts goroutines that count how often they run on the thread `forbidden`, until `stop` is set.
fn churn(stop: &Arc<AtomicBool>, forbidden: &Arc<AtomicI32>) -> Vec<JoinHandle<usize>> {
    (0..20)
        .map(|_| {
            let (stop, forbidden) = (stop.clone(), forbidden.clone());
            go(move || {
                let mut seen = 0;
                while !stop.load(SeqCst) {
                    seen += usize::from(thread() == forbidden.load(SeqCst));
                    drop(go(|| ()));
                    yield_now();
                }
                seen
            })
        })
        .collect()
}

fn intruders(stop: &AtomicBool, others: Vec<JoinHandle<usize>>) -> usize {
    stop.store(true, SeqCst);
    others.into_iter().map(|other| other.join().unwrap()).sum()
}

/// A goroutine locked to its thread stays on that thread, and no other goroutine runs there.
fn locked() {
    let (stop, forbidden) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI32::new(0)));
    let others = churn(&stop, &forbidden);
    let tied = go({
        let forbidden = forbidden.clone();
        move || {
            lock_os_thread();
            let here = thread();
            forbidden.store(here, SeqCst);
            for i in 0..300 {
                if i % 3 == 0 {
                    let me = current().unwrap();
                    go(move || me.unpark());
                    park();
                } else if i % 3 == 1 {
                    go(|| ()).join().unwrap();
                } else {
                    yield_now();
                }
                assert_eq!(thread(), here);
            }
            forbidden.store(0, SeqCst);
            unlock_os_thread();
        }
    });
    tied.join().unwrap();
    assert_eq!(intruders(&stop, others), 0);
}

// S43, S45
#[test]
fn a_locked_goroutine_keeps_its_thread_and_does_not_share_it() {
    passes("locked");
}

/// Two locks need two unlocks; one unlock too many does nothing.
fn locked_twice() {
    let (stop, forbidden) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI32::new(0)));
    let others = churn(&stop, &forbidden);
    let tied = go({
        let forbidden = forbidden.clone();
        move || {
            unlock_os_thread();
            lock_os_thread();
            lock_os_thread();
            unlock_os_thread();
            let here = thread();
            forbidden.store(here, SeqCst);
            for _ in 0..300 {
                yield_now();
                assert_eq!(thread(), here);
            }
            forbidden.store(0, SeqCst);
            unlock_os_thread();
            unlock_os_thread();
            for _ in 0..300 {
                yield_now();
            }
        }
    });
    tied.join().unwrap();
    assert_eq!(intruders(&stop, others), 0);
}

// S43
#[test]
fn locks_to_a_thread_nest() {
    passes("locked twice");
}

/// A goroutine that ends while locked to its thread ends the thread, whether by return, panic or
/// goexit.
fn locked_end() {
    for round in 0..10 {
        let handles: Vec<_> = (0..10)
            .map(|i| {
                let tell = Arc::new(AtomicI32::new(0));
                let told = tell.clone();
                let handle = go(move || {
                    lock_os_thread();
                    tell.store(thread(), SeqCst);
                    park();
                    match i % 3 {
                        0 => panic!("locked, round {round}"),
                        1 => goexit(),
                        _ => {}
                    }
                });
                (handle, told)
            })
            .collect();
        let mut threads = HashSet::new();
        for (_, told) in &handles {
            until("it is tied", || told.load(SeqCst) != 0);
            assert!(threads.insert(told.load(SeqCst)), "a thread each");
        }
        let most = runtime::num_threads();
        assert!(most >= 10);
        for (handle, _) in handles {
            handle.goroutine().unpark();
            let _ = handle.join();
        }
        // None of these is the main thread, which cannot end: it waits in `run`.
        for gone in threads {
            until("the thread ends", || {
                !std::path::Path::new(&format!("/proc/self/task/{gone}")).exists()
            });
        }
        until("they are not counted", || runtime::num_threads() < most);
    }
    assert_eq!(go(|| 1).join().unwrap(), 1);
}

// S45, A.16.9
#[test]
fn a_goroutine_that_ends_while_locked_ends_its_thread() {
    passes("locked end");
}

// ---- the runtime as a whole ----

/// At most `procs` goroutines are between two waits at any time, plus those whose thread blocked in
/// a page fault: their P was handed off.
fn at_most_procs() {
    let procs = runtime::procs();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handles: Vec<_> = (0..64)
        .map(|i| {
            let (now, most) = (now.clone(), most.clone());
            go(move || {
                for _ in 0..200 {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    black_box(deep(20));
                    now.fetch_sub(1, SeqCst);
                    if i % 4 == 0 {
                        go(|| ()).join().unwrap();
                    } else {
                        yield_now();
                    }
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    let most = most.load(SeqCst);
    let (marked, unmarked) = gosched::__rules::hand_offs();
    let allowed = procs + (marked + unmarked) as usize;
    assert!(most <= allowed, "{most} at once on {procs} Ps, {unmarked} hand-offs");
}

// S57, S49
#[cfg(not(feature = "threads"))]
#[test]
fn at_most_procs_goroutines_run_at_once() {
    for procs in 1..=4 {
        let mut command = children::command("at most procs");
        // A preempted goroutine is between two waits but does not run.
        command.env("GOMAXPROCS", procs.to_string()).env("GODEBUG", "asyncpreemptoff=1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{procs} Ps: {}", children::stderr(&output));
    }
}

/// Changes the number of Ps up and down while goroutines start, end, yield, park and join.
fn resize() {
    const GOROUTINES: usize = 400;
    let stop = Arc::new(AtomicBool::new(false));
    let resizes = Arc::new(AtomicUsize::new(0));
    let from_thread = std::thread::spawn({
        let (stop, resizes) = (stop.clone(), resizes.clone());
        move || {
            while !stop.load(SeqCst) {
                let resizes = resizes.fetch_add(1, SeqCst);
                runtime::set_procs(1 + resizes * 5 % 8);
            }
        }
    });
    until("the thread resizes", || resizes.load(SeqCst) > 0);
    let total: usize = run(|| {
        let handles: Vec<_> = (0..GOROUTINES)
            .map(|i| {
                go(move || {
                    let mut sum = 0;
                    for round in 0..30 {
                        match (i + round) % 4 {
                            0 => yield_now(),
                            1 => sum += go(|| 1).join().unwrap() - 1,
                            2 => {
                                let me = current().unwrap();
                                go(move || me.unpark());
                                park();
                            }
                            _ if i == 0 => drop(runtime::set_procs(1 + round % 8)),
                            _ => {}
                        }
                        sum += 1;
                    }
                    sum
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum()
    });
    stop.store(true, SeqCst);
    from_thread.join().unwrap();
    assert_eq!(total, GOROUTINES * 30);
    let before = runtime::set_procs(3);
    assert!((1..=8).contains(&before));
    assert_eq!(runtime::procs(), 3);
    assert_eq!(runtime::set_procs(1), 3);
    assert_eq!(run(|| runtime::set_procs(2)), 1);
    assert_eq!(run(runtime::procs), 2);
}

// S56, S191, S54
#[test]
fn set_procs_up_and_down_under_load_loses_nothing() {
    passes("resize");
}

/// The initial number of Ps comes from the environment; `set_procs(0)` panics.
fn asks_for_procs() {
    let wanted: usize = std::env::var("GOMAXPROCS").unwrap().parse().unwrap();
    assert_eq!(runtime::procs(), wanted);
    let text = panic_text(|| runtime::set_procs(0));
    assert!(text.contains("set_procs") && text.contains("procs()"), "the remedy: {text}");
    let text = panic_text(|| run(|| runtime::set_procs(0)));
    assert!(text.contains("set_procs") && text.contains("procs()"), "the remedy: {text}");
    assert_eq!(runtime::procs(), wanted);
    assert!(runtime::num_cpu() >= 1);
    assert_eq!(run(|| go(|| 5).join().unwrap()), 5);
}

// S54, S55, S56
#[test]
fn procs_come_from_the_environment_and_zero_is_refused() {
    passes("asks for procs");
    passes_with("asks for procs", 100);
}

// S55, S56
#[test]
fn an_invalid_gomaxprocs_is_ignored() {
    for wrong in ["0", "-3", "many", "", "99999999999999999999"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sched_program"));
        let output = command.arg("unit").env("GOMAXPROCS", wrong).output().unwrap();
        assert!(output.status.success(), "{wrong}: {}", children::stderr(&output));
    }
}

/// The number of goroutines returns to its initial value.
fn counts() {
    assert_eq!(runtime::num_goroutines(), 0);
    run(|| {
        assert_eq!(runtime::num_goroutines(), 1);
        for round in 0..20 {
            let handles: Vec<_> = (0..100)
                .map(|i| {
                    go(move || {
                        park();
                        match i % 3 {
                            0 => panic!("counted, round {round}"),
                            1 => goexit(),
                            _ => {}
                        }
                    })
                })
                .collect();
            assert_eq!(runtime::num_goroutines(), 101);
            for handle in handles {
                handle.goroutine().unpark();
                let _ = handle.join();
            }
            until("all are gone", || runtime::num_goroutines() == 1);
        }
        assert!(runtime::num_threads() >= 1);
    });
    until("none is left", || runtime::num_goroutines() == 0);
}

// S19, S25
#[test]
fn the_number_of_goroutines_returns_to_its_initial_value() {
    passes("counts");
}

// ---- thread-locals ----

// S39, S15
#[test]
fn each_goroutine_has_its_own_thread_locals_which_are_destroyed_before_join_returns() {
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
        static LIST: RefCell<Vec<Counted>> = const { RefCell::new(vec![]) };
    }
    everywhere(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        for round in 1..=100 {
            let counted = Counted(drops.clone());
            go(move || {
                assert_eq!(NUMBER.get(), 0, "fresh, though the stack is used again");
                LIST.with_borrow_mut(|list| {
                    assert!(list.is_empty());
                    list.push(counted);
                });
                NUMBER.set(round);
                for _ in 0..3 {
                    yield_now();
                    assert_eq!(NUMBER.get(), round);
                }
            })
            .join()
            .unwrap();
            assert_eq!(drops.load(SeqCst), round, "destroyed before join returned");
        }
    });
}

// S39
#[test]
fn thread_locals_are_destroyed_after_a_panic_or_a_goexit() {
    thread_local!(static KEEP: RefCell<Option<Counted>> = const { RefCell::new(None) });
    let drops = Arc::new(AtomicUsize::new(0));
    for end in 1..=20 {
        let counted = Counted(drops.clone());
        let result = go(move || {
            KEEP.set(Some(counted));
            if end % 2 == 0 {
                panic!("with a thread-local");
            }
            goexit();
        })
        .join()
        .map(|(): ()| ());
        assert!(result.is_err());
        assert_eq!(drops.load(SeqCst), end);
    }
}

// ---- #[gosched::main] ----

// S160
#[test]
fn returning_from_main_ends_the_program_with_main_s_result() {
    assert_eq!(ends_with("unit", 0).0, "in main\n");
    ends_with("ok", 0);
    ends_with("code", 7);
    let (_, error) = ends_with("error", 1);
    assert!(error.starts_with("Error: ParseIntError { kind: InvalidDigit }"), "{error}");
    let (_, error) = ends_with("panics", 101);
    assert!(error.contains("goroutine 1 panicked at "), "{error}");
    assert_eq!(error.matches("main is over").count(), 1, "{error}");
}

// S160
#[test]
fn returning_from_main_ends_the_program_while_other_goroutines_run() {
    for _ in 0..20 {
        assert_eq!(ends_with("leaves others", 0).0, "leaving\n");
    }
    assert_eq!(ends_with("leaves a tail", 0).0, "no end of line", "std's buffers are flushed");
}

// S54
#[test]
fn main_takes_options() {
    assert_eq!(ends_with("five procs", 0).0, "procs 5\n");
    assert_eq!(ends_with("big stack", 0).0, "depth 20000\n");
}

// ---- #[gosched::test] ----

/// Environment variable that makes a test misbehave; set in a child process.
const MISBEHAVE: &str = "GOSCHED_TEST_MISBEHAVES";

fn is_to_misbehave() -> bool {
    std::env::var_os(MISBEHAVE).is_some()
}

fn misbehaves(test: &str) -> (Option<i32>, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored"]);
    command.env(MISBEHAVE, "1").env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    (output.status.code(), stdout(&output) + &children::stderr(&output))
}

#[gosched::test]
fn a_test_is_a_goroutine() {
    assert!(gosched::id().is_some());
    assert_eq!(go(|| 3).join().unwrap(), 3);
}

#[gosched::test(timeout = 120)]
fn a_test_may_return_an_error() -> Result<(), Box<dyn std::error::Error>> {
    if is_to_misbehave() {
        return Err("as asked".into());
    }
    Ok(())
}

#[gosched::test]
#[should_panic(expected = "as it should")]
fn a_test_may_expect_a_panic() {
    panic!("as it should");
}

#[gosched::test(timeout = 0.5)]
#[ignore = "a slow machine may need longer for nothing: it is run where it is to fail"]
fn a_test_has_a_time_limit() {
    while is_to_misbehave() {
        yield_now();
    }
}

#[gosched::test(timeout = 0.5)]
#[ignore = "as above"]
fn a_test_that_parks_has_a_time_limit() {
    if is_to_misbehave() {
        park();
    }
}

#[gosched::test]
fn a_test_that_leaves_a_goroutine_behind_fails() {
    if is_to_misbehave() {
        drop(Builder::new().name("left").go(park));
    }
}

#[gosched::test(leaks = allow)]
fn a_test_may_leave_goroutines_behind_with_leaks_allow() {
    drop(go(|| {
        for _ in 0..100 {
            yield_now();
        }
    }));
}

// #[gosched::test]
#[test]
fn a_test_that_misbehaves_fails_with_the_reason() {
    for (test, messages) in [
        ("a_test_may_return_an_error", vec!["as asked"]),
        ("a_test_has_a_time_limit", vec!["did not end within"]),
        ("a_test_that_parks_has_a_time_limit", vec!["did not end within"]),
        // The message contains a dump of the goroutine.
        (
            "a_test_that_leaves_a_goroutine_behind_fails",
            vec!["left 1 goroutines behind", "[park] {name: left}:"],
        ),
    ] {
        let (status, text) = misbehaves(test);
        assert_eq!(status, Some(101), "{test}: {text}");
        for message in messages {
            assert!(text.contains(message), "{test}: {text}");
        }
    }
}
