//! Steps through the events of a scenario: finds the events that its rule is about, checks them,
//! and keeps the state after each. This module never prints.

use super::replay::World;
use gosched::debug::events::{Event, EventKind};
use std::collections::HashMap;

/// The numbers that a scenario gives its goroutines: G1, G2 and so on, as in the texts about Go's
/// scheduler. The program's own numbers depend on what ran before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(HashMap<u64, u32>);

impl Names {
    /// Gives goroutines their numbers: the first is G`first`.
    pub(crate) fn add(&mut self, first: u32, goroutines: impl IntoIterator<Item = u64>) {
        self.0.extend(goroutines.into_iter().zip(first..));
    }

    /// Returns the number of a goroutine of the scenario.
    pub(crate) fn number(&self, g: u64) -> Option<u32> {
        self.0.get(&g).copied()
    }

    /// Returns the name of a goroutine.
    pub(crate) fn name(&self, g: u64) -> String {
        self.number(g).map_or_else(|| "another".to_owned(), |number| format!("G{number}"))
    }
}

/// One step of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What happened.
    pub(crate) caption: String,
    /// The scheduler after it.
    pub(crate) world: World,
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
    pub(crate) steps: Vec<Step>,
    pub(crate) names: Names,
    /// What was checked beyond the steps.
    pub(crate) facts: Vec<String>,
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
    pub(crate) fn new(events: Vec<Event>, names: Names) -> Show {
        let act = Act { steps: Vec::new(), names, facts: Vec::new() };
        Show { events, at: 0, world: World::default(), act }
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
        self.act.steps.push(Step { caption, world: self.world.clone() });
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
        let Some(found) = self.events[self.at..].iter().position(is_it) else {
            return Err(self.failure(caption));
        };
        for event in &self.events[self.at..self.at + found] {
            self.world.apply(event);
        }
        self.at += found;
        self.act.steps.push(Step { caption: caption.to_owned(), world: self.world.clone() });
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
        let found = self.events[self.at..].iter().position(is_it);
        let Some(found) = found else { return Err(self.failure(expected)) };
        let last = self.at + found;
        for event in &self.events[self.at..=last] {
            self.world.apply(event);
        }
        self.at = last + 1;
        Ok(self.events[last])
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

    /// Ends the walk.
    pub(crate) fn end(self) -> Act {
        self.act
    }

    /// Returns the failure of an expectation, with the events from the last step on.
    fn failure(&self, expected: &str) -> Failure {
        let from = self.at.saturating_sub(4);
        let seen = self.events[from..].iter().take(LISTED).map(|event| self.line(event)).collect();
        Failure { expected: expected.to_owned(), seen }
    }

    /// Returns an event as a line, with the scenario's name of its goroutine.
    fn line(&self, event: &Event) -> String {
        match goroutine(event.kind).and_then(|g| self.act.names.number(g)) {
            Some(number) => format!("{event}  (G{number} here)"),
            None => event.to_string(),
        }
    }
}

/// Returns the goroutine that an event is about.
fn goroutine(kind: EventKind) -> Option<u64> {
    match kind {
        EventKind::Spawn { g, .. }
        | EventKind::Ready { g, .. }
        | EventKind::Enqueue { g, .. }
        | EventKind::Displace { g, .. }
        | EventKind::Spill { g, .. }
        | EventKind::Run { g, .. }
        | EventKind::TakeGlobal { g, .. }
        | EventKind::Steal { g, .. }
        | EventKind::Park { g, .. }
        | EventKind::Yield { g, .. }
        | EventKind::Exit { g }
        | EventKind::Preempt { g, .. }
        | EventKind::EnterCall { g, .. }
        | EventKind::LeaveCall { g, .. } => Some(g),
        _ => None,
    }
}
