//! Preemption is by a signal: what that means for calls that wait, for the program's own masks and handlers.
//! Each case is a program of its own: see `src/bin/preempt_program`.

use gosched_tests::preempt_runs::{Mode, PROCS, Program, run_until};

const MODES: [Mode; 2] = [Mode::Both, Mode::InPlace];

fn program(arguments: &[&str], procs: usize) -> Program {
    Program::new(env!("CARGO_BIN_EXE_preempt_program"), arguments, procs)
}

#[test]
fn marked_calls_are_never_interrupted() {
    for procs in PROCS {
        for mode in MODES {
            let said = program(&["marked calls"], procs).mode(mode).slice("1ms").run();
            said.assert_moved_if_allowed();
            assert!(said.number("least") > 0, "{said}");
            assert_eq!(said.number("interrupted"), 0, "{said}");
        }
    }
}

#[test]
fn a_storm_of_the_same_signal_harms_nobody() {
    for procs in PROCS {
        for mode in MODES {
            let said = program(&["storm"], procs).mode(mode).slice("1ms").run();
            said.assert_moved_if_allowed();
            assert!(said.number("least") > 0, "{said}");
            assert!(said.number("sent") > 1000, "{said}");
        }
    }
}

#[test]
fn a_handler_of_before_is_called_for_what_others_send_only() {
    for procs in PROCS {
        for kind in ["info", "plain"] {
            for mode in MODES {
                let chain = || program(&["chain", kind], procs).mode(mode).slice("1ms");
                run_until(chain, |said| {
                    said.assert_moved_if_allowed();
                    assert_eq!(said.number("early"), 0, "{said}");
                    let (called, sent) = (said.number("called"), said.number("sent"));
                    assert!(called >= 60 && called <= sent, "{said}");
                    // Few are lost. A slow machine may seem to lose more.
                    sent <= 80
                });
            }
        }
    }
}

#[test]
fn without_a_handler_of_before_what_others_send_is_nothing() {
    for procs in PROCS {
        for kind in ["ignored", "default"] {
            let said = program(&["chain", kind], procs).slice("1ms").run();
            said.assert_moved_if_allowed();
            assert_eq!(said.number("called"), 0, "{said}");
        }
    }
}

#[test]
fn one_that_blocks_the_signal_is_preempted_when_it_comes_in() {
    for mode in MODES {
        let said = program(&["deaf"], 1).mode(mode).run();
        assert_eq!(said.number("silent"), 0, "{said}");
        assert!(said.number("entering") > 0, "{said}");
    }
    for procs in [2, 4] {
        assert!(program(&["deaf"], procs).run().number("entering") > 0, "{procs} Ps");
    }
}

fn assert_mask_restored(ways: &[&str], slice: &str) {
    for way in ways {
        for procs in PROCS {
            for mode in MODES {
                let said = program(&["mask", way], procs).mode(mode).slice(slice).run();
                assert_eq!(said.number("changed"), 0, "{said}");
            }
        }
    }
}

#[test]
fn a_goroutine_that_waits_leaves_the_mask_as_it_was() {
    assert_mask_restored(&["sleep", "receive", "yield", "call"], "1ms");
}

#[test]
fn a_goroutine_that_ends_leaves_the_mask_as_it_was() {
    assert_mask_restored(&["end", "panic", "goexit", "locked"], "1ms");
}

#[test]
fn a_goroutine_that_is_preempted_leaves_the_mask_as_it_was() {
    assert_mask_restored(&["preempted"], "200us");
}

#[test]
fn one_that_holds_the_signal_back_does_not_hold_timers_up() {
    let said = program(&["one is deaf"], 2).run();
    assert_eq!(said.number("ticks"), 20, "{said}");
}

#[test]
fn handlers_return_on_the_thread_that_they_were_called_on() {
    for procs in PROCS {
        for mode in MODES {
            let said = program(&["handlers"], procs).mode(mode).slice("100us").run();
            said.assert_moved_if_allowed();
            assert!(said.number("sent") >= 100, "{said}");
        }
    }
}
