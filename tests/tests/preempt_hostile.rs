//! Goroutines preempted at dangerous places: while they hold locks, in libc, with all registers in
//! use, near the end of their stacks, and at their start and end. Each case is a program: see
//! `src/bin/preempt_program`. `GOSCHED_PREEMPT_SECONDS` is the duration of each case.

use gosched_tests::preempt_runs::{Mode, PROCS, Program, ProgramOutput, repetitions};

const MODES: [Mode; 2] = [Mode::Both, Mode::InPlace];

fn program(arguments: &[&str], procs: usize) -> Program {
    Program::new(env!("CARGO_BIN_EXE_preempt_program"), arguments, procs)
}

/// Runs the program on 1, 2 and 4 Ps, in both modes.
fn in_all_modes(arguments: &[&str], slice: &str, check: impl Fn(&ProgramOutput)) {
    in_all_modes_with(arguments, |program| program.slice(slice), check);
}

fn in_all_modes_with(
    arguments: &[&str],
    change: impl Fn(Program) -> Program,
    check: impl Fn(&ProgramOutput),
) {
    for procs in PROCS {
        for mode in [Mode::Both, Mode::InPlace] {
            let said = change(program(arguments, procs).mode(mode)).run();
            said.assert_preempted();
            check(&said);
        }
    }
}

/// Asserts that every goroutine made progress.
fn assert_all_progressed(said: &ProgramOutput) {
    assert!(said.number("least") > 0, "{said}");
}

#[test]
fn preempted_in_malloc_with_one_arena() {
    let one_arena = |program: Program| {
        let tunables = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";
        program.slice("200us").set("MALLOC_ARENA_MAX", "1").set("GLIBC_TUNABLES", tunables)
    };
    in_all_modes_with(&["malloc"], one_arena, |said| {
        assert_all_progressed(said);
        assert!(said.number("outside") + said.number("deferred") > 0, "never in libc: {said}");
    });
}

#[test]
fn preempted_while_holding_a_std_mutex() {
    in_all_modes(&["std mutex"], "1ms", assert_all_progressed);
}

#[test]
fn preempted_while_holding_the_lock_of_standard_output() {
    in_all_modes(&["stdout"], "1ms", |said| {
        assert_all_progressed(said);
        let is_ours = |line: &&str| line.starts_with("first ") || line.starts_with("second ");
        let lines: Vec<&str> = said.text.lines().filter(is_ours).collect();
        let pairs = lines.iter().filter(|line| line.starts_with("first ")).count();
        let whole = lines.windows(2).filter(|pair| {
            let first = pair[0].strip_prefix("first ");
            first.is_some() && first == pair[1].strip_prefix("second ")
        });
        assert!(pairs > 0 && whole.count() == pairs, "{}", said.text);
    });
}

#[test]
fn preempted_while_holding_a_spin_lock() {
    in_all_modes(&["spinlock"], "1ms", |said| {
        assert_all_progressed(said);
        said.assert_moved_if_allowed();
    });
}

#[test]
fn preempted_while_unwinding_and_in_the_dynamic_linker() {
    in_all_modes(&["unwind"], "200us", assert_all_progressed);
}

#[test]
fn preemption_preserves_registers_flags_and_the_red_zone() {
    in_all_modes(&["registers"], "100us", |said| {
        println!("{said}");
        assert_all_progressed(said);
        said.assert_moved_if_allowed();
    });
    if cfg!(target_feature = "crt-static") {
        return; // A static program never moves a preempted goroutine.
    }
    for procs in PROCS {
        let said = program(&["registers"], procs).mode(Mode::Moving).slice("100us").run();
        println!("{said}");
        assert_all_progressed(&said);
        said.assert_preempted();
    }
}

#[test]
fn the_number_of_ps_changes_while_goroutines_are_preempted() {
    in_all_modes(&["resize"], "500us", |said| {
        assert!(said.number("changes") > 10 && said.number("started") > 2, "{said}");
    });
}

#[test]
fn the_process_ends_while_goroutines_are_preempted() {
    for procs in PROCS {
        for mode in [Mode::Both, Mode::InPlace] {
            for how in ["exit", "C", "return"] {
                for _ in 0..repetitions(1, 3) {
                    let said = program(&["exit", how], procs).mode(mode).slice("100us").run();
                    assert!(said.text.starts_with("ends\n"), "{said}");
                }
            }
        }
    }
}

#[test]
fn preempted_right_after_its_start() {
    in_all_modes(&["short"], "100us", |said| assert!(said.number("started") >= 400, "{said}"));
}

#[test]
fn preempted_in_destructors_of_thread_locals() {
    in_all_modes(&["destructors"], "100us", |said| assert!(said.number("ended") > 10, "{said}"));
}

fn preempted_in(place: &str) {
    let rounds = repetitions(4, 20);
    let arguments = ["place", place, &rounds.to_string()];
    in_all_modes(&arguments, "1ms", |said| {
        assert_eq!(said.number("rounds"), rounds as u64, "{said}")
    });
}

#[test]
fn preempted_inside_with_stack() {
    preempted_in("stack");
}

#[test]
fn preempted_inside_host() {
    preempted_in("host");
}

#[test]
fn preempted_while_locked_to_its_thread() {
    preempted_in("locked");
}

#[test]
fn preempted_inside_a_resumed_routine() {
    preempted_in("routine");
}

#[test]
fn preempted_after_a_fork() {
    preempted_in("forked");
}

#[test]
fn preempted_near_the_end_of_the_requested_stack_size() {
    in_all_modes(&["deep", "asked for"], "100us", assert_all_progressed);
}

#[test]
fn preempted_near_the_end_of_the_mapped_stack() {
    in_all_modes(&["deep", "all there is"], "100us", assert_all_progressed);
}

#[test]
fn preempted_while_using_channels_locks_and_timers() {
    in_all_modes(&["mixed"], "100us", |said| {
        for word in ["received", "locked", "fired"] {
            assert!(said.number(word) > 10, "{said}");
        }
    });
}

fn fork(kind: &str) {
    in_all_modes(&["fork", kind], "200us", |said| assert!(said.number("children") > 1, "{said}"));
}

#[test]
fn children_started_by_std_finish() {
    fork("std");
}

#[test]
fn children_started_by_std_with_pre_exec_finish() {
    fork("std after fork");
}

#[test]
fn forked_children_that_call_exec_finish() {
    fork("exec");
}

#[test]
fn forked_children_that_allocate_in_c_finish() {
    fork("malloc");
}

#[test]
fn forked_children_that_allocate_in_rust_finish() {
    fork("vec");
}

#[test]
fn goroutines_inside_host_use_the_runtime() {
    for procs in PROCS {
        for mode in MODES {
            let said = program(&["inside host"], procs).mode(mode).slice("200us").run();
            assert!(said.number("in-place") > 0 && said.number("ran") >= 400, "{said}");
        }
    }
}

#[test]
fn threads_are_created_while_a_preempted_goroutine_holds_the_malloc_lock() {
    for procs in PROCS {
        for mode in MODES {
            let one_arena = "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0";
            let said = program(&["made threads"], procs).mode(mode).slice("100us");
            let said = said.set("GLIBC_TUNABLES", one_arena).run();
            assert!(said.number("least") > 0, "{said}");
        }
    }
}
