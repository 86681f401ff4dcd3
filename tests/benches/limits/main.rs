//! How late, how often and at what cost: every bound on time, rates and CPU use that the suites do not judge.
//!
//! `cargo bench -p gosched-tests --bench limits [-- [--report] NAME…]`
//!
//! Each case measures gosched and a control at the same moment: OS threads that do the same, where that is
//! possible. The limit is a multiple of the control, so a busy machine moves both.

mod judge;
mod net;
mod observe;
mod preempt;
mod sched;
mod timers;

use std::process::ExitCode;

fn main() -> ExitCode {
    let groups = [timers::CASES, sched::CASES, preempt::CASES, net::CASES, observe::CASES];
    judge::run(groups.into_iter().flatten().copied())
}
