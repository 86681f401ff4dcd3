//! Programs that are looked at, for the suites `observe_*`: each a process of its own, since a dump shows all
//! goroutines of the process. The first argument names one. They have their counterparts in `tests/go`.

mod blocked;
mod brief;
mod calls;
mod crowd;
mod deep;
mod dies;
mod ends;
mod knot;
mod library;
mod locks;
mod many;
mod million;
mod place;
mod quit;
mod states;
mod storm;
mod trace;

use gosched_tests::wait::CHILD_LIMIT;
use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: no handler; the signal ends the process.
    unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
    let argument = |at: usize| std::env::args().nth(at).unwrap_or_default();
    match argument(1).as_str() {
        "states" => return states::program(),
        "end" => return ends::program(),
        "dies" => return dies::program(),
        "quit" => return quit::program(&argument(2)),
        "knot" => return knot::program(),
        "trace" => return trace::program(),
        "blocked" => gosched::run(|| read_names_and(blocked::program)),
        "calls" => gosched::run(|| read_names_and(calls::program)),
        "closing" => gosched::run(calls::closing),
        "deep" => gosched::run(|| read_names_and(deep::program)),
        "short sleeps" => gosched::run(|| read_names_and(brief::sleeps)),
        "deaf" => gosched::run(brief::deaf),
        "crowd" => {
            let count = argument(2).parse().unwrap();
            gosched::run(move || crowd::program(count));
        }
        "since" => gosched::run(brief::since),
        "libraries" => gosched::run(library::program),
        "place" => gosched::run(|| read_names_and(place::program)),
        "minutes" => gosched::run(many::minutes),
        "spinners" => gosched::run(|| read_names_and(many::spinners)),
        "many" => gosched::run(many::waiting),
        "million" => {
            let count = argument(2).parse().unwrap();
            gosched::run(move || million::program(count, &argument(3)));
        }
        "never started" => gosched::run(many::never_started),
        "at once" => gosched::run(many::at_once),
        "from a thread" => many::from_a_thread(),
        "storm" => gosched::run(storm::program),
        "pair" => read_names_and(storm::pair),
        "small" => gosched::run(many::small),
        other => panic!("no program {other}"),
    }
    ExitCode::SUCCESS
}

/// The first dump of a process reads the names of its functions: before goroutines of the program keep the CPUs busy.
fn read_names_and(program: fn()) {
    std::hint::black_box(gosched::runtime::dump());
    program();
}
