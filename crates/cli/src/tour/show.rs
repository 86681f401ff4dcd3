//! Steps through the events of a scenario: finds the events that its rule is about, checks them,
//! and keeps the state after each. This module never prints.

use super::replay::World;
use gosched::debug::events::Event;
use std::collections::HashMap;

/// The numbers that a scenario gives its goroutines: G1, G2 and so on, as in the texts about Go's
/// scheduler. The program's own numbers depend on what ran before.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    numbers: HashMap<u64, u32>,
    main: u64,
}

impl Names {
    /// Gives goroutines their numbers, from G1 on. The caller is the goroutine that runs the
    /// scenarios: it is called `main`.
    pub(crate) fn new(goroutines: &[u64]) -> Names {
        let main = gosched::id().map_or(0, gosched::GoId::get);
        Names { numbers: goroutines.iter().copied().zip(1..).collect(), main }
    }

    /// Returns the number of a goroutine of the scenario. The goroutine `main` has the number 0.
    pub(crate) fn number(&self, g: u64) -> Option<u32> {
        let number = self.numbers.get(&g).copied();
        number.or((g == self.main).then_some(0))
    }

    /// Returns the name of a goroutine.
    pub(crate) fn name(&self, g: u64) -> String {
        match self.number(g) {
            Some(0) => "main".to_owned(),
            Some(number) => format!("G{number}"),
            None => "another".to_owned(),
        }
    }
}

/// One step of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What happened.
    pub(crate) caption: String,
    /// How many of the act's events have happened by then.
    pub(crate) end: usize,
}

/// A rule that the scheduler did not keep.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What should have happened.
    pub(crate) expected: String,
    /// The events, of which none is the expected one.
    pub(crate) seen: Vec<String>,
}

/// A scenario that kept its rule.
#[derive(Debug)]
pub(crate) struct Act {
    /// The number of Ps.
    pub(crate) procs: usize,
    /// What happened, up to the last step.
    pub(crate) events: Vec<Event>,
    pub(crate) steps: Vec<Step>,
    pub(crate) names: Names,
    /// What was checked beyond the steps.
    pub(crate) facts: Vec<String>,
    /// What was measured. No rule demands it.
    pub(crate) notes: Vec<String>,
    /// How quantities changed, for a scenario with more events than can be shown.
    pub(crate) counts: Vec<Counts>,
}

/// Quantities at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// What happened.
    pub(crate) caption: String,
    /// Names, values, and the largest values that they can have.
    pub(crate) bars: Vec<(&'static str, u64, u64)>,
}

impl Act {
    /// Returns an event as a line, with the scenario's names of its goroutines.
    pub(crate) fn line(&self, event: &Event) -> String {
        let text = event.to_string();
        let mut line = String::with_capacity(text.len());
        let mut rest = text.as_str();
        // The text names goroutines as G and the program's number.
        while let Some(at) = rest.find('G') {
            let number = &rest[at + 1..];
            let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            line.push_str(&rest[..at]);
            match number[..digits].parse() {
                Ok(g) => line.push_str(&self.names.name(g)),
                Err(_) => line.push('G'),
            }
            rest = &number[digits..];
        }
        line.push_str(rest);
        line
    }
}

/// A walk through the events of a scenario.
#[derive(Debug)]
pub(crate) struct Show {
    events: Vec<Event>,
    /// The number of events that were passed.
    at: usize,
    world: World,
    act: Act,
}

/// How many events a failure lists.
const LISTED: usize = 40;

impl Show {
    /// Begins before the first event.
    pub(crate) fn new(events: Vec<Event>, names: Names, procs: usize) -> Show {
        let act = Act {
            procs,
            events: Vec::new(),
            steps: Vec::new(),
            names,
            facts: Vec::new(),
            notes: Vec::new(),
            counts: Vec::new(),
        };
        Show { events, at: 0, world: World::new(procs), act }
    }

    /// Returns all events.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the name of a goroutine.
    pub(crate) fn name(&self, g: u64) -> String {
        self.act.names.name(g)
    }

    /// Returns the state after the last step.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Goes on to the next event for which `is_it` returns true. The step is shown.
    ///
    /// # Errors
    /// There is no such event.
    pub(crate) fn step(
        &mut self,
        caption: impl Into<String>,
        is_it: impl Fn(&Event) -> bool,
    ) -> Result<Event, Failure> {
        let caption = caption.into();
        let event = self.pass(&caption, is_it)?;
        self.act.steps.push(Step { caption, end: self.at });
        Ok(event)
    }

    /// Goes on to the state before the next event for which `is_it` returns true. The step is
    /// shown.
    ///
    /// # Errors
    /// There is no such event.
    pub(crate) fn step_before(
        &mut self,
        caption: &str,
        is_it: impl Fn(&Event) -> bool,
    ) -> Result<(), Failure> {
        self.go_to(caption, is_it)?;
        self.act.steps.push(Step { caption: caption.to_owned(), end: self.at });
        Ok(())
    }

    /// As [`Show::step`], but the step is not shown.
    ///
    /// # Errors
    /// There is no such event.
    pub(crate) fn pass(
        &mut self,
        expected: &str,
        is_it: impl Fn(&Event) -> bool,
    ) -> Result<Event, Failure> {
        self.go_to(expected, is_it)?;
        let event = self.events[self.at];
        self.world.apply(&event);
        self.at += 1;
        Ok(event)
    }

    /// Goes on to the state before the next event for which `is_it` returns true.
    ///
    /// # Errors
    /// There is no such event.
    fn go_to(&mut self, expected: &str, is_it: impl Fn(&Event) -> bool) -> Result<(), Failure> {
        let found = self.events[self.at..].iter().position(is_it);
        let Some(found) = found else { return Err(self.failure(expected)) };
        for event in &self.events[self.at..self.at + found] {
            self.world.apply(event);
        }
        self.at += found;
        Ok(())
    }

    /// Checks a fact.
    ///
    /// # Errors
    /// The fact is not true.
    pub(crate) fn check(&mut self, fact: impl Into<String>, is_true: bool) -> Result<(), Failure> {
        let fact = fact.into();
        if !is_true {
            return Err(self.failure(&fact));
        }
        self.act.facts.push(fact);
        Ok(())
    }

    /// Adds what was measured.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.act.notes.push(note.into());
    }

    /// Adds how the quantities are now.
    pub(crate) fn count(&mut self, counts: Counts) {
        self.act.counts.push(counts);
    }

    /// Ends the walk.
    pub(crate) fn end(mut self) -> Act {
        self.events.truncate(self.at);
        self.act.events = self.events;
        self.act
    }

    /// Returns the failure of an expectation, with the events from the last step on.
    fn failure(&self, expected: &str) -> Failure {
        let from = self.at.saturating_sub(4);
        let seen = self.events[from..].iter().take(LISTED);
        let seen = seen.map(|event| self.act.line(event)).collect();
        Failure { expected: expected.to_owned(), seen }
    }
}
