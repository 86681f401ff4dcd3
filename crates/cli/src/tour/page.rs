//! Writes a page that shows scenarios step by step: one file, which needs no network. This module
//! never decides what is shown of the scheduler: the page shows the state that `replay` has rebuilt
//! after each event.

use super::replay::{MState, World};
use super::scenarios::{GO_VERSION, Scenario};
use super::screen::activity;
use super::show::{Act, Failure, Names};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The page without its data.
const TEMPLATE: &str = include_str!("page.html");
/// Where the data goes.
const DATA: &str = "/*DATA*/null";

/// More events between two steps than this are not shown one by one.
const MAX_BETWEEN: usize = 10;
/// That many of them are shown at either end.
const SHOWN_AT_ENDS: usize = 4;

/// How many moments are shown of a scenario whose events are only counted.
const MAX_COUNTS: usize = 40;

/// A page that is being made.
#[derive(Debug)]
pub(crate) struct Page {
    file: File,
    path: PathBuf,
    /// Where the page is written before it takes its place.
    part: PathBuf,
    scenarios: Vec<Value>,
}

impl Page {
    /// Begins the file `index.html` in this folder, and creates the folder if there is none. A page
    /// that is there stays until [`Page::write`].
    ///
    /// # Errors
    /// The folder or the file cannot be created.
    pub(crate) fn new(folder: &Path) -> io::Result<Page> {
        let (path, part) = (folder.join("index.html"), folder.join("index.html.part"));
        let cannot = |why: io::Error| {
            io::Error::new(why.kind(), format!("cannot create {}: {why}", path.display()))
        };
        fs::create_dir_all(folder).map_err(cannot)?;
        let file = File::create(&part).map_err(cannot)?;
        Ok(Page { file, path, part, scenarios: Vec::new() })
    }

    /// Adds a scenario.
    pub(crate) fn add(
        &mut self,
        number: usize,
        scenario: &Scenario,
        outcome: &Result<Act, Failure>,
    ) {
        let go: Vec<String> = scenario
            .go
            .iter()
            .map(|line| format!("runtime/{}:{} {}", line.file, line.line, line.what))
            .collect();
        let mut value = json!({
            "number": number,
            "title": scenario.title,
            "rule": scenario.rule,
            "go": go,
            "frames": [],
            "facts": [],
            "notes": [],
        });
        match outcome {
            Ok(act) => {
                value["frames"] = frames(act).into();
                value["facts"] = act.facts.clone().into();
                value["notes"] = act.notes.clone().into();
            }
            Err(Failure { expected, seen }) => {
                value["failure"] = json!({ "expected": expected, "seen": seen });
            }
        }
        self.scenarios.push(value);
    }

    /// Writes the page. Returns its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(mut self) -> io::Result<PathBuf> {
        let data = json!({ "go": GO_VERSION, "scenarios": self.scenarios });
        // In a script element, `</script>` would end the element.
        let data = data.to_string().replace('<', "\\u003c");
        let written = self.file.write_all(TEMPLATE.replacen(DATA, &data, 1).as_bytes());
        written.and_then(|()| fs::rename(&self.part, &self.path)).map_err(|why| {
            io::Error::new(why.kind(), format!("cannot write {}: {why}", self.path.display()))
        })?;
        Ok(self.path)
    }
}

/// What the page shows at one moment.
fn frame(text: &str, is_step: bool, world: &World, names: &Names) -> Value {
    let number = |g: u64| names.number(g).map_or(-1, i64::from);
    let ps: Vec<Value> = world
        .ps
        .iter()
        .map(|(p, view)| {
            let queue = ranges(view.queue.iter().map(|place| number(place.1)));
            json!([p, view.run_next.map(number), queue])
        })
        .collect();
    let ms: Vec<Value> = world
        .ms
        .iter()
        .map(|(m, view)| {
            let (kind, g) = match view.state {
                MState::Scheduling => ("schedules", None),
                MState::Running(g) => ("runs", Some(number(g))),
                MState::Spinning => ("searches", None),
                MState::InCall(g) => ("blocked", Some(number(g))),
                MState::Waking => ("wakes", None),
                MState::Sleeping => ("sleeps", None),
            };
            json!([m, view.p, kind, g, activity(view.state, names)])
        })
        .collect();
    let global = ranges(world.global.iter().map(|&g| number(g)));
    let way: Vec<i64> = world.on_the_way.iter().map(|&g| number(g)).collect();
    json!({ "text": text, "step": is_step, "p": ps, "m": ms, "q": global, "way": way })
}

/// Joins numbers that follow each other: a full queue is `[[3, 258]]`.
fn ranges(numbers: impl Iterator<Item = i64>) -> Vec<[i64; 2]> {
    let mut ranges: Vec<[i64; 2]> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some([first, last]) if *first > 0 && *last + 1 == number => *last = number,
            _ => ranges.push([number, number]),
        }
    }
    ranges
}

/// The steps of an act, and the events between them that change what is shown.
fn frames(act: &Act) -> Vec<Value> {
    let (mut world, mut at, mut frames) = (World::new(act.procs), 0, Vec::new());
    for (number, step) in act.steps.iter().enumerate() {
        let mut between = Vec::new();
        for (index, event) in act.events[at..step.end].iter().enumerate() {
            let before = world.clone();
            world.apply(event);
            if at + index + 1 < step.end && world != before {
                between.push((act.line(event), world.clone()));
            }
        }
        at = step.end;
        // What came before the first step does not matter.
        let shown = if number == 0 { Vec::new() } else { ends_of(between) };
        frames.extend(shown.iter().map(|(text, world)| frame(text, false, world, &act.names)));
        frames.push(frame(&step.caption, true, &world, &act.names));
    }
    // The last of them shows the end.
    let every = act.counts.len().div_ceil(MAX_COUNTS).max(1);
    frames.extend(
        act.counts
            .iter()
            .rev()
            .step_by(every)
            .rev()
            .map(|counts| json!({ "text": counts.caption, "step": false, "bars": counts.bars })),
    );
    frames
}

fn ends_of(mut between: Vec<(String, World)>) -> Vec<(String, World)> {
    if between.len() <= MAX_BETWEEN {
        return between;
    }
    let end = between.split_off(between.len() - SHOWN_AT_ENDS);
    let hidden = between.split_off(SHOWN_AT_ENDS);
    let count = hidden.len();
    let last = hidden.into_iter().next_back();
    let merged = last.map(|(_, world)| (format!("{count} more events"), world));
    between.into_iter().chain(merged).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_one_range() {
        assert_eq!(
            ranges([3, 4, 5, 9, -1, -1, 0, 1].into_iter()),
            [[3, 5], [9, 9], [-1, -1], [-1, -1], [0, 0], [1, 1]]
        );
    }

    #[test]
    fn many_events_between_two_steps_are_merged() {
        let events = |count: usize| (0..count).map(|n| (n.to_string(), World::default())).collect();
        let texts = |shown: Vec<(String, World)>| -> Vec<String> {
            shown.into_iter().map(|(text, _)| text).collect()
        };
        assert_eq!(texts(ends_of(events(10))).len(), 10);
        let merged = texts(ends_of(events(100)));
        assert_eq!(merged, ["0", "1", "2", "3", "92 more events", "96", "97", "98", "99"]);
    }

    #[test]
    fn the_template_has_a_place_for_the_data() {
        assert_eq!(TEMPLATE.matches(DATA).count(), 1);
        assert!(!TEMPLATE.contains("http"), "the page needs no network");
    }
}
