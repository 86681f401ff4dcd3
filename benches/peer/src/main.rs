//! gosched's peer in the suite that compares it with Go, tokio, may and smol.
//!
//! Each workload takes the same steps in every peer, with the parts of the library that a program
//! would use. The printed line names these parts.

mod blocking;
mod channels;
mod common;
mod http;
mod load;
mod locks;
mod preempt;
mod tcp;
mod ticks;
mod timers;
mod wait_group;

use common::{Asked, Measured, Workload, timed};
use gosched::{Goroutine, JoinHandle, go, park, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wait_group::WaitGroup;

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "yield_2",
        default_n: 2_000_000,
        expected: |n| n / 2 * 2,
        run: |n| yields(n, 2),
    },
    Workload {
        name: "yield_1000",
        default_n: 2_000_000,
        expected: |n| n / 1000 * 1000,
        run: |n| yields(n, 1000),
    },
    Workload {
        name: "spawn_join",
        default_n: 200_000,
        expected: common::sum_below,
        run: spawn_join,
    },
    Workload {
        name: "spawn_many",
        default_n: 100_000,
        expected: common::sum_below,
        run: |n| add_up(n, |i| i),
    },
    Workload {
        name: "chan_pingpong",
        default_n: 300_000,
        expected: |n| n,
        run: channels::ping_pong,
    },
    Workload {
        name: "chan_buf",
        default_n: 2_000_000,
        expected: common::sum_below,
        run: channels::buffered,
    },
    Workload {
        name: "chan_mpmc",
        default_n: 1_000_000,
        expected: channels::many_sum,
        run: channels::many,
    },
    Workload {
        name: "ring",
        default_n: 1_000_000,
        expected: channels::ring_last,
        run: channels::ring,
    },
    Workload {
        name: "sieve",
        default_n: 2_000,
        expected: channels::sieve_prime,
        run: channels::sieve,
    },
    Workload {
        name: "skynet",
        default_n: 1_000_000,
        expected: common::sum_below,
        run: channels::skynet,
    },
    Workload {
        name: "select_2",
        default_n: 500_000,
        expected: |n| 2 * common::sum_below(n / 2),
        run: |n| channels::selects(n, 2),
    },
    Workload {
        name: "select_4",
        default_n: 500_000,
        expected: |n| 4 * common::sum_below(n / 4),
        run: |n| channels::selects(n, 4),
    },
    Workload {
        name: "mutex_uncontended",
        default_n: 10_000_000,
        expected: |n| n,
        run: locks::uncontended,
    },
    Workload {
        name: "mutex_contended",
        default_n: 1_000_000,
        expected: |n| n / locks::TASKS * locks::TASKS,
        run: locks::contended,
    },
    Workload { name: "timer_churn", default_n: 1_000_000, expected: |n| n, run: timers::churn },
    Workload { name: "timers_sleep", default_n: 1_000_000, expected: |n| n, run: timers::sleepers },
    Workload {
        name: "pread",
        default_n: 200_000,
        expected: blocking::reads_of,
        run: blocking::reads,
    },
    Workload {
        name: "blocking_raw",
        default_n: 32,
        expected: |n| n,
        run: |n| blocking::calls(n, false),
    },
    Workload {
        name: "blocking_marked",
        default_n: 32,
        expected: |n| n,
        run: |n| blocking::calls(n, true),
    },
    Workload { name: "preempt", default_n: 1, expected: |n| n, run: preempt::hogs },
    Workload { name: "mem", default_n: 100_000, expected: |n| n, run: mem },
    Workload {
        name: "steal",
        default_n: 10_000,
        expected: common::steal_sum,
        run: |n| add_up(n, |i| common::work(i, common::STEAL_STEPS)),
    },
    Workload { name: "tcp_echo_1", default_n: 50_000, expected: |n| n, run: |n| tcp::echo(n, 1) },
    Workload {
        name: "tcp_echo_64",
        default_n: 200_000,
        expected: |n| n / 64 * 64,
        run: |n| tcp::echo(n, 64),
    },
    Workload {
        name: "tcp_echo_1000",
        default_n: 200_000,
        expected: |n| n / 1000 * 1000,
        run: |n| tcp::echo(n, 1000),
    },
    Workload { name: "tcp_busy", default_n: 1, expected: |n| n, run: tcp::busy },
    Workload { name: "tcp_idle", default_n: 10_000, expected: |n| n, run: tcp::idle },
    Workload { name: "http", default_n: 0, expected: http::requests_of, run: http::hello },
    Workload {
        name: "http_hyper",
        default_n: 0,
        expected: http::requests_of,
        run: http::hyper_hello,
    },
    Workload { name: "latency_load", default_n: 10_000, expected: |n| n, run: load::ring },
    Workload { name: "fib", default_n: 30, expected: common::fib_number, run: fib },
];

/// The allocator that `#[gosched::main]` would install.
#[global_allocator]
static ALLOC: gosched::alloc::Alloc = gosched::alloc::Alloc::new();

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(tcp::CLIENTS) {
        return tcp::idle_clients(words).expect("connections");
    }
    let asked = Asked::from_command_line(WORKLOADS);
    gosched::runtime::set_procs(asked.procs);
    asked.drive(|workload, n| gosched::run(|| workload(n)));
}

/// Returns the result of a task. Only a bug can keep a task from returning.
fn join<T>(handle: JoinHandle<T>) -> T {
    match handle.join() {
        Ok(result) => result,
        Err(why) => panic!("a task of the workload did not return: {why}"),
    }
}

fn yields(n: u64, tasks: u64) -> Measured {
    let each = n / tasks;
    let task = move || {
        let mut count = 0;
        for _ in 0..each {
            yield_now();
            count += 1;
        }
        black_box(count)
    };
    let count = timed(|| {
        let handles: Vec<JoinHandle<u64>> = (0..tasks).map(|_| go(task)).collect();
        handles.into_iter().map(join).sum()
    });
    Measured::new(each * tasks, count).with("join", "JoinHandle")
}

fn spawn_join(n: u64) -> Measured {
    let sum = timed(|| (0..n).map(|i| join(go(move || black_box(i)))).sum());
    Measured::new(n, sum).with("join", "JoinHandle")
}

/// Starts `n` tasks, each of which adds its value to one sum, and waits for all of them.
fn add_up(n: u64, value: impl Fn(u64) -> u64 + Copy + Send + 'static) -> Measured {
    let sum = timed(|| {
        let (all, sum) = (WaitGroup::new(n), Arc::new(AtomicU64::new(0)));
        for i in 0..n {
            let (all, sum) = (all.clone(), sum.clone());
            go(move || {
                sum.fetch_add(value(i), Ordering::Relaxed);
                all.done();
            });
        }
        all.wait();
        sum.load(Ordering::Relaxed)
    });
    Measured::new(n, sum).with("join", WaitGroup::HOW)
}

fn mem(n: u64) -> Measured {
    let (started, ended) = (WaitGroup::new(n), WaitGroup::new(n));
    // Allocated in advance, so that growth of the list does not count as memory of the tasks.
    let mut tasks = Vec::with_capacity(n as usize);
    let before = common::resident();
    let ((), spawned) = timed(|| {
        for _ in 0..n {
            let (started, ended) = (started.clone(), ended.clone());
            let task = go(move || {
                started.done();
                park();
                ended.done();
            });
            tasks.push(task.goroutine().clone());
        }
        started.wait();
    });
    // Blocks this goroutine's thread. No other goroutine could run on it: all are parked.
    std::thread::sleep(common::SETTLE);
    let memory = common::resident().saturating_sub(before);
    // The result is the number of tasks that are parked: no task may continue by itself. The last
    // wait then checks that every task continues once it is unparked.
    let parked = ended.left();
    let ((), woken) = timed(|| {
        tasks.iter().for_each(Goroutine::unpark);
        ended.wait();
    });
    Measured::new(n, (parked, spawned))
        .and("rss_per_task", memory as f64 / n as f64)
        .and("wake_ns_per_task", woken.as_nanos() as f64 / n as f64)
        .with("how", "park; unpark of each, from a list of 32 bytes a task")
        .with("join", WaitGroup::HOW)
}

fn fib(n: u64) -> Measured {
    Measured::new(common::fib_tasks(n), timed(|| forked(n))).with("join", "JoinHandle")
}

fn forked(n: u64) -> u64 {
    if n <= common::FIB_LEAF {
        return common::fib_leaf(n);
    }
    let one_less = go(move || forked(n - 1));
    let two_less = forked(n - 2);
    join(one_less) + two_less
}
