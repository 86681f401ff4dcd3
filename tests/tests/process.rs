//! Child processes: the API behaves as std's, and a goroutine that waits for a child blocks no
//! other goroutine.

use gosched::process::{Child, Command, Stdio};
use gosched::signal::Signal;
use gosched::{go, run};
use gosched_tests::actors::{ActorKind, in_goroutine_and_thread, join_all};
use gosched_tests::children;
use gosched_tests::wait::{settle, until};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Returns a command that runs until a signal ends it.
fn patient() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

/// Returns whether the process exists, possibly as a zombie.
fn is_there(id: u32) -> bool {
    Path::new(&format!("/proc/{id}")).exists()
}

#[test]
fn child() {
    match children::scenario().as_deref() {
        None => {}
        Some("two hundred") => two_hundred(),
        Some("no children") => no_children_are_left(),
        Some("older kernel") => many_callers_may_wait_for_a_child_while_another_kills_it(),
        Some(other) => panic!("{other}"),
    }
}

fn passes(scenario: &str) {
    let output = children::run(scenario);
    assert!(output.status.success(), "{}", children::stderr(&output));
}

#[test]
fn output_has_both_streams_and_the_status() {
    in_goroutine_and_thread(|| {
        let output = shell("printf out; printf err >&2; exit 3").output().unwrap();
        assert_eq!(output.stdout, b"out");
        assert_eq!(output.stderr, b"err");
        assert_eq!(output.status.code(), Some(3));
    });
}

#[test]
fn the_command_builder_behaves_as_std_s() {
    in_goroutine_and_thread(|| {
        let mut command = shell("echo $0 $ONE $TWO $THREE; pwd");
        command.env_clear().env("ONE", "1").envs([("TWO", "2"), ("THREE", "3")]);
        command.env_remove("TWO").current_dir("/").arg("name");
        assert_eq!(command.output().unwrap().stdout, b"name 1 3\n/\n");
        let same = command.output().unwrap();
        assert_eq!(same.stdout, b"name 1 3\n/\n", "again");
        assert_eq!(command.get_program(), "/bin/sh");
        assert_eq!(command.get_args().count(), 3);
        let mut command = Command::new("/bin/sh");
        let output = command.arg0("renamed").args(["-c", "echo $0"]).output().unwrap();
        assert_eq!(output.stdout, b"renamed\n");
    });
}

#[test]
fn output_keeps_the_configured_streams() {
    in_goroutine_and_thread(|| {
        let mut command = shell("cat; echo error >&2");
        command.stderr(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b""[..]), "nothing to read");
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        assert!(child.stdout.is_none(), "a later start is not piped");
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_command_that_cannot_be_started_returns_the_reason() {
    in_goroutine_and_thread(|| {
        let error = Command::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = Command::new("/").status().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
}

#[test]
fn the_status_has_the_exit_code_or_the_signal() {
    in_goroutine_and_thread(|| {
        for code in [0, 1, 42, 255] {
            assert_eq!(shell(&format!("exit {code}")).status().unwrap().code(), Some(code));
        }
        let status = shell("kill -TERM $$").status().unwrap();
        assert_eq!((status.code(), status.signal()), (None, Some(libc::SIGTERM)));
    });
}

#[test]
fn output_reads_large_amounts_from_both_pipes_at_once() {
    in_goroutine_and_thread(|| {
        let script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; \
                      head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero";
        let output = shell(script).output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (600_000, 600_000));
    });
}

#[test]
fn the_parent_exchanges_data_with_a_child_through_pipes() {
    in_goroutine_and_thread(|| {
        let mut cat = Command::new("cat");
        let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let text: Vec<u8> = (0..400_000).map(|i| (i % 251) as u8).collect();
        let sent = text.clone();
        let sending = go(move || stdin.write_all(&sent).unwrap());
        let mut found = Vec::new();
        stdout.read_to_end(&mut found).unwrap();
        sending.join().unwrap();
        assert!(found == text);
        assert!(cat.wait().unwrap().success());
    });
}

#[test]
fn wait_closes_standard_input() {
    in_goroutine_and_thread(|| {
        let cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(cat.wait().unwrap().success());
        assert_eq!(cat.stdin.unwrap().close().unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

#[test]
fn pipes_have_deadlines() {
    in_goroutine_and_thread(|| {
        let mut child = patient().stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.set_deadline(Some(Instant::now())).unwrap();
        assert_eq!(stdout.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn a_child_reads_the_output_of_another_child() {
    in_goroutine_and_thread(|| {
        let mut first = shell("echo b; echo a").stdout(Stdio::piped()).spawn().unwrap();
        let stdout = first.stdout.take().unwrap();
        let second = Command::new("sort").stdin(stdout).output().unwrap();
        assert_eq!(second.stdout, b"a\nb\n");
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn many_callers_may_wait_for_a_child_while_another_kills_it() {
    let child = Arc::new(patient().spawn().unwrap());
    let waiting = (0..6).map(|i| {
        let child = child.clone();
        gosched_tests::actors::kind_for(i).start(move || child.wait().unwrap().signal())
    });
    let waiting: Vec<_> = waiting.collect();
    settle();
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(is_there(child.id()));
    child.kill().unwrap();
    assert_eq!(join_all(waiting), [Some(libc::SIGKILL); 6]);
    assert!(!is_there(child.id()), "its end was seen");
    child.kill().unwrap();
    child.send_signal(Signal::TERM).unwrap();
    assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn children_work_without_pidfd() {
    for scenario in ["older kernel", "no children"] {
        let output = children::command(scenario).env("GOSCHED_PIDFD", "off").output().unwrap();
        assert!(output.status.success(), "{}", children::stderr(&output));
    }
}

#[test]
fn a_child_receives_the_signal_sent_to_it() {
    in_goroutine_and_thread(|| {
        let child = patient().spawn().unwrap();
        child.send_signal(Signal::USR1).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
    });
}

#[test]
fn a_dropped_child_keeps_running_unless_kill_on_drop_is_set() {
    in_goroutine_and_thread(|| {
        let mut child = Command::new("cat");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        drop(child);
        stdin.write_all(b"alive").unwrap();
        let mut text = [0; 5];
        stdout.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"alive");

        let child = patient().kill_on_drop(true).spawn().unwrap();
        let id = child.id();
        drop(child);
        assert!(!is_there(id));
        let seen = shell("exit 5").kill_on_drop(true).status().unwrap();
        assert_eq!(seen.code(), Some(5));
    });
}

#[test]
fn pre_exec_runs_in_the_child() {
    in_goroutine_and_thread(|| {
        let mut command = shell("umask");
        // SAFETY: the closure makes one system call and does not access memory.
        let run_before = || {
            // SAFETY: `umask` has no precondition.
            unsafe { libc::umask(0o077) };
            Ok(())
        };
        // SAFETY: the closure only makes a system call.
        unsafe { command.pre_exec(run_before) };
        let output = command.process_group(0).output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().trim().ends_with("077"));
    });
}

#[test]
fn two_hundred_children_at_once_need_few_threads() {
    passes("two hundred");
}

fn two_hundred() {
    let children: Vec<Child> = (0..200)
        .map(|_| Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let (stdins, waiting): (Vec<_>, Vec<_>) = children
        .into_iter()
        .map(|mut child| {
            let stdin = child.stdin.take();
            let output = go(move || child.wait_with_output().unwrap());
            (stdin.unwrap(), output)
        })
        .unzip();
    settle();
    if !cfg!(feature = "threads") {
        let most = gosched::runtime::procs() + 8;
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        until(&format!("there are {most} threads or less"), || threads() <= most);
    }
    for (i, mut stdin) in stdins.into_iter().enumerate() {
        write!(stdin, "{i}").unwrap();
    }
    for (i, output) in waiting.into_iter().enumerate() {
        let output = output.join().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, i.to_string().as_bytes());
    }
    assert_no_children();
}

/// Asserts that the process has no children, neither running nor zombies.
fn assert_no_children() {
    // SAFETY: `waitpid` accepts a null status.
    assert_eq!(unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ECHILD));
}

#[test]
fn children_that_were_waited_for_leave_no_zombies() {
    passes("no children");
}

fn no_children_are_left() {
    run(|| {
        let many: Vec<_> = (0..30)
            .map(|i| {
                go(move || match i % 3 {
                    0 => assert!(shell("exit 0").status().unwrap().success()),
                    1 => assert!(shell("echo x").output().unwrap().status.success()),
                    _ => drop(patient().kill_on_drop(true).spawn().unwrap()),
                })
            })
            .collect();
        many.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_no_children();
}

#[test]
fn goroutines_run_while_another_waits_for_a_child() {
    ActorKind::Goroutine
        .start(|| {
            let child = Arc::new(patient().spawn().unwrap());
            let waiting = child.clone();
            let waiting = go(move || waiting.wait().unwrap());
            let sum: u64 = (0..1000).map(|i| go(move || i).join().unwrap()).sum();
            assert_eq!(sum, 499_500);
            child.kill().unwrap();
            waiting.join().unwrap();
        })
        .join();
}
