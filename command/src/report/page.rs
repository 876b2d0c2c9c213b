//! The page of a report: one file, nothing from elsewhere.

use super::{Missing, Outcome};
use crate::picture::Picture;
use serde_json::{Map, Value};
use std::fmt::Write;
use vgas::config::Config;
use vgas_bench::figure::Verdict;
use vgas_bench::registry::Row;

const STYLE: &str = "\
body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{font-size:1.25em;margin-top:2.5em;border-top:1px solid #ccc;padding-top:.8em}\
code,pre{font:13px/1.45 monospace;background:#f5f5f5}code{padding:.1em .3em}pre{padding:.7em;overflow-x:auto}\
figure{margin:1.2em 0}figure svg{max-width:100%;height:auto}figcaption{font-size:14px}figcaption p{margin:.3em 0}\
table{border-collapse:collapse;font-size:13px}td,th{padding:.15em .7em .15em 0;text-align:left;vertical-align:top}\
td.n{text-align:right;font-variant-numeric:tabular-nums}.pair{display:flex;gap:1em}.pair>figure{flex:1;min-width:0}\
.missing{color:#a33}.met{color:#275}summary{cursor:pointer}";

/// The whole page.
pub fn html(outcomes: &[Outcome], machine: &Map<String, Value>, config: &Config) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>vgas: a report</title><style>{STYLE}</style>\
         </head><body>\n<h1>The cost of a global address space on this machine</h1>\n"
    );
    contents(&mut page, outcomes);
    for group in outcomes.chunk_by(|a, b| std::ptr::eq(a.benchmark, b.benchmark)) {
        section(&mut page, group);
    }
    page.push_str("<h2 id=\"machine\">The machine, and the settings</h2>\n<table>");
    for (name, value) in machine {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        row(&mut page, &[&name.replace('_', " "), &value]);
    }
    page.push_str("</table>\n<details><summary>What this machine offers</summary><pre>");
    page.push_str(&escaped(&vgas::info::survey(config.settings()).to_string()));
    page.push_str("</pre></details>\n<details><summary>Settings, and where each comes from; benchmarks have some of their own</summary><pre>");
    for value in config.values() {
        let line = format!("{} = {}  ({})\n", value.setting.name, value.text, value.origin);
        page.push_str(&escaped(&line));
    }
    page.push_str(
        "</pre></details>\n<p>Medians; bars reach over all samples. Virtual nodes share one machine, so rates that grow with real nodes may \
         not grow here. <a href=\"rows.json\">rows.json</a> has all rows with their samples; <code>vgas bench compare OLD NEW</code> \
         compares two such files.</p>\n</body></html>\n",
    );
    page
}

fn contents(page: &mut String, outcomes: &[Outcome]) {
    page.push_str("<table>");
    for outcome in outcomes {
        let benchmark = outcome.benchmark;
        let what = match &outcome.stored.result {
            Ok(_) => escaped(benchmark.help),
            Err(missing) => format!("<span class=\"missing\">{}</span>", escaped(&why(missing))),
        };
        let variant = outcome.variant();
        let beside = if variant.is_empty() { variant } else { format!(", {variant}") };
        let name = benchmark.name;
        let seconds = outcome.stored.seconds;
        let cells = format!(
            "<td><a href=\"#{name}\">{name}</a>{beside}</td><td>{what}</td><td class=\"n\">{seconds:.0} s</td>"
        );
        writeln!(page, "<tr>{cells}</tr>").unwrap_or_default();
    }
    page.push_str("</table>\n<p><a href=\"#machine\">The machine, and the settings</a></p>\n");
}

fn why(missing: &Missing) -> String {
    let word = if missing.is_skipped { "skipped" } else { "failed" };
    format!("{word}: {}", missing.why)
}

/// A benchmark, idle, and busy beside it if requested.
fn section(page: &mut String, group: &[Outcome]) {
    let Some(first) = group.first() else { return };
    let (name, help) = (first.benchmark.name, escaped(first.benchmark.help));
    writeln!(page, "<h2 id=\"{name}\">{name}</h2>\n<p>{help}</p>").unwrap_or_default();
    for outcome in group {
        writeln!(page, "<p><code>{}</code></p>", escaped(&outcome.stored.command)).unwrap_or_default();
        if let Err(missing) = &outcome.stored.result {
            writeln!(page, "<p class=\"missing\">{}</p>", escaped(&why(missing))).unwrap_or_default();
        }
    }
    let columns: Vec<(String, Vec<Picture>)> =
        group.iter().map(|one| (one.variant(), one.pictures())).collect();
    let mut names: Vec<&str> = Vec::new();
    for picture in columns.iter().flat_map(|(_, pictures)| pictures) {
        if !names.contains(&picture.name.as_str()) {
            names.push(&picture.name);
        }
    }
    for name in names {
        page.push_str("<div class=\"pair\">");
        for (variant, pictures) in &columns {
            pictures.iter().filter(|picture| picture.name == name).for_each(|one| figure(page, one, variant));
        }
        page.push_str("</div>\n");
    }
    for outcome in group {
        if let Ok(rows) = &outcome.stored.result {
            let variant = outcome.variant();
            let beside = if variant.is_empty() { variant } else { format!(", {variant}") };
            writeln!(page, "<details><summary>All rows{beside}</summary>").unwrap_or_default();
            table(page, rows);
            page.push_str("</details>\n");
        }
    }
}

fn figure(page: &mut String, picture: &Picture, variant: &str) {
    let question = escaped(&picture.question);
    let svg = picture.svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{question}\" "), 1);
    writeln!(page, "<figure>{svg}<figcaption>").unwrap_or_default();
    if !variant.is_empty() {
        writeln!(page, "<p><b>Variant:</b> {variant}.</p>").unwrap_or_default();
    }
    if !picture.conditions.is_empty() {
        writeln!(page, "<p><b>Conditions:</b> {}.</p>", escaped(&picture.conditions)).unwrap_or_default();
    }
    if !picture.expect.is_empty() {
        writeln!(page, "<p><b>Expected:</b> {}</p>", escaped(&picture.expect)).unwrap_or_default();
    }
    match &picture.verdict {
        Some(Verdict { holds: true, .. }) => page.push_str("<p class=\"met\">✓ as expected</p>\n"),
        Some(Verdict { failures, .. }) => {
            let failures = escaped(&failures.join("; "));
            writeln!(page, "<p class=\"missing\">✗ not as expected: {failures}</p>").unwrap_or_default();
        }
        None => {}
    }
    writeln!(page, "<p><b>Measured:</b> {}</p></figcaption></figure>", escaped(&picture.seen))
        .unwrap_or_default();
}

fn table(page: &mut String, rows: &[Row]) {
    page.push_str(
        "<table><tr><th>case</th><th>circumstances</th><th>metric</th><th>median</th><th>samples</th></tr>\n",
    );
    for one in rows {
        let params: Vec<String> =
            one.params.iter().map(|(name, value)| format!("{name}={value}").replace('"', "")).collect();
        let median = format!("{} {}", crate::commands::figure(one.value), one.unit);
        let count = one.samples.len().to_string();
        row(page, &[&one.case, &params.join(" "), &one.metric, &median, &count]);
    }
    page.push_str("</table>\n");
}

fn row(page: &mut String, cells: &[&str]) {
    page.push_str("<tr>");
    for cell in cells {
        write!(page, "<td>{}</td>", escaped(cell)).unwrap_or_default();
    }
    page.push_str("</tr>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::Stored;
    use super::*;
    use vgas_bench::registry;

    /// Goal: the page lists the runs and their conditions, the missing ones with reasons, and loads nothing
    /// from elsewhere.
    #[test]
    fn a_page_has_figures_captions_and_what_is_missing() {
        let rows = vec![Row::new("hit", "get 8 B, cached", "latency", "ns", vec![4.0, 5.0])];
        let of = |name: &str, busy, result| Outcome {
            benchmark: registry::find(name).unwrap(),
            busy,
            is_unthrottled: false,
            stored: Stored { command: format!("vgas bench {name} --set=a<b"), seconds: 1.0, result },
        };
        let missing = Missing { is_skipped: true, why: "no io_uring & no disk".into() };
        let outcomes =
            [of("hit", 0, Ok(rows.clone())), of("hit", 2, Ok(rows)), of("device", 0, Err(missing))];
        let page = html(&outcomes, &Map::new(), &Config::defaults());
        for words in [
            "What does a hit of 8 bytes cost?",
            "<b>Expected:</b> A few nanoseconds",
            "✓ as expected",
            "<b>Measured:</b>",
            "beside 2 processes",
            "--set=a&lt;b",
            "skipped: no io_uring &amp; no disk",
            "cache.size = ",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<svg ").count(), 2);
        assert!(!page.contains("src=") && !page.replace("http://www.w3.org/2000/svg", "").contains("http"));
    }
}
