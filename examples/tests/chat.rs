//! Tests of the example `chat`, with guests that talk, leave, and stop reading.

use gosched_examples::Program;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// A client of the program.
struct Guest(BufReader<TcpStream>);

impl Guest {
    /// Connects a guest that has not sent its name.
    fn new(program: &Program) -> Guest {
        let mut guest = Guest(BufReader::new(program.connect()));
        guest.expect_line("your name?");
        guest
    }

    /// Connects a guest and waits until the room has admitted it.
    fn named(program: &Program, name: &str) -> Guest {
        let mut guest = Guest::new(program);
        guest.say(name);
        guest.expect_line(&format!("* {name} is here"));
        guest
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the server closed the connection");
        line.trim_end_matches('\n').to_owned()
    }

    #[track_caller]
    fn expect_line(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }
}

fn start() -> Program {
    Program::start(env!("CARGO_BIN_EXE_chat"), &[])
}

#[test]
fn every_guest_gets_all_lines_and_notices_of_arrivals_and_departures() {
    let program = start();
    let mut ann = Guest::named(&program, "ann");
    let mut bob = Guest::named(&program, "bob");
    ann.expect_line("* bob is here");
    ann.say("hello\u{7}");
    ann.expect_line("ann: hello");
    bob.expect_line("ann: hello");
    drop(bob);
    ann.expect_line("* bob has left");
    // The name is free again.
    let _bob = Guest::named(&program, "bob");
    ann.expect_line("* bob is here");
}

#[test]
fn only_one_guest_can_have_a_name() {
    let program = start();
    let mut ann = Guest::named(&program, "ann");
    let mut other = Guest::new(&program);
    other.say("ann");
    other.expect_line("another name, please");
    other.say("");
    other.expect_line("another name, please");
    other.say("eve");
    other.expect_line("* eve is here");
    ann.expect_line("* eve is here");
    // A guest that never sent a name leaves without an announcement.
    drop(Guest::new(&program));
    other.say("hi");
    ann.expect_line("eve: hi");
}

#[test]
fn lines_of_one_guest_reach_every_guest_in_order() {
    let program = start();
    let mut guests: Vec<Guest> = Vec::new();
    for i in 0..20 {
        let guest = Guest::named(&program, &format!("guest{i}"));
        guests.iter_mut().for_each(|other| other.expect_line(&format!("* guest{i} is here")));
        guests.push(guest);
    }
    for i in 0..20 {
        guests[3].say(&format!("line {i}"));
    }
    for guest in &mut guests {
        (0..20).for_each(|i| guest.expect_line(&format!("guest3: line {i}")));
    }
}

#[test]
fn a_guest_that_does_not_read_is_removed_and_does_not_block_other_guests() {
    let program = start();
    let mut deaf = Guest::named(&program, "deaf");
    let mut ann = Guest::named(&program, "ann");
    deaf.expect_line("* ann is here");
    let long = "x".repeat(4000);
    // `ann` reads each line before it sends the next, so only `deaf` falls behind.
    let gone = (0..100_000).any(|_| {
        ann.say(&long);
        // The announcement that `deaf` was removed may come before or after the line.
        let line = ann.line();
        line == "* deaf does not read" || {
            assert!(line.starts_with("ann: x"), "{line}");
            false
        }
    });
    assert!(gone);
    ann.say("good");
    while ann.line() != "ann: good" {}
}
