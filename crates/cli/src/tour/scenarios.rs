//! The scenarios: each is a real program on the real scheduler, and the rule that its events must
//! keep. This module never draws: `screen` and `page` do.

use super::show::{Act, Failure, Names, Show};
use super::stage::Stage;
use gosched::debug::events::{self, Event, EventKind, Recording};
use gosched::{GoId, chan, go, runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod blocking;
mod identity;
mod many;
mod one_p;
mod parallel;
mod ping_pong;
mod preemption;

/// A stop of the tour.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The title.
    pub(crate) title: &'static str,
    /// The rule that the scenario shows.
    pub(crate) rule: &'static str,
    /// Where Go's scheduler has this rule.
    pub(crate) go: &'static [GoLine],
    /// Runs the program and checks its events.
    pub(crate) run: fn(&Stage) -> Result<Act, Failure>,
}

/// A line of Go's package `runtime`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoLine {
    pub(crate) file: &'static str,
    pub(crate) line: u32,
    /// What stands in that line: the name of a function, or an expression.
    pub(crate) what: &'static str,
}

/// The version of Go whose lines are named.
pub(crate) const GO_VERSION: &str = "1.27.3";

const fn proc_go(line: u32, what: &'static str) -> GoLine {
    GoLine { file: "proc.go", line, what }
}

const NEWPROC: GoLine = proc_go(5334, "newproc");
const RUNQPUT: GoLine = proc_go(7529, "runqput");
const RETAKE: GoLine = proc_go(6681, "retake");
const HANDOFFP: GoLine = proc_go(3146, "handoffp");
const SYSMON: GoLine = proc_go(6537, "sysmon");
const GOPARK: GoLine = proc_go(457, "gopark");
const GOREADY: GoLine = proc_go(493, "goready");
const PREEMPTONE: GoLine = proc_go(6917, "preemptone");
const ASYNC_PREEMPT: GoLine = GoLine { file: "preempt.go", line: 317, what: "asyncPreempt2" };

/// All scenarios, in the order of the tour.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        title: "A new goroutine stays with its P",
        rule: "A goroutine that starts another puts it into run_next of its own P: the new \
               goroutine runs next, where its data is still in the cache.",
        go: &[NEWPROC, RUNQPUT],
        run: one_p::locality,
    },
    Scenario {
        title: "A thread is used again",
        rule: "When a goroutine ends, its thread does not end: it takes the next goroutine from the \
               queue of its P.",
        go: &[proc_go(4506, "goexit0"), proc_go(4150, "schedule"), proc_go(3346, "execute")],
        run: one_p::reuse,
    },
    Scenario {
        title: "The queue of a P fills up",
        rule: "A new goroutine takes run_next, and the goroutine that was there goes to the tail of \
               the P's queue. The queue holds 256; only its ends are drawn here.",
        go: &[RUNQPUT],
        run: one_p::fill,
    },
    Scenario {
        title: "A full queue spills",
        rule: "When the queue is full, its older half goes to the global queue, and with it the \
               goroutine that did not fit.",
        go: &[proc_go(7575, "runqputslow"), proc_go(7323, "globrunqputbatch")],
        run: one_p::spill,
    },
    Scenario {
        title: "There is room again",
        rule: "After the spill, new goroutines go into the local queue as before.",
        go: &[RUNQPUT],
        run: one_p::room_again,
    },
    Scenario {
        title: "New work wakes a thread",
        rule: "When a goroutine starts while a P is idle and no thread searches for work, a sleeping \
               thread is woken, or a new one is made. It takes the idle P and searches.",
        go: &[proc_go(3227, "wakep"), proc_go(3050, "startm")],
        run: parallel::wake,
    },
    Scenario {
        title: "A fair share of the global queue",
        rule: "A P whose own queue is empty takes its share of the global queue: the length divided \
               by the number of Ps, plus one, and at most 128, for which there is always room.",
        go: &[proc_go(7344, "globrunqgetbatch")],
        run: parallel::share,
    },
    Scenario {
        title: "A P without work steals half",
        rule: "A P that finds no work takes half of the queue of another P, rounded up, from its \
               head. It runs the last of them, and queues the others.",
        go: &[proc_go(3843, "stealWork"), proc_go(7781, "runqsteal"), proc_go(7713, "runqgrab")],
        run: parallel::steal,
    },
    Scenario {
        title: "A thread searches, then sleeps",
        rule: "A thread without work does not end. It searches the queues of the other Ps, and \
               needs a P to do so. If it finds nothing, it gives its P up and sleeps.",
        go: &[proc_go(3532, "sched.nmspinning"), proc_go(3007, "stopm")],
        run: parallel::search,
    },
    Scenario {
        title: "A blocking call gives up the P",
        rule: "A goroutine that blocks in a system call keeps its thread, but not its P: sysmon \
               takes the P, and another thread runs the other goroutines. After the call, the \
               goroutine takes its P back, or another idle P.",
        go: &[proc_go(4776, "entersyscall"), RETAKE, HANDOFFP],
        run: blocking::marked,
    },
    Scenario {
        title: "The end of a call",
        rule: "After a short call the goroutine still has its P. If the P was taken meanwhile, and \
               no P is idle, the goroutine goes into the global queue, and its thread sleeps.",
        go: &[
            proc_go(4922, "exitsyscall"),
            proc_go(5072, "exitsyscallTryGetP"),
            proc_go(5106, "exitsyscallNoP"),
        ],
        run: blocking::end_of_call,
    },
    Scenario {
        title: "A call that was not announced gives up the P too",
        rule: "Rust and C code block without telling the runtime. Sysmon sees that the thread's CPU \
               clock stands still, asks the kernel, and takes the P. Go has no such rule: its \
               library and cgo announce every call.",
        go: &[],
        run: blocking::unmarked,
    },
    Scenario {
        title: "An endless loop is preempted",
        rule: "A goroutine that has run for 10 ms while another waits is interrupted by a signal, \
               and goes to the tail of the global queue. (Here the loop ends once the other has run.)",
        go: &[SYSMON, PREEMPTONE, ASYNC_PREEMPT],
        run: preemption::endless_loop,
    },
    Scenario {
        title: "A timer does not wait for a loop",
        rule: "When a timer is due and all Ps are busy, a goroutine is preempted at once. In Go, the \
               timer waits until the slice of 10 ms is over.",
        go: &[RETAKE, proc_go(6679, "forcePreemptNS"), ASYNC_PREEMPT],
        run: preemption::timer,
    },
    Scenario {
        title: "Every 61st slice takes from the global queue",
        rule: "A local queue that is never empty must not starve the global queue: in every 61st \
               slice, a P takes from the global queue first.",
        go: &[proc_go(3458, "schedtick%61")],
        run: one_p::tick,
    },
    Scenario {
        title: "A goroutine is a thread to the code inside it",
        rule: "Thread-locals, the thread's id and errno belong to the goroutine, and stay with it \
               when another thread continues it. So every crate that is sound on threads is sound \
               here, and starting a goroutine needs no unsafe code. Go has no thread-locals.",
        go: &[],
        run: identity::identity,
    },
    Scenario {
        title: "Ping-pong on one thread",
        rule: "A goroutine that sends makes the receiver ready in run_next, and waits: the receiver \
               runs next, in the same slice, on the same thread. No thread sleeps or wakes.",
        go: &[GOPARK, GOREADY],
        run: ping_pong::ping_pong,
    },
    Scenario {
        title: "A million goroutines",
        rule: "A goroutine that waits needs memory for its stack, and no thread.",
        go: &[NEWPROC, GOPARK],
        run: many::many,
    },
];

/// How often a program is repeated at most, until the rule had something to decide.
const ATTEMPTS: usize = 100;

fn start_recording() -> Recording {
    events::start().unwrap_or_else(|why| panic!("cannot record events: {why}"))
}

/// Records what happens on `procs` Ps while `f` runs.
fn record<T>(procs: usize, f: impl FnOnce() -> T) -> (Vec<Event>, T) {
    let before = runtime::set_procs(procs);
    let mut recording = start_recording();
    let result = f();
    let events = recording.stop();
    runtime::set_procs(before);
    (events, result)
}

/// Repeats `attempt` until `has_it` returns true for its result. Returns the last result.
fn until_seen<T>(attempt: impl Fn() -> T, has_it: impl Fn(&T) -> bool) -> T {
    for _ in 1..ATTEMPTS {
        let result = attempt();
        if has_it(&result) {
            return result;
        }
    }
    attempt()
}

/// On one P: G1 begins a slice, starts G2, then calls `wait` until G2 has run. Only then does G1
/// end.
fn waits_for_the_other(wait: fn(&AtomicBool)) -> (Show, [u64; 2]) {
    let (events, ids) = record(1, || {
        let (send, receive) = chan(1);
        let first = go(move || {
            // No other goroutine can run: this begins a new slice.
            gosched::yield_now();
            let has_run = Arc::new(AtomicBool::new(false));
            let other = go({
                let has_run = Arc::clone(&has_run);
                move || has_run.store(true, Ordering::Relaxed)
            });
            wait(&has_run);
            send.send([own_id(), other.id().get()]).expect("the receiver waits");
        });
        let ids = receive.recv().expect("G1 sends");
        first.join().expect("G1 does not panic");
        ids
    });
    (Show::new(events, Names::new(&ids), 1), ids)
}

/// On one P: G1 starts G2 and calls `first` with a function that makes a long call. The call ends
/// while G2 computes, so G1 then waits for the P. G2 computes until `first` returns, and then calls
/// `other`. Returns the events, the goroutines, and what the two functions returned.
fn calls_beside_a_loop<T: Send + 'static, U: Send + 'static>(
    first: fn(&dyn Fn()) -> T,
    other: fn() -> U,
) -> (Vec<Event>, [u64; 2], T, U) {
    let (events, (ids, first, other)) = record(1, || {
        let (send, receive) = chan(1);
        let g1 = go(move || {
            let [has_run, is_back] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let g2 = go({
                let (has_run, is_back) = (Arc::clone(&has_run), Arc::clone(&is_back));
                move || {
                    has_run.store(true, Ordering::Relaxed);
                    while !is_back.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    other()
                }
            });
            let result = first(&|| {
                gosched::blocking(|| {
                    while !has_run.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            is_back.store(true, Ordering::Relaxed);
            let ids = [own_id(), g2.id().get()];
            send.send((ids, result, g2.join().expect("G2 only computes")))
                .expect("the receiver waits");
        });
        let result = receive.recv().expect("G1 sends");
        g1.join().expect("G1 does not panic");
        result
    });
    (events, ids, first, other)
}

/// Returns the number of the calling goroutine.
fn own_id() -> u64 {
    gosched::id().map_or(0, GoId::get)
}

/// Returns whether no goroutine but those of the scenario ran, and none was interrupted. On a busy
/// machine sysmon may interrupt one, and the goroutine that waits for Ctrl-C may begin late.
fn is_undisturbed(events: &[Event], goroutines: &[u64]) -> bool {
    let main = own_id();
    events.iter().all(|event| match event.kind {
        EventKind::Preempt { .. } | EventKind::Retake { .. } => false,
        EventKind::Run { g, .. } => goroutines.contains(&g) || g == main,
        _ => true,
    })
}

fn is_run(event: &Event, wanted: u64) -> bool {
    matches!(event.kind, EventKind::Run { g, .. } if g == wanted)
}

fn is_spawn(event: &Event, wanted: u64) -> bool {
    matches!(event.kind, EventKind::Spawn { g, .. } if g == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder `src/runtime` of the Go that `ci/go` installs, if the variable names it.
    fn runtime_of_go() -> Option<std::path::PathBuf> {
        let go = std::env::var_os("GOSCHED_GO")?;
        let output = std::process::Command::new(go).args(["env", "GOROOT"]).output();
        let root = String::from_utf8(output.expect("Go runs").stdout).expect("a path");
        Some(std::path::Path::new(root.trim()).join("src/runtime"))
    }

    #[test]
    fn the_lines_of_go_contain_what_is_said_of_them() {
        let Some(folder) = runtime_of_go() else {
            assert!(std::env::var_os("GOSCHED_REQUIRE_GO").is_none(), "GOSCHED_GO is not set");
            return;
        };
        for scenario in SCENARIOS {
            for line in scenario.go {
                let text = std::fs::read_to_string(folder.join(line.file)).expect("a file of Go");
                let found = text.lines().nth(line.line as usize - 1).unwrap_or_default();
                assert!(found.contains(line.what), "{line:?}: {found}");
            }
        }
    }
}
