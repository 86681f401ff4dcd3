//! Equal stacks once, as Go's `goroutine?debug=1`.

use super::goroutines;
use super::symbols::Symbols;
use crate::sched::viewer::Frames;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write;

/// What goroutines of one kind have in common.
#[derive(Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    frames: Vec<usize>,
    labels: Vec<(String, String)>,
}

/// Everything, as one text.
pub(crate) fn folded() -> String {
    let mut viewer = goroutines::viewer();
    let mut kinds: HashMap<Kind, u64> = HashMap::new();
    let mut total = 0u64;
    let Ok(()) = goroutines::for_each(&mut viewer, |_, goroutine, frames| {
        let labels = goroutine.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let kind = Kind { frames: all(frames), labels: labels.collect() };
        *kinds.entry(kind).or_default() += 1;
        total += 1;
        Ok::<(), Infallible>(())
    });
    let mut kinds: Vec<(Kind, u64)> = kinds.into_iter().collect();
    kinds.sort_by(|(one, count), (other, its_count)| {
        its_count.cmp(count).then_with(|| one.cmp(other))
    });
    let mut text = format!("goroutine profile: total {total}\n");
    let mut symbols = Symbols::default();
    for (kind, count) in &kinds {
        let _ = write!(text, "{count} @");
        for address in &kind.frames {
            // Go tells where calls return to.
            let _ = write!(text, " {:#x}", address + 1);
        }
        if let Some(labels) = labels(&kind.labels) {
            let _ = write!(text, "\n# labels: {labels}");
        }
        text.push('\n');
        for &address in &kind.frames {
            for symbol in symbols.at(address, &viewer).iter().filter(|symbol| !symbol.is_runtime) {
                let _ = write!(text, "#\t{:#x}\t{}", address + 1, symbol.name);
                if let Some(offset) = symbol.offset {
                    let _ = write!(text, "+{offset:#x}");
                }
                if let Some((file, line)) = &symbol.place {
                    let _ = write!(text, "\t{file}:{line}");
                }
                text.push('\n');
            }
        }
        text.push('\n');
    }
    text
}

fn all(frames: &Frames) -> Vec<usize> {
    frames.first.iter().chain(&frames.last).copied().collect()
}

/// `{"key":"value", "key":"value"}`, as Go; `None`: there are none.
fn labels(labels: &[(String, String)]) -> Option<String> {
    let mut sorted: Vec<_> = labels.iter().collect();
    sorted.sort();
    let all: Vec<_> = sorted.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
    (!all.is_empty()).then(|| format!("{{{}}}", all.join(", ")))
}
