//! Goal: a value is taken from the strongest source that gives it, and nothing that is written anywhere is silently
//! ignored. Without that, a misspelt variable runs a night of measurements with the default.

use super::*;
use std::path::Path;

fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, text)| (name.into(), text.into())).collect()
}

fn from_flags(assignments: &[&str]) -> Result<Config, ConfigError> {
    let flags = assignments.iter().map(|text| FlagValue::assignment(text)).collect::<Result<_, _>>()?;
    Config::load(&Sources { flags, ..Sources::default() })
}

fn value<'a>(config: &'a Config, name: &str) -> &'a EffectiveValue {
    config.values().iter().find(|value| value.setting.name == name).unwrap()
}

/// Message and hint, as users see them.
fn complaint(result: Result<Config, ConfigError>) -> String {
    let error = result.expect_err("must be refused");
    format!("{error} | {}", error.hint().unwrap_or_default())
}

#[test]
fn names_and_variables_are_unique_and_defaults_are_in_their_usual_form() {
    let mut seen = std::collections::HashSet::new();
    for setting in TABLE {
        assert!(seen.insert(setting.name.to_owned()) && seen.insert(setting.variable()), "{}", setting.name);
        assert!(OTHER_VARIABLES.iter().all(|(name, _)| *name != setting.variable()));
        let normal = (setting.normalize)(setting, setting.default);
        assert_eq!(normal.as_deref(), Ok(setting.default), "{}", setting.name);
        assert!(setting.help().ends_with('.') && !setting.help().contains("  "), "{}", setting.name);
    }
}

#[test]
fn a_flag_wins_over_environment_over_file_over_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    std::fs::write(&path, "[cache]\nsize = '1GiB'\npage = '4KiB'\n[nvm]\nqueue_depth = 16\n").unwrap();
    let mut sources = Sources {
        file: Some(path.clone()),
        environment: environment(&[("VGAS_CACHE_SIZE", "2GiB"), ("VGAS_CACHE_PAGE", "8KiB"), ("HOME", "/")]),
        flags: vec![FlagValue { flag: "--cache".into(), name: "cache.size".into(), text: "3GiB".into() }],
    };
    let config = Config::load(&sources).unwrap();
    let shown = |name| format!("{} {}", value(&config, name).text, value(&config, name).origin);
    assert_eq!(shown("cache.size"), "3GiB --cache");
    assert_eq!(shown("cache.page"), "8KiB $VGAS_CACHE_PAGE");
    assert_eq!(shown("nvm.queue_depth"), format!("16 {}:5", path.display()));
    assert_eq!(shown("ablation.checksums"), "on default");
    assert_eq!(config.settings().cache.page.bytes(), 8192);

    // The variable names the file when no flag does.
    let named = sources.file.clone();
    sources.environment.push(("VGAS_CONFIG".into(), "".into()));
    assert!(Config::load(&sources).is_ok(), "an empty VGAS_CONFIG names no file");
    sources.environment.pop();
    sources.file = named;
    sources.environment.push(("VGAS_CONFIG".into(), sources.file.take().unwrap().into()));
    assert_eq!(Config::load(&sources).unwrap().settings(), config.settings());
}

#[test]
fn of_two_flags_the_later_one_wins() {
    let config = from_flags(&["conduit=smp", "conduit = tcp"]).unwrap();
    assert_eq!(config.settings().conduit, ConduitChoice::Tcp);
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    assert_eq!(
        complaint(from_flags(&["cache.sise=1GiB"])),
        "unknown setting `cache.sise` (--set) | did you mean `cache.size`? `vgas config` lists all settings"
    );
    let sources = Sources { environment: environment(&[("VGAS_CACHE_SIZ", "1GiB")]), ..Sources::default() };
    assert_eq!(
        complaint(Config::load(&sources)),
        "unknown environment variable `VGAS_CACHE_SIZ` | did you mean `VGAS_CACHE_SIZE`? `vgas config` lists all settings"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    std::fs::write(&path, "[nvm]\n\ndirectroy = '/scratch'\n").unwrap();
    let text = complaint(Config::load(&Sources { file: Some(path.clone()), ..Sources::default() }));
    assert!(text.starts_with(&format!("unknown setting `nvm.directroy` ({}:3)", path.display())), "{text}");
    assert!(text.contains("did you mean `nvm.directory`?"), "{text}");
}

/// A name that an older file has is refused as any other, with the name that it has now if it has one.
#[test]
fn names_of_the_past_are_refused() {
    for (old, now) in [
        ("cache.read_ahead=off", Some("ablation.read_ahead")),
        ("cache.in_place=off", Some("ablation.in_place")),
        ("cache.whole_page_put=off", Some("ablation.whole_page_put")),
        ("nvm.checksums=off", Some("ablation.checksums")),
        ("cache.part_max=0", Some("ablation.parts")),
        ("local.system_calls=on", Some("local.mechanism")),
        ("stats.each=on", Some("stats.print")),
        ("cache.read_ahead_max=1MiB", None),
        ("ibv.signal_interval=1", None),
    ] {
        let text = complaint(from_flags(&[old]));
        assert!(text.starts_with("unknown setting `") && text.contains("`vgas config` lists"), "{text}");
        if let Some(now) = now {
            assert!(text.contains(&format!("did you mean `{now}`?")), "{text}");
        }
    }
}

#[test]
fn refused_values_say_what_to_write() {
    for (assignment, expected) in [
        ("cache.page=48KiB", "is not a power of two | write a power of two such as `4KiB`"),
        ("cache.page=2KiB", "it is less than 4KiB | "),
        ("cache.page=8MiB", "it is more than 4MiB | "),
        ("segment.tiered_max=1PiB", "it is more than 64TiB"),
        ("segment.tiered_max=16EiB", "it is larger than 2^64 bytes"),
        ("cache.size=lots", "it is not a size | write `auto`, or a size such as `64KiB`"),
        (
            "ablation.replacement=mru",
            "is none of the choices | write one of `lru-by-cost`, `lru-second-chance`, `lru`, `fifo`",
        ),
        ("ablation.checksums=maybe", "`ablation.checksums = maybe` (--set) is refused"),
        ("nvm.queue_depth=0", "it is less than 1 | write a whole number; 1 to 4096"),
        ("nvm.queue_depth=4097", "it is more than 4096"),
        ("cache.size=63KiB", "it is less than 64KiB"),
        (
            "hooks=delay",
            "is refused: it has the hook `delay`; write a time of at most one second, such as `delay=50us`",
        ),
        (
            "hooks=count,wait=1s",
            "it has the hook `wait=1s`; there are delay, rate, jitter, loss, count and trace | write `none`, or some of",
        ),
        ("tcp.port_range=10-5", "it ends before it begins"),
        ("nonsense", "`nonsense` (--set) is not a setting and its value | write NAME=VALUE"),
    ] {
        let text = complaint(from_flags(&[assignment]));
        assert!(text.contains(expected), "{assignment}: {text}");
    }
    for just_inside in ["cache.page=4KiB", "cache.page=4MiB", "nvm.queue_depth=4096", "nvm.queue_depth=1"] {
        assert!(from_flags(&[just_inside]).is_ok(), "{just_inside}");
    }
    assert!(from_flags(&["cache.size=64KiB", "cache.page=4KiB"]).is_ok());
}

#[test]
fn a_cache_must_hold_some_pages() {
    assert!(from_flags(&["cache.size=64MiB", "cache.page=4MiB"]).is_ok());
    assert_eq!(
        complaint(from_flags(&["cache.size=63MiB", "cache.page=4MiB"])),
        "a cache of 63MiB has room for 15 pages of 4MiB, fewer than 16 \
         | set cache.size to 64MiB or more, or cache.page to less"
    );
}

/// Settings that would silently do nothing are refused.
#[test]
fn hooks_need_a_conduit_that_they_can_be_around() {
    assert!(from_flags(&["hooks=delay=1ms,count"]).is_ok() && from_flags(&["conduit=smp"]).is_ok());
    assert_eq!(
        complaint(from_flags(&["hooks=count", "conduit=smp"])),
        "hooks = count would do nothing: the conduit smp carries all in shared memory \
         | set conduit to tcp, ibv or ofi, or hooks to none"
    );
}

/// Settings that would silently do nothing are refused, and the error for an invalid link or drive gives the
/// valid forms.
#[test]
fn virtual_hardware_must_be_felt() {
    assert!(from_flags(&["cluster.link=1gbit,50us", "cluster.nvm=200MiB,50k"]).is_ok());
    assert_eq!(
        complaint(from_flags(&["cluster.link=1gbit", "conduit=smp"])),
        "cluster.link = 1gbit would do nothing: only what goes over TCP can be held back \
         | set conduit to tcp, or cluster.link to none"
    );
    for wrong in ["cluster.link=1", "cluster.link=1gbit,", "cluster.nvm=200", "cluster.nvm=1MiB,x"] {
        assert!(complaint(from_flags(&[wrong])).contains("`none`, or "), "{wrong}");
    }
}

#[test]
fn a_missing_or_broken_file_is_named() {
    let load = |file: &Path| Config::load(&Sources { file: Some(file.into()), ..Sources::default() });
    assert!(
        complaint(load(Path::new("/no/such.toml")))
            .starts_with("cannot read the configuration /no/such.toml")
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.toml");
    std::fs::write(&path, "[cache\n").unwrap();
    assert!(complaint(load(&path)).starts_with(&format!("{}:1 is not TOML", path.display())));
}

#[test]
fn the_processes_of_a_job_read_what_the_launcher_wrote() {
    let config = from_flags(&[
        "cache.size=1GiB",
        "nvm.directory=/scratch",
        "tcp.port_range=20000-20999",
        "run.ssh=ssh -p 2222",
        "local.mechanism=sigsegv",
        "stats.print=each",
        "hooks=delay=50us,loss=0.1%,count",
    ])
    .unwrap();
    let mut map = config.settings().to_map();
    assert_eq!(map.len(), TABLE.len());
    assert_eq!(&Settings::from_map(&map).unwrap(), config.settings());
    map.remove("cache.size");
    assert_eq!(Settings::from_map(&map).unwrap().cache.size, Auto::Auto);
    map.insert("cache.sizes".into(), "1GiB".into());
    assert!(Settings::from_map(&map).is_err());
    map.remove("cache.sizes");
    map.insert("cache.page".into(), "3".into());
    assert!(Settings::from_map(&map).is_err());
}

#[test]
fn an_automatic_cache_is_a_quarter_of_memory_shared_by_the_nodes_here() {
    let cache = Config::defaults().settings().cache.clone();
    assert_eq!(cache.size_bytes(8 * GIB, 1), 2 * GIB);
    assert_eq!(cache.size_bytes(8 * GIB, 4), 512 * MIB);
    assert_eq!(cache.size_bytes(u64::MAX, 1), 16 * GIB);
    assert_eq!(cache.size_bytes(0, 1), 16 * cache.page.bytes());
    assert_eq!(from_flags(&["cache.size=1048577"]).unwrap().settings().cache.size_bytes(0, 1), MIB);
}

/// Every file in configs/ is legal and says something.
#[test]
fn the_files_that_come_with_vgas_are_loaded() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs"));
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let config = Config::load(&Sources { file: Some(path.clone()), ..Sources::default() });
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(config.values().iter().any(|value| value.origin.kind() == "file"), "{}", path.display());
        found += 1;
    }
    assert!(found >= 4, "only {found} files in {}", folder.display());
}

/// TOML that no setting can take is reported as such, with the setting's kind of value.
#[test]
fn a_wrong_type_says_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    for (text, found) in
        [("[1]", "an array"), ("1.5", "a number with a fraction"), ("0x10", "an integer in another")]
    {
        std::fs::write(&path, format!("cache.size = {text}\n")).unwrap();
        let error = Config::load(&Sources { file: Some(path.clone()), ..Sources::default() }).unwrap_err();
        let line = format!("`cache.size` ({}:1) is {found}", path.display());
        assert!(error.to_string().starts_with(&line), "{error}");
        assert!(error.hint().unwrap().contains("a size such as"), "{:?}", error.hint());
    }
}
