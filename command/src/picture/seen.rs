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
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// The median with its unit.
pub fn with_unit(row: &Row) -> String {
    match row.unit.as_str() {
        "" => number(row.value),
        unit => format!("{} {}", number(row.value), unit_words(unit)),
    }
}

/// A unit as people write it.
pub fn unit_words(unit: &str) -> &str {
    if unit == "us" { "µs" } else { unit }
}

/// Compares one with others, as it goes on after its value:
/// `, which is 1.5 times B (111), 0.9 times C (190)`; or for percentages, which are not compared as ratios,
/// `; B 11.1 %, C 19.0 %`. Empty if there are no others.
pub fn among(row: &Row, others: &[(&str, &Row)]) -> String {
    let (before, all) = if row.unit == "%" {
        let all = others.iter().map(|(words, other)| format!("{words} {}", with_unit(other)));
        ("; ", all.collect::<Vec<_>>().join(", "))
    } else {
        (", which is ", times(row, others))
    };
    if all.is_empty() { all } else { format!("{before}{all}") }
}

fn times(row: &Row, others: &[(&str, &Row)]) -> String {
    let found =
        others.iter().filter(|(_, other)| row.value > 0.0 && other.value > 0.0).map(|(words, other)| {
            let ratio = match row.value / other.value {
                ratio if ratio >= 9.5 => format!("{ratio:.0}"),
                ratio if ratio >= 1.5 => format!("{ratio:.1}"),
                ratio => format!("{ratio:.2}"),
            };
            format!("{ratio} times {words} ({})", number(other.value))
        });
    found.collect::<Vec<_>>().join(", ")
}

/// Returns the good side of a metric, if it has one.
pub fn better_of(metric: &str, unit: &str) -> Option<Better> {
    match (metric, unit) {
        (_, "ns" | "us" | "ms" | "s") | ("messages" | "count" | "memory", _) => Some(Better::Lower),
        (metric, _) if metric.contains("rate") || metric == "operations" => Some(Better::Higher),
        (_, unit) if unit.ends_with("/s") => Some(Better::Higher),
        _ => None,
    }
}
