//! Signals of the system, as values from a channel.
//!
//! ```
//! use gosched::signal::{self, Signal};
//!
//! let signals = signal::notify(&[Signal::USR1, Signal::TERM]);
//! Signal::USR1.raise().unwrap();
//! assert_eq!(signals.recv(), Ok(Signal::USR1));
//! ```
//!
//! While somebody is subscribed to a signal, what it does otherwise, such as ending the process, is not done.
//!
//! - Every subscriber gets every signal, once. Equal signals that come faster than they can be passed on
//!   merge into one, as the system merges them while they are pending.
//! - A subscriber that does not receive misses what comes after [`CAPACITY`] signals, as in Go.
//! - Dropping the receiver, and its clones, ends the subscription. When the last one of a signal is gone, what
//!   was done with the signal before is done again.
//!
//! It does not matter how busy goroutines are: the signals are passed on by a thread, which lives while there
//! is a subscriber. Meanwhile a deadlock is not reported: a signal might end it.

mod subscribers;

use crate::block::chan::Receiver;
use crate::sys::signals;
use std::fmt;
use std::io;

/// How many signals are kept for a subscriber that does not receive.
pub const CAPACITY: usize = 64;

/// A signal of the system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

/// Constants for the signals that have names.
macro_rules! signals {
    ($($name:ident = $number:ident: $text:literal,)*) => {
        impl Signal {
            $(
                #[doc = $text]
                pub const $name: Signal = Signal(libc::$number);
            )*

            /// Its name, if it has one.
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
    HUP = SIGHUP: "The terminal is gone; for servers, as a rule: read the settings again.",
    INT = SIGINT: "Ctrl-C.",
    QUIT = SIGQUIT: "Ctrl-\\.",
    ILL = SIGILL: "An instruction that does not exist.",
    TRAP = SIGTRAP: "For debuggers.",
    ABRT = SIGABRT: "The process ends itself.",
    BUS = SIGBUS: "Memory that cannot be had.",
    FPE = SIGFPE: "Arithmetic without a result.",
    KILL = SIGKILL: "Ends the process: cannot be caught.",
    USR1 = SIGUSR1: "For programs.",
    SEGV = SIGSEGV: "Memory that is not there.",
    USR2 = SIGUSR2: "For programs.",
    PIPE = SIGPIPE: "A write where nobody reads. Rust programs ignore it: the write fails.",
    ALRM = SIGALRM: "An alarm clock.",
    TERM = SIGTERM: "The process is asked to end.",
    CHLD = SIGCHLD: "A child process has ended, or stopped.",
    CONT = SIGCONT: "A stopped process goes on.",
    STOP = SIGSTOP: "Stops the process: cannot be caught.",
    TSTP = SIGTSTP: "Ctrl-Z.",
    TTIN = SIGTTIN: "A read from the terminal by a process in the background.",
    TTOU = SIGTTOU: "A write to the terminal by a process in the background.",
    URG = SIGURG: "The runtime's own.",
    XCPU = SIGXCPU: "Too much CPU time.",
    XFSZ = SIGXFSZ: "Too large a file.",
    VTALRM = SIGVTALRM: "An alarm clock of CPU time.",
    PROF = SIGPROF: "A profiler's clock.",
    WINCH = SIGWINCH: "The terminal has another size.",
    IO = SIGIO: "A descriptor can be used.",
    PWR = SIGPWR: "The power fails.",
    SYS = SIGSYS: "A system call that does not exist.",
}

impl Signal {
    /// The signal of this number.
    pub const fn from_raw(number: i32) -> Signal {
        Signal(number)
    }

    /// Its number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Sends it to this process.
    ///
    /// # Errors
    /// There is no such signal.
    pub fn raise(self) -> io::Result<()> {
        // SAFETY: no memory is involved.
        let sent = unsafe { libc::kill(std::process::id().cast_signed(), self.0) };
        crate::sys::poller::checked(sent).map(drop)
    }
}

/// Subscribes to signals: see [the module](self). Of an empty list nothing ever comes.
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
/// A signal cannot be had: there is none of this number; it cannot be caught (KILL, STOP); it says that the
/// code that runs is broken, so nothing can be done later (SEGV, BUS, FPE, ILL); or it is the runtime's own
/// (URG). Or the system refuses the thread.
#[doc(alias = "Notify")]
#[track_caller]
pub fn notify(signals: &[Signal]) -> Receiver<Signal> {
    for &signal in signals {
        if let Some(why) = refusal(signal) {
            panic!("`signal::notify` of {signal}: {why}");
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
            Some("it says that the code that runs is broken: it must be dealt with right there")
        }
        Signal::URG => Some("it is the runtime's own, to interrupt goroutines"),
        Signal(1..=signals::MAX_SIGNAL) => None,
        _ => Some("there is no signal of this number"),
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
