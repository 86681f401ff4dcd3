//! Programs whose goroutines do not yield, for the suites `preempt`, `preempt_hostile` and
//! `preempt_signals`. Each program is a separate process, because it tests the Ps, threads and
//! signals of a whole process.
//!
//! `GOSCHED_PREEMPT_SECONDS` sets how long each program runs.

mod calls;
mod fairness;
mod fork;
mod harness;
mod lifecycle;
mod locks;
mod masks;
mod memory;
mod primitives;
mod registers;
mod regressions;
mod sample;
mod unwind;

use std::time::Duration;

fn main() {
    harness::start_watchdog();
    harness::calibrate();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    let number = |at: usize| argument(at).parse::<usize>().expect("a number");
    if argument(0) == "chain" {
        // Installs a signal handler before the runtime starts.
        return masks::chain(argument(1));
    }
    gosched::run(|| {
        match argument(0) {
            "endless loop" => return fairness::endless_loop(),
            "never one" => return fairness::never_one(),
            "starters" => return fairness::spawn_and_join(),
            "malloc" => memory::malloc(),
            "std mutex" => locks::std_mutex(),
            "stdout" => locks::stdout(),
            "spinlock" => locks::spinlock(),
            "unwind" => unwind::unwind(),
            "many hogs" => fairness::many_hogs(number(1), argument(2) == "measured"),
            "order" => fairness::order(),
            "fair" => fairness::fair(number(1)),
            "ticker" => fairness::ticker(number(1)),
            "slice" => fairness::slice(number(1) as u64, Duration::from_micros(number(2) as u64)),
            "no preempt" => fairness::no_preempt(),
            "many" => fairness::many(number(1), number(2) as u64, number(3)),
            "many by threads" => fairness::many_by_threads(number(1), number(2) as u64),
            "beats" => sample::beats(),
            "threads" => sample::threads(),
            "threads of std" => sample::threads_of_std(),
            "back" => sample::back(),
            "marked calls" => calls::marked(),
            "storm" => calls::storm(),
            "resize" => lifecycle::resize(),
            "exit" => lifecycle::exit(argument(1)),
            "short" => lifecycle::short(),
            "destructors" => lifecycle::destructors(),
            "place" => lifecycle::place(argument(1), number(2)),
            "deep" => lifecycle::deep(argument(1) == "all there is"),
            "fork" => fork::fork(argument(1)),
            "registers" => registers::registers(),
            "mask" => masks::mask(argument(1)),
            "deaf" => masks::blocks_sigurg(),
            "inside host" => regressions::inside_host(),
            "handlers" => regressions::handlers(),
            "made threads" => regressions::made_threads(),
            "one is deaf" => masks::one_blocks_sigurg(),
            "mixed" => primitives::mixed(),
            other => panic!("no program {other}"),
        }
        harness::report();
    });
}
