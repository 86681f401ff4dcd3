//! Signals of the operating system, received from a channel.
//!
//! ```
//! use gosched::signal::{self, Signal};
//!
//! let signals = signal::notify(&[Signal::USR1, Signal::TERM]);
//! Signal::USR1.raise().unwrap();
//! assert_eq!(signals.recv(), Ok(Signal::USR1));
//! ```
//!
//! While a signal has a subscriber, the action that it would otherwise have, such as ending the
//! process, does not happen.
//!
//! - Each subscriber receives each signal once. Equal signals that arrive faster than they are
//!   delivered merge into one, as pending signals merge in the kernel.
//! - If a subscriber does not receive, up to [`CAPACITY`] signals are kept for it; further signals
//!   are dropped, as in Go.
//! - A subscription ends when its receiver and all clones of it are dropped. When a signal loses
//!   its last subscriber, its previous action is restored.
//!
//! Busy goroutines do not delay signals: a separate thread delivers them. The thread runs as long
//! as there is a subscriber. Meanwhile deadlocks are not reported, because a signal could end them.
//!
//! Code of the program never runs in a signal handler: a subscriber receives signals like other
//! values.

mod subscribers;

use crate::block::chan::Receiver;
use crate::sys::signals;
use std::fmt;
use std::io;

/// Maximum number of signals that are kept for a subscriber that does not receive them.
pub const CAPACITY: usize = 64;

/// A signal of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

/// Defines a constant for each signal that has a name.
macro_rules! signals {
    ($($name:ident = $number:ident: $text:literal,)*) => {
        impl Signal {
            $(
                #[doc = $text]
                pub const $name: Signal = Signal(libc::$number);
            )*

            /// Returns the name of the signal, such as `SIGINT`, if it has one.
            fn name(self) -> Option<&'static str> {
                match self {
                    $(Signal::$name => Some(stringify!($number)),)*
                    _ => None,
                }
            }
        }
    };
}

signals! {
    HUP = SIGHUP: "The terminal was closed. Many servers then reload their configuration.",
    INT = SIGINT: "Interrupt from the keyboard (Ctrl-C).",
    QUIT = SIGQUIT: "Quit from the keyboard (Ctrl-\\).",
    ILL = SIGILL: "Illegal instruction.",
    TRAP = SIGTRAP: "Breakpoint or trace trap, for debuggers.",
    ABRT = SIGABRT: "Raised by `abort`.",
    BUS = SIGBUS: "Access to memory that cannot be provided (bus error).",
    FPE = SIGFPE: "Erroneous arithmetic operation, such as a division by zero.",
    KILL = SIGKILL: "Kills the process. Cannot be caught.",
    USR1 = SIGUSR1: "Free for use by programs.",
    SEGV = SIGSEGV: "Invalid memory access (segmentation fault).",
    USR2 = SIGUSR2: "Free for use by programs.",
    PIPE = SIGPIPE: "Write to a pipe or socket without a reader. Rust programs ignore the signal, and the write fails.",
    ALRM = SIGALRM: "A real-time timer has expired (`alarm`).",
    TERM = SIGTERM: "Request to terminate the process.",
    CHLD = SIGCHLD: "A child process has ended or stopped.",
    CONT = SIGCONT: "A stopped process continues.",
    STOP = SIGSTOP: "Stops the process. Cannot be caught.",
    TSTP = SIGTSTP: "Stop from the keyboard (Ctrl-Z).",
    TTIN = SIGTTIN: "A background process reads from the terminal.",
    TTOU = SIGTTOU: "A background process writes to the terminal.",
    URG = SIGURG: "Used by the runtime to preempt goroutines. Cannot be subscribed to.",
    XCPU = SIGXCPU: "The CPU time limit was exceeded.",
    XFSZ = SIGXFSZ: "The file size limit was exceeded.",
    VTALRM = SIGVTALRM: "A timer that measures CPU time has expired.",
    PROF = SIGPROF: "A profiling timer has expired.",
    WINCH = SIGWINCH: "The size of the terminal has changed.",
    IO = SIGIO: "I/O is possible on a descriptor.",
    PWR = SIGPWR: "Power failure.",
    SYS = SIGSYS: "Invalid system call.",
}

impl Signal {
    /// Creates a signal from its number.
    pub const fn from_raw(number: i32) -> Signal {
        Signal(number)
    }

    /// Returns the number of the signal.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Sends the signal to this process.
    ///
    /// # Errors
    /// There is no such signal.
    pub fn raise(self) -> io::Result<()> {
        // SAFETY: no memory is involved.
        let sent = unsafe { libc::kill(std::process::id().cast_signed(), self.0) };
        crate::sys::poller::checked(sent).map(drop)
    }
}

/// Subscribes to signals, and returns the receiver for them: see [the module](self). The receiver
/// for an empty list never receives a signal.
///
/// ```no_run
/// use gosched::signal::{self, Signal};
///
/// let stop = signal::notify(&[Signal::INT, Signal::TERM]);
/// let reload = signal::notify(&[Signal::HUP]);
/// loop {
///     gosched::select! {
///         recv(stop) -> signal => {
///             println!("{}: good bye", signal.unwrap());
///             break;
///         },
///         recv(reload) -> _ => println!("reading the settings again"),
///     }
/// }
/// ```
///
/// # Panics
/// A signal cannot be subscribed to: no signal has this number; it cannot be caught (KILL, STOP);
/// it reports a fault of the running code, which must be handled immediately (SEGV, BUS, FPE, ILL);
/// or the runtime uses it (URG). Remove the signal from the list. Also panics if the system refuses
/// to start the thread or to create its descriptor.
#[doc(alias = "Notify")]
#[track_caller]
pub fn notify(signals: &[Signal]) -> Receiver<Signal> {
    for &signal in signals {
        if let Some(why) = refusal(signal) {
            panic!("cannot subscribe to {signal}: {why}");
        }
    }
    let bits = signals.iter().fold(0, |bits, signal| bits | signals::bit(signal.0));
    match subscribers::add(bits) {
        Ok(receiver) => receiver,
        Err(why) => panic!("`signal::notify`: {why}"),
    }
}

fn refusal(signal: Signal) -> Option<&'static str> {
    match signal {
        Signal::KILL | Signal::STOP => Some("it cannot be caught"),
        Signal::SEGV | Signal::BUS | Signal::FPE | Signal::ILL => {
            Some("it reports a fault of the running code and must be handled immediately")
        }
        Signal::URG => Some("the runtime uses it to preempt goroutines"),
        Signal(1..=signals::MAX_SIGNAL) => None,
        _ => Some("there is no signal with this number"),
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
