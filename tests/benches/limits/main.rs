//! Limits on latency, rates and CPU use, which the suites do not check.
//!
//! `cargo bench -p gosched-tests --bench limits [-- [--report] NAME…]`
//!
//! Each case measures gosched and a control at the same time. Where possible, the control is OS
//! threads that do the same. The limit is a multiple of the control, so a busy machine moves both.

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
