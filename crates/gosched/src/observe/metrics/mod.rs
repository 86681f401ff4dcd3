//! Metrics: what the runtime counts and measures, under Go's names where Go has such a metric.
//!
//! A snapshot has one value for each line of the table in `table`, read when the snapshot is taken.
//!
//! Taking a snapshot never stops goroutines, so its values may be of different moments.

mod prometheus;
mod table;

pub use table::descriptions;

use crate::probe::histogram::{Durations, bounds};

/// The description of a metric, returned by [`descriptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The name of the metric, with its unit after the colon: `/sched/latencies:seconds`.
    pub name: &'static str,
    /// What the metric measures, in words.
    pub description: &'static str,
    /// The kind of the metric's [`Value`].
    pub kind: Kind,
    /// Whether the value only grows, starting from 0 when the process starts.
    pub cumulative: bool,
}

/// The kind of a metric's [`Value`]. The kind of a metric never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The value is a [`Value::Uint64`].
    Uint64,
    /// The value is a [`Value::Float64`].
    Float64,
    /// The value is a [`Value::Histogram`].
    Histogram,
}

/// The value of a metric at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A count.
    Uint64(u64),
    /// An amount, in the unit that the metric's name contains.
    Float64(f64),
    /// A distribution of values.
    Histogram(Histogram),
}

/// A distribution: the number of values in each of several ranges.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[doc(alias = "Float64Histogram")]
pub struct Histogram {
    /// The number of values in each range: `counts[i]` values were at least `buckets[i]`, and less
    /// than `buckets[i + 1]`.
    pub counts: Vec<u64>,
    /// The bounds of the ranges, one more than there are counts. The first may be negative
    /// infinity, and the last may be infinity.
    pub buckets: Vec<f64>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    fn new(durations: &Durations) -> Histogram {
        let Durations { counts, sum_nanos } = durations;
        Histogram { counts: counts.clone(), buckets: bounds(), sum: seconds(*sum_nanos) }
    }

    /// Returns the number of values.
    ///
    /// ```
    /// use gosched::runtime::{Value, metrics};
    ///
    /// let Some(Value::Histogram(latencies)) =
    ///     metrics().get("/sched/latencies:seconds").cloned()
    /// else {
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

/// A snapshot of all metrics, returned by [`metrics`](crate::runtime::metrics).
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// One value for each metric in [`descriptions`], in the same order.
    values: Vec<Value>,
}

impl Metrics {
    /// Returns the value of the metric `name`, which includes the unit after the colon. Returns
    /// `None` if there is no such metric.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let place = table::DESCRIPTIONS.binary_search_by(|metric| metric.name.cmp(name)).ok()?;
        self.values.get(place)
    }

    /// Returns the names and values of all metrics, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        table::DESCRIPTIONS.iter().map(|metric| metric.name).zip(&self.values)
    }

    /// Formats all metrics in Prometheus's text format, version 0.0.4.
    ///
    /// The content type of the text is `text/plain; version=0.0.4`. Go's metrics get the names that
    /// the Go collector of Prometheus's client library gives them: `/sched/latencies:seconds`
    /// becomes `go_sched_latencies_seconds`, and the name of a counter ends with `_total`. The
    /// names of this crate's own metrics begin with `gosched_`. A histogram has about one bucket
    /// for each power of ten, as in that collector.
    ///
    /// ```
    /// let text = gosched::runtime::metrics().to_prometheus();
    /// assert!(text.contains("\ngo_sched_gomaxprocs_threads "));
    /// ```
    pub fn to_prometheus(&self) -> String {
        prometheus::text(self)
    }
}

/// Takes a snapshot of all metrics.
pub(crate) fn metrics() -> Metrics {
    let seen = table::Sample::now();
    Metrics { values: table::READ.iter().map(|read| read(&seen)).collect() }
}
