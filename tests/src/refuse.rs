//! Commands to which the system refuses calls or resources: filters of system calls, as in
//! containers, and resource limits.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{io, mem};

/// Exit status of the dynamic loader if it cannot load a library, for example because the user of
/// the process cannot read it.
pub const NOT_LOADED: i32 = 127;

/// Makes these system calls fail with `errno` in the command's process.
///
/// # Panics
/// There are more system calls than fit in a filter.
pub fn system_calls(command: &mut Command, errno: i32, calls: &[i64]) {
    let filter = filter(errno, calls);
    // SAFETY: the closure only makes system calls, with memory allocated before the fork.
    unsafe { command.pre_exec(move || install(&filter, 0)) };
}

/// Makes thread creation fail with EAGAIN in the calling process from here on.
///
/// # Panics
/// The filter cannot be installed.
pub fn more_threads() {
    let filter = filter(libc::EAGAIN, &[libc::SYS_clone, libc::SYS_clone3]);
    install(&filter, libc::SECCOMP_FILTER_FLAG_TSYNC).expect("a filter for all threads");
}

fn filter(errno: i32, calls: &[i64]) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number_at = mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number_at)];
    for &call in calls {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let number = u32::try_from(call).expect("the number of a system call");
        filter.push(libc::sock_filter { code, jt: 0, jf: 1, k: number });
        let refusal = libc::SECCOMP_RET_ERRNO | errno as u32;
        filter.push(statement(libc::BPF_RET | libc::BPF_K, refusal));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter
}

/// Installs the filter for the calling thread, and for further threads according to `flags`.
fn install(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let len = u16::try_from(filter.len()).expect("a filter that is short enough");
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: has no precondition.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` points to `len` statements.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the system discard the `siginfo_t` of signals that are queued for the command's process.
pub fn pending_signals(command: &mut Command) {
    let limit = || {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid limit.
        match unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &none) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes a system call.
    unsafe { command.pre_exec(limit) };
}

/// Limits the number of threads of the command's process. Returns false if the caller is not root:
/// the limit would then count other processes of the same user too.
pub fn threads(command: &mut Command, most: u64) -> bool {
    // SAFETY: has no precondition.
    if unsafe { libc::getuid() } != 0 {
        return false;
    }
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // A user without other processes.
    let user = 60_000 + std::process::id() % 10_000 + number * 10_000;
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(move || become_limited(user, most)) };
    true
}

fn become_limited(user: u32, most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a valid limit.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) };
    // SAFETY: has no precondition.
    let group = unsafe { libc::setgid(user) };
    // SAFETY: has no precondition.
    let own = unsafe { libc::setuid(user) };
    match (limited, group, own) {
        (0, 0, 0) => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
