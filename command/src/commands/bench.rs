//! `vgas bench`: lists, starts and prints benchmarks. Their measurements are in vgas-bench.

use crate::cli::Bench;
use crate::failure::Failure;
use crate::job::{self, Job};
use crate::neighbours::Neighbours;
use crate::{launch, limit, output, picture, report};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use vgas::config::{Config, FlagValue, Origin};
use vgas::launch::Group;
use vgas_bench::registry::{self, Benchmark, Options, Row, Setup};

/// Lists the benchmarks, or runs one, in a job if it needs one.
pub fn bench(bench: &Bench) -> Result<u8, Failure> {
    let Some(name) = bench.name.as_deref().filter(|_| !bench.list) else {
        return output::print(&listing());
    };
    if let Some(status) = of_many(bench, name)? {
        return Ok(status);
    }
    let benchmark = registry::find(name).ok_or_else(|| {
        let hint = "`vgas bench --list` lists the benchmarks";
        Failure::usage(format!("no benchmark is named `{name}`")).hint(hint)
    })?;
    if let Some(path) = &bench.rows {
        let rows = rows_of_file(path)?.into_iter().filter(|row| row.bench == benchmark.name).collect();
        check_outputs(bench)?;
        return tell(bench, benchmark, rows);
    }
    if launch::in_job() {
        // Its settings are the job's; the flags were for the launcher.
        return measure(bench, benchmark, Config::defaults());
    }
    // Invalid settings are refused before anything is measured.
    let config = job::config_with_defaults(&bench.config, &settings(bench, benchmark))?;
    refuse_what_it_decides(bench, benchmark, &config)?;
    options(bench, benchmark, config.clone())?;
    check_outputs(bench)?;
    if bench.repeat > 1 {
        return match report::repeated(bench)? {
            Ok(rows) => tell(bench, benchmark, rows),
            Err(status) => Ok(status),
        };
    }
    match (&bench.join, bench.memory) {
        (Some(group), _) => limit::join(group)?,
        (None, Some(bytes)) => return limit::run(bench, bytes),
        (None, None) => {}
    }
    // Beside the figures of jobs of its own, too; ended when this returns.
    let _neighbours = Neighbours::start(bench.busy)?;
    let Setup::Job { ranks, nodes } = benchmark.setup else { return measure(bench, benchmark, config) };
    let mut place = job::place(&bench.place)?;
    if place.host.is_empty() {
        place.nodes.get_or_insert(nodes);
    }
    let ranks = bench.ranks.map_or_else(|| job::nodes(&place).map(|nodes| ranks.max(nodes)), Ok)?;
    let status = launch::run(Job::of_this_command(ranks, &place, config)?);
    // Those of ranks that were killed.
    Group::remove_stale();
    status
}

/// `all` and `compare`, which are no benchmarks; their own flags are refused elsewhere.
fn of_many(bench: &Bench, name: &str) -> Result<Option<u8>, Failure> {
    let refused = |flag: &str, by: &str| {
        Failure::usage(format!("{name} takes no {flag}")).hint(format!("{flag} is for `{by}`"))
    };
    let of_all =
        [(bench.out.is_some(), "--out"), (!bench.only.is_empty(), "--only"), (bench.resume, "--resume")];
    let of_one = [
        (bench.json.is_some(), "--json"),
        (bench.plot.is_some(), "--plot"),
        (bench.rows.is_some(), "--rows"),
        (!bench.parameters.is_empty(), "--param"),
        (bench.memory.is_some(), "--memory"),
        (bench.ranks.is_some(), "-n"),
        (bench.place.nodes.is_some(), "--nodes"),
        (bench.place.hosts.is_some(), "--hosts"),
        (!bench.place.host.is_empty(), "--host"),
    ];
    let given =
        |flags: &[(bool, &'static str)]| flags.iter().find(|(given, _)| *given).map(|(_, flag)| *flag);
    if let Some(flag) = given(&of_one).filter(|_| name == "all" || name == "compare") {
        return Err(refused(flag, "vgas bench NAME"));
    }
    if let Some(flag) = given(&of_all).filter(|_| name != "all") {
        return Err(refused(flag, "vgas bench all"));
    }
    if name != "compare" && (bench.fail || !bench.files.is_empty()) {
        return Err(refused(if bench.fail { "--fail" } else { "files" }, "vgas bench compare OLD NEW"));
    }
    match name {
        "all" => report::all(bench, &machine()).map(Some),
        "compare" => report::compare::compare(bench).map(Some),
        _ => Ok(None),
    }
}

/// Refuses flags that the benchmark would not heed.
fn refuse_what_it_decides(bench: &Bench, benchmark: &Benchmark, config: &Config) -> Result<(), Failure> {
    let place = &bench.place;
    let of_jobs = [
        (bench.ranks.is_some(), "-n"),
        (place.nodes.is_some(), "--nodes"),
        (place.hosts.is_some(), "--hosts"),
        (!place.host.is_empty(), "--host"),
    ];
    let mut refused = match benchmark.setup {
        Setup::Job { .. } => None,
        _ => of_jobs.iter().find(|(given, _)| *given).map(|(_, flag)| (*flag).to_owned()),
    };
    let mut given = config.values().iter().filter(|value| matches!(value.origin, Origin::Flag(_)));
    let unheeded = given.find(|value| !benchmark.setup.takes(value.setting.name));
    refused = refused.or(unheeded.map(|value| format!("{} ({})", value.setting.name, value.origin)));
    let Some(what) = refused else { return Ok(()) };
    let why = match benchmark.setup {
        Setup::NoJob { .. } => "runs in no job",
        _ => "starts jobs of its own and decides that itself",
    };
    Err(Failure::usage(format!("{} takes no {what}: it {why}", benchmark.name))
        .hint("`vgas bench --list` lists its parameters"))
}

/// Measures in this process, and prints and writes the rows if there are any: in a job, one rank has them.
fn measure(bench: &Bench, benchmark: &'static Benchmark, config: Config) -> Result<u8, Failure> {
    let machine = machine();
    let limits = throttles(bench, benchmark);
    let mut rows = (benchmark.run)(&options(bench, benchmark, config)?)
        .map_err(|error| Failure::of_benchmark(benchmark.name, &error))?;
    if rows.is_empty() {
        return Ok(0);
    }
    for row in &mut rows {
        row.machine.extend(machine.clone());
        row.params.extend(limits.clone());
        if bench.busy > 0 {
            row.params.insert("busy".into(), bench.busy.into());
        }
        if let Some(bytes) = bench.memory {
            row.params.insert("memory_bytes".into(), bytes.into());
        }
    }
    tell(bench, benchmark, rows)
}

/// The limits of links and drives, as parameters of every row: a figure without them would mislead. Ranks of a job read the same flags,
/// variables and files as the launcher.
fn throttles(bench: &Bench, benchmark: &Benchmark) -> Map<String, Value> {
    let Ok(config) = job::config_with_defaults(&bench.config, &settings(bench, benchmark)) else {
        return Map::new();
    };
    let names = [("cluster.link", picture::LINK), ("cluster.nvm", picture::DRIVE)];
    let limit = |setting: &str| {
        let value = config.values().iter().find(|value| value.setting.name == setting)?;
        (benchmark.setup.takes(setting) && value.text != "none").then(|| value.text.clone())
    };
    names.into_iter().filter_map(|(setting, name)| Some((name.to_owned(), limit(setting)?.into()))).collect()
}

/// Rows as `--json` and `all` write them.
pub fn rows_of_file(path: &Path) -> Result<Vec<Row>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!("cannot read rows from {}: {error}", path.display()))
    };
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text)
        .map_err(|error| failed(&error).hint("write such files with `vgas bench NAME --json FILE`"))
}

/// Prints, writes and draws rows as the command line asks.
fn tell(bench: &Bench, benchmark: &Benchmark, rows: Vec<Row>) -> Result<u8, Failure> {
    let merged = registry::merged(&rows);
    if let Some(path) = &bench.plot {
        write_plot(path, benchmark, &merged)?;
    }
    match &bench.json {
        Some(path) if path == Path::new("-") => output::print_json(&rows),
        Some(path) => {
            write_json(path, &rows)?;
            output::print(&table(&merged))
        }
        None => output::print(&table(&merged)),
    }
}

fn options(bench: &Bench, benchmark: &'static Benchmark, config: Config) -> Result<Options, Failure> {
    Options::new(benchmark, bench.full, &bench.parameters, config).map_err(Failure::usage)
}

/// Finds out whether the files can be written, without changing them. Only for the starter of the benchmark:
/// its ranks would be in each other's way. With other machines, it is one of these that writes.
fn check_outputs(bench: &Bench) -> Result<(), Failure> {
    if launch::in_job() || bench.place.hosts.is_some() || !bench.place.host.is_empty() {
        return Ok(());
    }
    for path in [&bench.json, &bench.plot].into_iter().flatten() {
        if path != Path::new("-") || bench.plot.as_ref() == Some(path) {
            check_output(path)
                .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
        }
    }
    Ok(())
}

fn check_output(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        // Opening a pipe would wait for its reader.
        Ok(found) if found.is_file() || found.is_dir() => File::options().write(true).open(path).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            File::create_new(path)?;
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

/// The settings that a benchmark asks for unless the user says otherwise.
fn settings(bench: &Bench, benchmark: &Benchmark) -> Vec<FlagValue> {
    let flag = format!("vgas bench {}", benchmark.name);
    let value = |&(name, text): &(&str, &str)| {
        let full = benchmark.full.iter().find(|(of, _)| bench.full && *of == name);
        let text = full.map_or(text, |(_, text)| text);
        FlagValue { flag: flag.clone(), name: name.into(), text: text.into() }
    };
    benchmark.settings.iter().map(value).collect()
}

/// Properties of the machine that a figure depends on besides the code.
fn machine() -> Map<String, Value> {
    let machine = vgas::info::Machine::find();
    let system = rustix::system::uname();
    let mut map = Map::new();
    map.insert("host".into(), system.nodename().to_string_lossy().into());
    map.insert("kernel".into(), system.release().to_string_lossy().into());
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    if let Some((_, model)) = model {
        map.insert("processor".into(), model.into());
    }
    map.insert("cores".into(), machine.cores.into());
    map.insert("memory_bytes".into(), machine.memory_bytes.into());
    // Before the benchmark: other programs' work.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    if let Some(load) = load.split(' ').next().and_then(|load| load.parse::<f64>().ok()) {
        map.insert("load_average".into(), load.into());
    }
    map
}

fn write_json(path: &Path, rows: &[Row]) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!("cannot write the rows to {}: {error}", path.display()))
    };
    let text = serde_json::to_string_pretty(rows).map_err(|error| failed(&error))?;
    std::fs::write(path, text + "\n").map_err(|error| failed(&error))
}

fn write_plot(path: &Path, benchmark: &Benchmark, rows: &[Row]) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!("cannot draw the rows into {}: {error}", path.display()))
    };
    let pictures = picture::of_benchmark(benchmark, rows);
    if pictures.is_empty() {
        return Err(failed(&"there is nothing to draw"));
    }
    std::fs::write(path, picture::stacked(&pictures)).map_err(|error| failed(&error))
}

fn listing() -> String {
    let mut text = String::new();
    for benchmark in registry::registry() {
        writeln!(text, "{:<16} {}", benchmark.name, benchmark.help).unwrap_or_default();
        for parameter in benchmark.parameters {
            let assignment = format!("{}={}", parameter.name, parameter.default);
            let full = benchmark.full.iter().find(|(name, _)| *name == parameter.name);
            let full = full.map_or(String::new(), |(_, value)| format!(" (--full: {value})"));
            writeln!(text, "    --param {assignment:<24} {}{full}", parameter.help).unwrap_or_default();
        }
        for (setting, value) in benchmark.settings {
            if let Some((_, full)) = benchmark.full.iter().find(|(name, _)| name == setting) {
                let assignment = format!("{setting}={value}");
                writeln!(text, "    --set {assignment:<26} (--full: {full})").unwrap_or_default();
            }
        }
    }
    if text.is_empty() {
        text.push_str("this build has no benchmarks\n");
    }
    text
}

/// Formats the rows: case, parameters, median and unit, and the spread of the samples.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let params: String =
            row.params.iter().map(|(name, value)| format!(" {name}={value}").replace('"', "")).collect();
        let least = row.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = row.samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let case = format!("{}{params}", row.case);
        let figure = format!("{} {}", figure(row.value), row.unit);
        let spread =
            format!("{} to {} in {} samples", self::figure(least), self::figure(most), row.samples.len());
        writeln!(text, "{case:<56} {:<10} {figure:>16}   ({spread})", row.metric).unwrap_or_default();
    }
    text
}

/// About four digits: more are noise.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row::new("hit", "get 8 B", "latency", "ns", vec![3.0, 2.5, 2.75]).with("pinned", true)
    }

    #[test]
    fn a_row_is_one_line_with_median_and_spread() {
        let text = table(&[row()]);
        assert!(text.starts_with("get 8 B pinned=true "), "{text}");
        assert!(text.contains("2.750 ns   (2.500 to 3.000 in 3 samples)"), "{text}");
        assert_eq!(
            (figure(12345.6), figure(12.345), figure(0.1234)),
            ("12346".into(), "12.3".into(), "0.123".into())
        );
    }

    #[test]
    fn the_json_has_the_agreed_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.json");
        let mut row = row();
        row.machine = machine();
        write_json(&path, &[row]).unwrap();
        let rows: Vec<Map<String, Value>> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let mut names: Vec<_> = rows[0].keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["bench", "case", "machine", "metric", "params", "samples", "unit", "value"]);
        assert_eq!(rows[0]["value"], 2.75);
    }

    fn flags(name: &str) -> Bench {
        Bench {
            name: Some(name.into()),
            files: Vec::new(),
            out: None,
            only: Vec::new(),
            resume: false,
            repeat: 1,
            fail: false,
            margin: 5,
            list: false,
            full: false,
            parameters: Vec::new(),
            json: None,
            plot: None,
            rows: None,
            busy: 0,
            memory: None,
            join: None,
            ranks: None,
            place: crate::cli::PlacementFlags::default(),
            config: crate::cli::ConfigFlags::default(),
        }
    }

    #[test]
    fn an_unknown_benchmark_is_refused() {
        assert!(bench(&flags("no-such")).unwrap_err().text().starts_with("no benchmark is named `no-such`"));
    }

    /// Goal: a benchmark whose output has nowhere to go is refused before it runs; an existing file stays
    /// unchanged.
    #[test]
    fn an_output_that_cannot_be_written_is_refused_before_measuring() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old.json"), folder.path().join("new.svg"));
        std::fs::write(&old, "precious").unwrap();
        let good = Bench { json: Some(old.clone()), plot: Some(new.clone()), ..flags("hit") };
        check_outputs(&good).unwrap();
        assert_eq!((std::fs::read(&old).unwrap(), new.exists()), (b"precious".to_vec(), false));
        for wrong in [folder.path().to_owned(), folder.path().join("no/rows"), old.join("rows")] {
            for wrong in [
                Bench { json: Some(wrong.clone()), ..flags("hit") },
                Bench { plot: Some(wrong.clone()), ..flags("hit") },
            ] {
                let error = bench(&wrong).unwrap_err();
                assert!(error.text().starts_with("cannot write "), "{}", error.text());
            }
        }
    }
}
