//! Programs whose goroutines do not yield, for the suites `preempt`, `preempt_hostile` and `preempt_signals`:
//! each a process of its own, since it is about the whole process's Ps, threads and signals.
//!
//! `GOSCHED_PREEMPT_SECONDS` is how long each goes on.

mod calls;
mod corners;
mod fork;
mod kit;
mod life;
mod locks;
mod masks;
mod memory;
mod mixed;
mod registers;
mod sample;
mod share;
mod unwind;

use std::time::Duration;

fn main() {
    kit::start_watchdog();
    kit::calibrate();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    let number = |at: usize| argument(at).parse::<usize>().expect("a number");
    if argument(0) == "chain" {
        // A handler of before the runtime.
        return masks::chain(argument(1));
    }
    gosched::run(|| {
        match argument(0) {
            "endless loop" => return share::endless_loop(),
            "never one" => return share::never_one(),
            "starters" => return share::spawn_and_join(),
            "malloc" => memory::malloc(),
            "std mutex" => locks::std_mutex(),
            "stdout" => locks::stdout(),
            "spinlock" => locks::spinlock(),
            "unwind" => unwind::unwind(),
            "many hogs" => share::many_hogs(number(1), argument(2) == "measured"),
            "order" => share::order(),
            "fair" => share::fair(number(1)),
            "ticker" => share::ticker(number(1)),
            "slice" => share::slice(number(1) as u64, Duration::from_micros(number(2) as u64)),
            "no preempt" => share::no_preempt(),
            "many" => share::many(number(1), number(2) as u64, number(3)),
            "many by threads" => share::many_by_threads(number(1), number(2) as u64),
            "beats" => sample::beats(),
            "threads" => sample::threads(),
            "threads of std" => sample::threads_of_std(),
            "back" => sample::back(),
            "marked calls" => calls::marked(),
            "storm" => calls::storm(),
            "resize" => life::resize(),
            "exit" => life::exit(argument(1)),
            "short" => life::short(),
            "destructors" => life::destructors(),
            "place" => life::place(argument(1), number(2)),
            "deep" => life::deep(argument(1) == "all there is"),
            "fork" => fork::fork(argument(1)),
            "registers" => registers::registers(),
            "mask" => masks::mask(argument(1)),
            "deaf" => masks::blocks_sigurg(),
            "inside host" => corners::inside_host(),
            "handlers" => corners::handlers(),
            "made threads" => corners::made_threads(),
            "one is deaf" => masks::one_blocks_sigurg(),
            "mixed" => mixed::mixed(),
            other => panic!("no program {other}"),
        }
        kit::report();
    });
}
