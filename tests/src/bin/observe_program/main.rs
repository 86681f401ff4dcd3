//! Programs that are observed, for the suites `observe_*`. Each program is a separate process,
//! because a dump shows all goroutines of its process. The first argument selects the program.
//! `states`, `ends` and `trace` have counterparts in `tests/go`.

mod blocked;
mod calls;
mod churn;
mod crash_while_exiting;
mod deep_stacks;
mod ends;
mod library;
mod lock_cycle;
mod locks;
mod many;
mod million;
mod pc_offsets;
mod quit;
mod rwlock_crowd;
mod states;
mod trace;
mod unmarked_calls;

use gosched_tests::wait::CHILD_LIMIT;
use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
    let argument = |at: usize| std::env::args().nth(at).unwrap_or_default();
    match argument(1).as_str() {
        "states" => return states::program(),
        "end" => return ends::program(),
        "dies" => return crash_while_exiting::program(),
        "quit" => return quit::program(&argument(2)),
        "knot" => return lock_cycle::program(),
        "trace" => return trace::program(),
        "blocked" => gosched::run(|| read_names_and(blocked::program)),
        "calls" => gosched::run(|| read_names_and(calls::program)),
        "closing" => gosched::run(calls::closing),
        "deep" => gosched::run(|| read_names_and(deep_stacks::program)),
        "short sleeps" => gosched::run(|| read_names_and(unmarked_calls::sleeps)),
        "deaf" => gosched::run(unmarked_calls::deaf),
        "crowd" => {
            let count = argument(2).parse().unwrap();
            gosched::run(move || rwlock_crowd::program(count));
        }
        "since" => gosched::run(unmarked_calls::since),
        "libraries" => gosched::run(library::program),
        "place" => gosched::run(|| read_names_and(pc_offsets::program)),
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
        "storm" => gosched::run(churn::program),
        "pair" => read_names_and(churn::pair),
        "small" => gosched::run(many::small),
        other => panic!("no program {other}"),
    }
    ExitCode::SUCCESS
}

/// Takes a dump, then runs the program. The first dump of a process reads the names of its
/// functions, which must be done before the program's goroutines keep the CPUs busy.
fn read_names_and(program: fn()) {
    std::hint::black_box(gosched::runtime::dump());
    program();
}
