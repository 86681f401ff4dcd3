//! Preemption at the start and at the end of goroutines, on stacks that are not their own, and
//! while the program changes or ends.

use crate::harness::{self, Heartbeat, MILLI, burn, burn_micros, hogs, is_over, spawn_group};
use crate::{fork, memory};
use gosched::{
    __rules as rules, Builder, go, host, lock_os_thread, runtime, time, unlock_os_thread,
    with_stack,
};
use gosched_fiber::{Routine, Size, Status};
use gosched_tests::alloc_blocks::Random;
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// At the same time, the number of Ps changes, the world stops, goroutines end, and a thread reads
/// the runtime's counters.
pub(crate) fn resize() {
    let all = hogs(8);
    let started = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicU64::new(0));
    let counts = (started.clone(), ended.clone());
    let parents =
        spawn_group("a goroutine that starts others", 3, move |number, lane: &Heartbeat| {
            let mut random = Random::new(number as u64);
            while !is_over() || lane.steps() == 0 {
                let (ended, micros) = (counts.1.clone(), random.below(1500) as u64);
                counts.0.fetch_add(1, SeqCst);
                let child = go(move || {
                    burn_micros(micros);
                    ended.fetch_add(1, SeqCst);
                });
                child.join().unwrap();
                lane.step();
            }
        });
    let looks = std::thread::spawn(|| {
        let lane = Heartbeat::new("a thread that looks");
        while !is_over() || lane.steps() == 0 {
            assert!(runtime::num_goroutines() > 0 && runtime::num_threads() > 0);
            burn(1000);
            lane.step();
        }
    });
    let changes =
        spawn_group("a goroutine that changes the number of Ps", 1, |_, lane: &Heartbeat| {
            while !is_over() || lane.steps() <= 10 {
                let procs = 1 + lane.steps() as usize % 5;
                runtime::set_procs(procs);
                assert_eq!(runtime::procs(), procs);
                rules::with_world_stopped(|| ());
                lane.step();
                time::sleep(MILLI / 2);
            }
            lane.steps()
        });
    harness::wait_and_stop();
    let changes = changes.join()[0];
    all.join();
    parents.join();
    looks.join().unwrap();
    assert_eq!(started.load(SeqCst), ended.load(SeqCst));
    println!("changes {changes} started {}", started.load(SeqCst));
}

/// The process ends while goroutines compute, allocate, write, start goroutines and are preempted.
pub(crate) fn exit(how: &str) {
    hogs(4);
    spawn_group("a goroutine in malloc", 4, memory::take_and_give);
    spawn_group("a goroutine that writes", 2, |_, lane: &Heartbeat| {
        loop {
            eprintln!("beside");
            burn(1000);
            lane.step();
        }
    });
    spawn_group("a goroutine that starts others", 2, |_, lane: &Heartbeat| {
        loop {
            go(|| burn(20_000)).join().unwrap();
            lane.step();
        }
    });
    time::sleep(15 * MILLI);
    println!("ends");
    match how {
        "exit" => std::process::exit(0),
        // SAFETY: what `std::process::exit` does, without std.
        "C" => unsafe { libc::exit(0) },
        "return" => {}
        other => panic!("no way {other}"),
    }
}

/// Starts thousands of short-lived goroutines.
pub(crate) fn short() {
    let total = Arc::new(AtomicU64::new(0));
    let its_total = total.clone();
    let parents = spawn_group(
        "a goroutine that starts others",
        2 * runtime::procs() + 2,
        move |number, lane: &Heartbeat| {
            let mut random = Random::new(number as u64);
            let mut started = 0;
            while !is_over() || lane.steps() == 0 {
                let children: Vec<_> = (0..100)
                    .map(|_| {
                        let most = if random.below(10) == 0 { 600 } else { 30 };
                        let (total, micros) = (its_total.clone(), random.below(most) as u64);
                        go(move || {
                            burn_micros(micros);
                            total.fetch_add(1, SeqCst);
                        })
                    })
                    .collect();
                started += children.len() as u64;
                children.into_iter().for_each(|child| child.join().unwrap());
                lane.step();
            }
            started
        },
    );
    harness::wait_and_stop();
    let started: u64 = parents.join().iter().sum();
    assert_eq!(started, total.load(SeqCst));
    println!("started {started}");
}

static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// A thread-local with a slow destructor.
struct Slow(u64);

impl Drop for Slow {
    fn drop(&mut self) {
        let before = self.0;
        burn_micros(400);
        let text = format!("{before}");
        assert_eq!(text.parse(), Ok(black_box(self.0)));
        DESTROYED.fetch_add(1, SeqCst);
    }
}

thread_local! {
    static SLOW: RefCell<Option<Slow>> = const { RefCell::new(None) };
}

/// Goroutines are preempted in the destructors of thread-locals, at their end.
pub(crate) fn destructors() {
    let parents = spawn_group(
        "a goroutine whose children end slowly",
        2 * runtime::procs() + 2,
        |number, lane: &Heartbeat| {
            while !is_over() || lane.steps() == 0 {
                let value = (number as u64) << 32 | lane.steps();
                let child = move || {
                    SLOW.set(Some(Slow(value)));
                    burn(100);
                    SLOW.with_borrow(|slow| {
                        assert_eq!(slow.as_ref().map(|slow| slow.0), Some(value))
                    });
                };
                go(child).join().unwrap();
                lane.step();
            }
            lane.steps()
        },
    );
    harness::wait_for_and_stop(|_| DESTROYED.load(SeqCst) > 10);
    let ended: u64 = parents.join().iter().sum();
    assert_eq!(ended, DESTROYED.load(SeqCst));
    println!("ended {ended}");
}

/// Computes, without a call into the runtime, until all goroutines have arrived. Without preemption
/// this takes forever if there are more goroutines than Ps.
fn meet(others: &AtomicUsize) {
    others.fetch_sub(1, SeqCst);
    while others.load(SeqCst) > 0 {
        burn(1000);
    }
}

/// In each round, more goroutines than there are Ps compute in the given place until all have
/// arrived.
pub(crate) fn place(place: &str, rounds: usize) {
    let place: &'static str = place.to_owned().leak();
    let lane = Heartbeat::new("somebody who computes in a place of its own");
    for _ in 0..rounds {
        let others = Arc::new(AtomicUsize::new(2 * runtime::procs()));
        let inside: Vec<_> = (0..2 * runtime::procs())
            .map(|_| {
                let others = others.clone();
                go(move || compute_in(place, others))
            })
            .collect();
        inside.into_iter().for_each(|handle| handle.join().unwrap());
        lane.step();
    }
    println!("rounds {}", lane.steps());
}

fn compute_in(place: &str, others: Arc<AtomicUsize>) {
    match place {
        "stack" => with_stack(256 << 10, || meet(&others)).unwrap(),
        "host" => host(|| meet(&others)),
        "forked" => {
            fork::forked(|| 0).unwrap();
            meet(&others);
        }
        "locked" => {
            lock_os_thread();
            let thread = host(|| std::thread::current().id());
            meet(&others);
            assert_eq!(host(|| std::thread::current().id()), thread);
            unlock_os_thread();
        }
        "routine" => {
            let size = Size::from_environment().unwrap();
            let mut routine = Routine::new(size, move || {
                meet(&others);
                gosched_fiber::suspend();
                77
            });
            assert_eq!(routine.resume().unwrap(), Status::Suspended);
            burn(1000);
            assert_eq!(routine.resume().unwrap(), Status::Finished);
            assert_eq!(routine.into_result().unwrap().unwrap(), 77);
        }
        other => panic!("no place {other}"),
    }
}

/// Recurses until less than `left` bytes of stack remain, and checks the contents of each frame on
/// return.
#[inline(never)]
fn descend(end: usize, left: usize, depth: u64) -> u64 {
    let frame = black_box([depth ^ 0x5555; 12]);
    let here = frame.as_ptr().addr();
    let below =
        if here - end < left { burn_micros(500).min(1) } else { descend(end, left, depth + 1) };
    assert!(black_box(frame).iter().all(|&word| word == depth ^ 0x5555), "a frame has changed");
    below + 1
}

/// Returns the lowest address of the calling goroutine's stack, as libc reports it.
fn end_of_the_stack() -> usize {
    // SAFETY: all-zero attributes, written below.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: has no precondition.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the caller's own thread; the attributes are ours to write.
    assert_eq!(unsafe { libc::pthread_getattr_np(own, &mut attributes) }, 0);
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: attributes initialized above.
    assert_eq!(unsafe { libc::pthread_attr_getstack(&attributes, &mut start, &mut size) }, 0);
    // SAFETY: the attributes are not used again.
    unsafe { libc::pthread_attr_destroy(&mut attributes) };
    start.addr()
}

/// Goroutines are preempted near the end of a small stack: of the requested size, or of the whole
/// stack.
pub(crate) fn deep(all_there_is: bool) {
    const SIZE: usize = 64 << 10;
    const LEFT: usize = if cfg!(debug_assertions) { 3 << 10 } else { 2 << 10 };
    let parents = spawn_group(
        "a goroutine whose children go deep",
        2 * runtime::procs() + 2,
        move |_, lane: &Heartbeat| {
            while !is_over() || lane.steps() == 0 {
                let child = move || {
                    let mark = 0u8;
                    let top = black_box(&raw const mark).addr();
                    let end = if all_there_is { end_of_the_stack() } else { top - SIZE };
                    descend(end, LEFT, 0)
                };
                let child = Builder::new().stack_size(SIZE).go(child).unwrap();
                assert!(child.join().unwrap() > 20);
                lane.step();
            }
            lane.steps()
        },
    );
    harness::wait_and_stop();
    println!("least {}", parents.join().iter().min().unwrap());
}
