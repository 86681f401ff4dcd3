//! Prometheus's text format, with the names that the Go collector of Prometheus's client library
//! gives to Go's metrics. This module never reads a metric: it formats a snapshot that was taken
//! before.

use super::{Description, Histogram, Kind, Metrics, Value, table};
use std::fmt::Write;

/// Formats all metrics.
pub(super) fn text(metrics: &Metrics) -> String {
    let mut text = String::new();
    for (metric, value) in table::DESCRIPTIONS.iter().zip(&metrics.values) {
        let name = name(metric);
        let kind = match metric.kind {
            Kind::Histogram => "histogram",
            _ if metric.cumulative => "counter",
            _ => "gauge",
        };
        let Description { name: source, description, .. } = metric;
        let help = description.replace('\\', r"\\").replace('\n', r"\n");
        line(&mut text, format_args!("# HELP {name} {help} Sourced from {source}."));
        line(&mut text, format_args!("# TYPE {name} {kind}"));
        match value {
            Value::Uint64(value) => line(&mut text, format_args!("{name} {value}")),
            Value::Float64(value) => line(&mut text, format_args!("{name} {value}")),
            Value::Histogram(histogram) => buckets(&mut text, &name, histogram),
        }
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A write to a `String` does not fail.
    let _ = writeln!(text, "{line}");
}

/// Returns the name for Prometheus. This crate's own metrics begin with `gosched_`; all others are
/// Go's and begin with `go_`.
fn name(metric: &Description) -> String {
    let prefix = if metric.name.starts_with("/gosched/") { "" } else { "go" };
    let total = if metric.cumulative && metric.kind != Kind::Histogram { "_total" } else { "" };
    let words = metric.name.replace(['/', ':', '-'], "_");
    let words = if prefix.is_empty() { words.trim_start_matches('_') } else { &words };
    format!("{prefix}{words}{total}")
}

fn buckets(text: &mut String, name: &str, histogram: &Histogram) {
    let mut total = 0;
    let mut next = 0.0;
    for (count, bound) in histogram.counts.iter().zip(&histogram.buckets[1..]) {
        total += count;
        // As in the Go collector, each printed bound is at least ten times the previous one.
        if bound.is_finite() && *bound > 0.0 && *bound >= next {
            next = bound * 10.0;
            // A value equal to the bound is in the next bucket here, but in this bucket for
            // Prometheus.
            let most = bound.next_down();
            line(text, format_args!("{name}_bucket{{le=\"{most}\"}} {total}"));
        }
    }
    line(text, format_args!("{name}_bucket{{le=\"+Inf\"}} {total}"));
    line(text, format_args!("{name}_sum {}", histogram.sum));
    line(text, format_args!("{name}_count {total}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(source: &'static str, kind: Kind, cumulative: bool) -> String {
        name(&Description { name: source, description: "", kind, cumulative })
    }

    #[test]
    fn prometheus_names_are_the_same_as_in_go_s_collector() {
        let named_as = [
            ("/sched/latencies:seconds", Kind::Histogram, true, "go_sched_latencies_seconds"),
            ("/sched/gomaxprocs:threads", Kind::Uint64, false, "go_sched_gomaxprocs_threads"),
            (
                "/sched/goroutines-created:goroutines",
                Kind::Uint64,
                true,
                "go_sched_goroutines_created_goroutines_total",
            ),
            (
                "/cpu/classes/user:cpu-seconds",
                Kind::Float64,
                true,
                "go_cpu_classes_user_cpu_seconds_total",
            ),
            ("/gosched/steals:events", Kind::Uint64, true, "gosched_steals_events_total"),
        ];
        for (source, kind, cumulative, wanted) in named_as {
            assert_eq!(named(source, kind, cumulative), wanted);
        }
    }

    #[test]
    fn buckets_are_cumulative_and_about_ten_times_apart() {
        let histogram = Histogram {
            counts: vec![1, 2, 3, 4, 5],
            buckets: vec![f64::NEG_INFINITY, 0.0, 1.0, 5.0, 16.0, f64::INFINITY],
            sum: 2.5,
        };
        let mut text = String::new();
        buckets(&mut text, "x", &histogram);
        let (one, sixteen) = (1f64.next_down(), 16f64.next_down());
        let wanted = format!(
            "x_bucket{{le=\"{one}\"}} 3\nx_bucket{{le=\"{sixteen}\"}} 10\n\
             x_bucket{{le=\"+Inf\"}} 15\nx_sum 2.5\nx_count 15\n"
        );
        assert_eq!(text, wanted);
    }
}
