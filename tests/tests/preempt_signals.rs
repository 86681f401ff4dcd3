//! Effects of SIGURG, the signal that preempts goroutines, on blocking calls and on the program's
//! own signal masks and handlers. Each case is a program: see `src/bin/preempt_program`.

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
fn a_storm_of_sigurg_does_not_stop_any_goroutine() {
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
fn an_earlier_sigurg_handler_is_called_only_for_signals_sent_by_the_program() {
    for procs in PROCS {
        for kind in ["info", "plain"] {
            for mode in MODES {
                let chain = || program(&["chain", kind], procs).mode(mode).slice("1ms");
                run_until(chain, |said| {
                    said.assert_moved_if_allowed();
                    assert_eq!(said.number("early"), 0, "{said}");
                    let (called, sent) = (said.number("called"), said.number("sent"));
                    assert!(called >= 60 && called <= sent, "{said}");
                    // Few signals are lost. On a slow machine a late signal is counted as lost.
                    sent <= 80
                });
            }
        }
    }
}

#[test]
fn a_sigurg_sent_by_the_program_has_no_effect_without_an_earlier_handler() {
    for procs in PROCS {
        for kind in ["ignored", "default"] {
            let said = program(&["chain", kind], procs).slice("1ms").run();
            said.assert_moved_if_allowed();
            assert_eq!(said.number("called"), 0, "{said}");
        }
    }
}

#[test]
fn a_goroutine_that_blocks_sigurg_is_preempted_when_it_enters_the_runtime() {
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
fn the_signal_mask_is_restored_when_a_goroutine_waits() {
    assert_mask_restored(&["sleep", "receive", "yield", "call"], "1ms");
}

#[test]
fn the_signal_mask_is_restored_when_a_goroutine_ends() {
    assert_mask_restored(&["end", "panic", "goexit", "locked"], "1ms");
}

#[test]
fn the_signal_mask_is_restored_when_a_goroutine_is_preempted() {
    assert_mask_restored(&["preempted"], "200us");
}

#[test]
fn a_goroutine_that_blocks_sigurg_does_not_delay_timers() {
    let said = program(&["one is deaf"], 2).run();
    assert_eq!(said.number("ticks"), 20, "{said}");
}

#[test]
fn a_signal_handler_returns_on_the_thread_that_called_it() {
    for procs in PROCS {
        for mode in MODES {
            let said = program(&["handlers"], procs).mode(mode).slice("100us").run();
            said.assert_moved_if_allowed();
            assert!(said.number("sent") >= 100, "{said}");
        }
    }
}
