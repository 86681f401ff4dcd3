//! Metrics: what can be counted and measured, under Go's names where Go has one.
//!
//! A snapshot is one value for each line of the table in `names`, read when it is asked for.

mod prometheus;
mod table;

use crate::probe::histogram::{Durations, bounds};

/// What a metric is, and how it is read: [`descriptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Its name, and after the colon its unit: `/sched/latencies:seconds`.
    pub name: &'static str,
    /// What it says, in words.
    pub description: &'static str,
    /// What kind of [`Value`] it has.
    pub kind: Kind,
    /// It only grows, from 0 when the process begins.
    pub cumulative: bool,
}

/// Which [`Value`] a metric has, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// [`Value::Uint64`].
    Uint64,
    /// [`Value::Float64`].
    Float64,
    /// [`Value::Histogram`].
    Histogram,
}

/// All metrics there are, in the order of their names.
///
/// ```
/// for metric in gosched::runtime::descriptions() {
///     println!("{}: {}", metric.name, metric.description);
/// }
/// ```
#[doc(alias = "All")]
pub fn descriptions() -> &'static [Description] {
    table::DESCRIPTIONS
}

/// The value of one metric at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A count.
    Uint64(u64),
    /// An amount, in the unit of its name.
    Float64(f64),
    /// How many there were of each size.
    Histogram(Histogram),
}

/// How many values were between one bound and the next.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[doc(alias = "Float64Histogram")]
pub struct Histogram {
    /// `counts[i]` values were at least `buckets[i]`, and less than `buckets[i + 1]`.
    pub counts: Vec<u64>,
    /// The bounds, one more than counts. The first may be negative infinity, the last infinity.
    pub buckets: Vec<f64>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    fn new(durations: &Durations) -> Histogram {
        let Durations { counts, sum_nanos } = durations;
        Histogram { counts: counts.clone(), buckets: bounds(), sum: seconds(*sum_nanos) }
    }

    /// How many values there were.
    ///
    /// ```
    /// use gosched::runtime::{Value, metrics};
    ///
    /// let Some(Value::Histogram(latencies)) = metrics().get("/sched/latencies:seconds").cloned() else {
    ///     unreachable!()
    /// };
    /// assert_eq!(latencies.count(), latencies.counts.iter().sum());
    /// ```
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// All metrics at one moment: [`metrics`](crate::runtime::metrics).
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// One for each of [`descriptions`].
    values: Vec<Value>,
}

impl Metrics {
    /// The value of the metric of that name, if there is such a metric.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let place = table::DESCRIPTIONS.binary_search_by(|metric| metric.name.cmp(name)).ok()?;
        self.values.get(place)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        table::DESCRIPTIONS.iter().map(|metric| metric.name).zip(&self.values)
    }

    /// All of them in Prometheus's text format, version 0.0.4 (`text/plain; version=0.0.4`).
    ///
    /// Names are what Go's own collector makes of Go's: `/sched/latencies:seconds` is
    /// `go_sched_latencies_seconds`, a counter ends in `_total`; ours begin with `gosched_`. Histograms have a
    /// bucket for about each power of ten, as Go's have there.
    ///
    /// ```
    /// let text = gosched::runtime::metrics().to_prometheus();
    /// assert!(text.contains("\ngo_sched_gomaxprocs_threads "));
    /// ```
    pub fn to_prometheus(&self) -> String {
        prometheus::text(self)
    }
}

/// Reads all of them.
pub(crate) fn metrics() -> Metrics {
    let seen = table::Sample::now();
    Metrics { values: table::READ.iter().map(|read| read(&seen)).collect() }
}
