//! A goroutine that reads, against threads that report events: in every order it reads the bytes,
//! or learns why it cannot. Its context is saved when it is made ready, and it is made ready once.

use super::g::G;
use crate::explore::{every_order, leak, most_orders};
use crate::protocol::readiness::{Readiness, Refusal, WaitDecision};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

/// The order in which the reader performs its steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Right,
    /// Broken: resets the readiness after the attempt.
    ResetsLate,
    /// Broken: commits before its context is saved.
    CommitsEarly,
    /// Broken: checks its time limit before it announces that it waits.
    ChecksLimitEarly,
}

struct Socket {
    readiness: Readiness,
    /// Whether the kernel has bytes to read. The model orders accesses as the kernel's locks do.
    bytes: AtomicU32,
    /// Whether the time limit of the call has passed.
    over: AtomicU32,
    /// One G for each wait.
    gs: [&'static G; 3],
    order: Order,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Read,
    Refused(Refusal),
    TimedOut,
}

impl Socket {
    fn new(order: Order) -> &'static Socket {
        let socket = leak(Socket {
            readiness: Readiness::new(),
            bytes: AtomicU32::new(0),
            over: AtomicU32::new(0),
            gs: [0, 1, 2].map(G::new),
            order,
        });
        socket.readiness.open();
        socket
    }

    fn read(&self) -> End {
        self.try_read().unwrap_or_else(End::Refused)
    }

    fn try_read(&self) -> Result<End, Refusal> {
        // There are at most three reports, and each ends at most one wait.
        for (number, g) in self.gs.iter().enumerate() {
            if self.order != Order::ResetsLate {
                self.readiness.reset()?;
            }
            // PAIR model-bytes: with the order of a system call.
            if self.bytes.load(Ordering::Acquire) != 0 {
                return Ok(End::Read);
            }
            if self.order == Order::ResetsLate {
                self.readiness.reset()?;
            }
            // PAIR io-limit: as in `block::io::polled`.
            let is_over = || self.over.load(Ordering::Acquire) != 0;
            let early = self.order == Order::ChecksLimitEarly && is_over();
            if self.readiness.prepare_wait()? == WaitDecision::Ready {
                continue;
            }
            if early || (self.order != Order::ChecksLimitEarly && is_over()) {
                self.readiness.finish_wait()?;
                return Ok(End::TimedOut);
            }
            self.wait(number, g);
            self.readiness.finish_wait()?;
            if is_over() {
                return Ok(End::TimedOut);
            }
        }
        panic!("the reader was woken more often than there are reports")
    }

    fn wait(&self, number: usize, g: &'static G) {
        let number = (number + 1) << 4;
        if self.order == Order::CommitsEarly {
            let waits = self.readiness.commit(number);
            g.save();
            return if waits {
                g.sleep()
            };
        }
        g.save();
        if self.readiness.commit(number) {
            g.sleep();
        }
    }

    fn ready(&self, waiter: Option<usize>) {
        if let Some(number) = waiter {
            self.gs[(number >> 4) - 1].ready();
        }
    }

    fn bytes_come(&self) {
        // PAIR model-bytes: with the order of a system call.
        self.bytes.store(1, Ordering::Release);
        self.ready(self.readiness.set_ready());
    }

    fn close(&self) {
        self.ready(self.readiness.close());
    }

    fn expire(&self) {
        self.ready(self.readiness.expire());
    }

    fn limit(&self) {
        // PAIR io-limit: as in `block::io::polled`.
        self.over.store(1, Ordering::Release);
        self.ready(self.readiness.unblock());
    }
}

/// Runs a reader against `others`. Its result must be in `ends`.
fn against(order: Order, others: &[fn(&Socket)], ends: &[End]) {
    let socket = Socket::new(order);
    let others: Vec<_> = others.iter().map(|&other| thread::spawn(move || other(socket))).collect();
    let end = socket.read();
    assert!(ends.contains(&end), "{end:?}");
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn bytes_that_arrive_are_read() {
    every_order(|| against(Order::Right, &[Socket::bytes_come], &[End::Read]));
}

#[test]
fn a_close_ends_a_read() {
    every_order(|| against(Order::Right, &[Socket::close], &[End::Refused(Refusal::Closed)]));
}

#[test]
fn a_deadline_ends_a_read() {
    every_order(|| against(Order::Right, &[Socket::expire], &[End::Refused(Refusal::Expired)]));
}

#[test]
fn a_time_limit_ends_a_read() {
    every_order(|| against(Order::Right, &[Socket::limit], &[End::TimedOut]));
}

#[test]
fn bytes_and_a_close_at_once_end_a_read() {
    let ends = [End::Read, End::Refused(Refusal::Closed)];
    most_orders(4, move || against(Order::Right, &[Socket::bytes_come, Socket::close], &ends));
}

#[test]
fn a_deadline_and_a_close_at_once_end_a_read() {
    let ends = [End::Refused(Refusal::Expired), End::Refused(Refusal::Closed)];
    most_orders(4, move || against(Order::Right, &[Socket::expire, Socket::close], &ends));
}

#[test]
fn bytes_and_a_time_limit_at_once_end_a_read() {
    let ends = [End::Read, End::TimedOut];
    most_orders(3, move || against(Order::Right, &[Socket::bytes_come, Socket::limit], &ends));
}

#[test]
fn an_event_without_bytes_does_not_end_a_read() {
    // An event is reported, but there are no bytes.
    let late: fn(&Socket) = |socket| socket.ready(socket.readiness.set_ready());
    most_orders(3, move || against(Order::Right, &[late, Socket::bytes_come], &[End::Read]));
}

#[test]
fn a_deadline_that_is_cleared_refuses_no_later_read() {
    most_orders(3, || {
        let socket = Socket::new(Order::Right);
        let other = thread::spawn(move || {
            socket.expire();
            socket.readiness.unexpire();
            socket.bytes_come();
        });
        let first = socket.read();
        assert!(matches!(first, End::Read | End::Refused(Refusal::Expired)), "{first:?}");
        other.join().unwrap();
        assert!(socket.readiness.reset().is_ok());
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_reset_after_the_attempt() {
    every_order(|| against(Order::ResetsLate, &[Socket::bytes_come], &[End::Read]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_a_commit_before_the_context_is_saved() {
    every_order(|| against(Order::CommitsEarly, &[Socket::bytes_come], &[End::Read]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_checking_the_time_limit_too_early() {
    every_order(|| against(Order::ChecksLimitEarly, &[Socket::limit], &[End::TimedOut]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_by_changes_without_order() {
    let _weak = weaken(Weakness::CompareExchange);
    every_order(|| against(Order::Right, &[Socket::bytes_come], &[End::Read]));
}
