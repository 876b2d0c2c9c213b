//! Numbers in words.

use vgas_bench::figure::Better;
use vgas_bench::registry::Row;

/// About three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e6 => format!("{:.2} million", value / 1e6),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The median with its unit.
pub fn with_unit(row: &Row) -> String {
    match row.unit.as_str() {
        "" => number(row.value),
        unit => format!("{} {unit}", number(row.value)),
    }
}

/// How much of another value one is.
pub fn times(value: f64, other: f64) -> String {
    if other == 0.0 || value == 0.0 {
        return "no ratio".into();
    }
    let ratio = value / other;
    match ratio {
        ratio if ratio >= 9.5 => format!("{ratio:.0} times that"),
        ratio if ratio >= 1.5 => format!("{ratio:.1} times that"),
        ratio => format!("{ratio:.2} times that"),
    }
}

/// Which side is good of a metric, where one can say.
pub fn better_of(metric: &str, unit: &str) -> Option<Better> {
    match (metric, unit) {
        (_, "ns" | "us" | "ms" | "s") | ("messages" | "count" | "memory", _) => Some(Better::Lower),
        (metric, _) if metric.contains("rate") || metric == "operations" => Some(Better::Higher),
        (_, unit) if unit.ends_with("/s") => Some(Better::Higher),
        _ => None,
    }
}
