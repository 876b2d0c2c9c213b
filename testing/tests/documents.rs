//! What README.md and ARCHITECTURE.md say, where it can be held against the files they speak of.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The folder of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What lies between two marks of a text.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let begin = text.find(from).unwrap_or_else(|| panic!("there is no {from:?}")) + from.len();
    let end = text[begin..].find(to).unwrap_or_else(|| panic!("no {to:?} follows {from:?}"));
    &text[begin..begin + end]
}

/// Every file below a folder with this ending, without what is built.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, ending, found);
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

/// Goal: the program that README.md shows is the example it names, which is built and run by tests.
#[test]
fn the_program_of_the_readme_is_the_example() {
    let readme = read("README.md");
    let shown = between(&readme, "```rust\n", "```");
    let example = read("vgas/examples/ring.rs");
    let code: String = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    );
    assert_eq!(shown, code);
}

/// Goal: a link of a document leads somewhere.
#[test]
fn links_lead_to_files() {
    let mut documents = Vec::new();
    files(root(), ".md", &mut documents);
    assert!(documents.len() > 5);
    for document in documents {
        let text = read(&document);
        let folder = document.parent().expect("a file is in a folder");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let is_elsewhere = path.is_empty() || path.contains("://") || path.contains(char::is_whitespace);
            assert!(is_elsewhere || folder.join(path).exists(), "{}: {link}", document.display());
        }
    }
}

/// Whether a file has unsafe code.
fn is_unsafe(path: &Path) -> bool {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let begins = |rest: &str| [" {", " fn", " impl", " extern"].iter().any(|kind| rest.starts_with(kind));
    read(path).lines().filter(code).any(|line| line.split("unsafe").skip(1).any(begins))
}

/// Goal: ARCHITECTURE.md names every place with unsafe code, and none that has none.
#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let text = read("ARCHITECTURE.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let list = between(&text, "Unsafe code lives in ", "Nothing else has any");
    let named: Vec<&str> = list.split('`').skip(1).step_by(2).filter(|word| word.contains('/')).collect();
    let mut sources = Vec::new();
    files(root(), ".rs", &mut sources);
    let sources = sources.iter().map(|path| path.strip_prefix(root()).expect("it lies below"));
    let of_tests = |path: &Path| {
        path.iter().any(|part| ["tests", "examples", "tests.rs"].iter().any(|name| part == *name))
    };
    let found: Vec<&Path> = sources.filter(|path| !of_tests(path) && is_unsafe(path)).collect();
    assert!(found.len() > 50, "{found:?}");
    for path in &found {
        assert!(named.iter().any(|place| path.starts_with(place)), "{} is not named", path.display());
    }
    for place in named {
        assert!(found.iter().any(|path| path.starts_with(place)), "{place} has no unsafe code");
    }
}

/// Goal: folders with unsafe code open with rules for it, and what is said to forbid it does.
#[test]
fn unsafe_code_has_rules_and_pure_parts_have_none() {
    let text = read("ARCHITECTURE.md");
    let list = between(&text, "Unsafe code lives in ", "each of these opens with its rules");
    // Of these, another file has them.
    let others = [("rma/src/conduit/smp", "ring.rs"), ("nvm/src/device", "transfer.rs")];
    for place in list.split('`').skip(1).step_by(2) {
        let other = others.iter().find(|(folder, _)| *folder == place).map(|(_, file)| *file);
        let names = other.map_or(vec!["mod.rs", "lib.rs"], |file| vec![file]);
        let mut opens = names.iter().map(|name| root().join(place).join(name));
        let path = opens.find(|path| path.exists()).unwrap_or_else(|| root().join(place));
        let opening = read(&path);
        let mut rules = opening.lines().take_while(|line| line.starts_with("//!") || line.is_empty());
        assert!(rules.any(|line| line.starts_with("//! 1. ")), "{} opens without rules", path.display());
    }
    for place in ["protocol", "agent", "replacement", "read_ahead"] {
        let path = [format!("{place}/mod.rs"), format!("{place}.rs")]
            .map(|name| root().join("cache/src").join(name))
            .into_iter()
            .find(|path| path.exists());
        let text = read(path.expect("a module of the cache"));
        assert!(text.contains("#![forbid(unsafe_code)]"), "{place} may have unsafe code");
    }
}

/// Goal: ARCHITECTURE.md stays what one reads at once, and every life that it sums up is told.
#[test]
fn the_architecture_is_two_screens() {
    let text = read("ARCHITECTURE.md");
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    assert!(
        lines <= 120 && words <= 1500,
        "{lines} lines, {words} words: details belong into docs and crates"
    );
    let list = between(&text, "## What happens to", "\n## ");
    let told: Vec<String> = read("docs/LIVES.md")
        .lines()
        .filter_map(|line| line.strip_prefix("## ").map(str::to_lowercase))
        .collect();
    let named: Vec<String> = list.split("**").skip(1).step_by(2).map(str::to_lowercase).collect();
    assert_eq!(named, told);
}

/// Goal: the measured figures are a table that is read in two minutes: short cells, one figure or a few, and how to get it again.
#[test]
fn the_figures_are_a_table_of_short_rows() {
    let text = read("bench/RESULTS.md");
    assert!(text.split_whitespace().count() < 1200, "more than two minutes");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let columns = rows[0].len();
    assert_eq!((rows[0][0], rows[0][columns - 1]), ("what", "command"));
    for row in &rows[2..] {
        assert_eq!(row.len(), columns, "{row:?}");
        assert!(row.iter().all(|cell| cell.chars().count() <= 70), "{row:?}");
        let heads_group = row[1..].iter().all(|cell| cell.is_empty());
        assert!(heads_group || row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        // What follows `vgas bench`, unless it is a link, a file or another command.
        let command = row[columns - 1].strip_prefix('`').filter(|command| !command.starts_with("vgas "));
        let names = command.and_then(|command| command.split([' ', '`']).next());
        for name in names.into_iter().filter(|name| !name.contains('/')) {
            let suite = read("bench/src/suite/mod.rs");
            assert!(
                suite.contains(&format!("\"{name}\"")) || suite.contains(&name.replace('-', "_")),
                "{name}"
            );
        }
    }
}

/// Names of the files of a folder, without their ending.
fn stems(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder of the repository");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let mut stems: Vec<String> =
        paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    stems.sort();
    stems
}

/// Goal: every fuzz target is built, has a corpus, is described, and is run over the corpus by a test on stable.
#[test]
fn every_fuzz_target_is_complete() {
    let targets = stems("fuzz/fuzz_targets");
    assert!(targets.len() > 10, "{targets:?}");
    let manifest = read("fuzz/Cargo.toml");
    let names = manifest.lines().filter_map(|line| line.strip_prefix("name = ")).skip(1);
    let mut built: Vec<&str> = names.map(|name| name.trim_matches('"')).collect();
    built.sort_unstable();
    assert_eq!(built, targets);
    assert_eq!(stems("fuzz/corpus"), targets);
    let readme = read("fuzz/README.md");
    let rows = readme.lines().filter(|line| line.starts_with("| `"));
    let mut described: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .collect();
    described.sort_unstable();
    assert_eq!(described, targets);
    let mut checks = Vec::new();
    files(root(), "fuzzing.rs", &mut checks);
    let tests: String = checks.iter().map(read).collect();
    for target in targets {
        let replays = format!("replay(\"{target}\",");
        assert!(tests.split_whitespace().collect::<String>().contains(&replays), "no test runs {target}");
        assert!(!stems(&format!("fuzz/corpus/{target}")).is_empty(), "{target} has no corpus");
    }
}

/// The first cells of a document's table with this head, as they are written.
fn first_cells<'t>(text: &'t str, head: &str) -> Vec<&'t str> {
    let table = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect()
}

/// The names of what a manifest depends on, under this head.
fn dependencies<'t>(manifest: &'t str, head: &str) -> Vec<&'t str> {
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.split_once([' ', '.', '='])?.0))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Goal: ARCHITECTURE.md names all crates, and each stands on those above it in the table only.
#[test]
fn crates_stand_on_those_named_before() {
    let architecture = read("ARCHITECTURE.md");
    let folders: Vec<&str> = first_cells(&architecture, "| crate |")
        .into_iter()
        .map(|cell| between(cell, "(", ")").trim_end_matches('/'))
        .collect();
    let workspace = read("Cargo.toml");
    let mut members: Vec<&str> =
        between(&workspace, "members = [", "]").split(", ").map(|name| name.trim_matches('"')).collect();
    let mut sorted = folders.clone();
    members.sort_unstable();
    sorted.sort_unstable();
    assert_eq!(sorted, members);
    let mut known = Vec::new();
    for folder in folders {
        let manifest = read(format!("{folder}/Cargo.toml"));
        let ours =
            dependencies(&manifest, "[dependencies]").into_iter().filter(|name| name.starts_with("vgas"));
        for name in ours {
            assert!(known.contains(&name.to_owned()), "{folder} stands on {name}");
        }
        known.push(between(&manifest, "name = \"", "\"").to_owned());
    }
}

/// Goal: it is said of every library why it is used, and of none that is not.
#[test]
fn every_library_has_its_reason() {
    let text = read("docs/LIBRARIES.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| library |")).skip(2);
    let used = rows.take_while(|row| row.starts_with('|')).filter(|row| !row.contains("| not used |"));
    let mut named: Vec<&str> =
        used.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(", ")).map(str::trim).collect();
    let manifest = read("Cargo.toml");
    let mut libraries: Vec<&str> = dependencies(&manifest, "[workspace.dependencies]")
        .into_iter()
        // Named beside rustix, for what that lacks.
        .filter(|name| !name.starts_with("vgas") && *name != "libc")
        .collect();
    named.sort_unstable();
    libraries.sort_unstable();
    assert_eq!(named, libraries);
}

/// Goal: the modules of a crate that opens with a table of them are all in it, and so are the files of the agent.
#[test]
fn tables_of_modules_are_complete() {
    for crate_root in ["shm/src/lib.rs", "rma/src/lib.rs", "cache/src/lib.rs"] {
        let text = read(crate_root);
        let modules = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        for module in modules.filter(|module| *module != "fuzzing") {
            assert!(text.contains(&format!("[`{module}`]")), "{crate_root} does not name {module}");
        }
    }
    for folder in ["cache/src/agent", "cache/src/agent/context", "cache/src/agent/controller"] {
        let table = read(format!("{folder}/mod.rs"));
        for file in stems(folder).into_iter().filter(|file| file != "mod") {
            let names = [format!("`{file}.rs`"), format!("`{file}/`"), format!("[`{file}`]")];
            assert!(
                names.iter().any(|name| table.contains(name)),
                "the table of {folder} does not name {file}"
            );
        }
    }
}

/// Goal: a folder that says which of its files have unsafe code says it of those, and of no others.
#[test]
fn unsafe_files_are_those_that_are_named() {
    let places = [
        ("cache/src/pool", "Only ", " contain any"),
        ("rma/src/conduit/smp", "All unsafe code is in ", ", and in the copies"),
        ("rma/src/conduit/smp", "in the copies of payloads in ", "\n"),
    ];
    for (folder, from, to) in places {
        let text = read(format!("{folder}/mod.rs"));
        for file in between(&text, from, to).split('`').skip(1).step_by(2) {
            assert!(is_unsafe(&root().join(folder).join(file)), "{folder}/{file} has no unsafe code");
        }
        let mut found = Vec::new();
        files(&root().join(folder), ".rs", &mut found);
        for path in found.iter().filter(|path| !path.ends_with("tests.rs") && is_unsafe(path)) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            assert!(text.contains(&format!("`{file}`")), "{} is not named", path.display());
        }
    }
}

/// Goal: the indices of handlers that CONTRIBUTING.md gives to endpoints and to the cache are those that are taken, so that the
/// next one is free.
#[test]
fn the_indices_of_handlers_are_those_taken() {
    let guide = read("CONTRIBUTING.md");
    let taken = |text: &str| -> Vec<u8> {
        let consts =
            text.lines().filter_map(|line| line.trim_start().split_once("const ")?.1.split_once(": u8 = "));
        consts.filter_map(|(_, value)| value.trim_end_matches(';').parse().ok()).collect()
    };
    let mut endpoints: Vec<u8> = stems("rma/src/endpoint")
        .iter()
        .filter(|file| *file != "mod" && *file != "fuzzing")
        .map(|file| format!("rma/src/endpoint/{file}.rs"))
        .chain(["rma/src/collective/post.rs".into()])
        .flat_map(|file| taken(&read(file)))
        .collect();
    endpoints.sort_unstable();
    let last = endpoints.last().copied().unwrap_or_default();
    assert_eq!(endpoints, (0..=last).collect::<Vec<_>>());
    assert!(
        guide.contains(&format!("| 0 to {last} of 0 to 31 | endpoints |")),
        "endpoints have {endpoints:?}"
    );
    let cache = read("cache/src/request.rs");
    let last = taken(between(&cache, "pub mod handler {", "\n}")).into_iter().max().unwrap_or_default();
    assert!(
        guide.contains(&format!("| 32 to {last} of 32 to 63 | the cache |")),
        "the cache has up to {last}"
    );
}

/// Goal: what PROTOCOL.md says is checked is: every test and invariant that it names is there, every invariant is named, and the faults
/// are as many as are planted.
#[test]
fn the_protocol_is_checked_as_it_says() {
    let document = read("cache/PROTOCOL.md");
    let text = between(&document, "## How it is checked", "<!--");
    let (mut sources, mut code) = (Vec::new(), String::new());
    files(&root().join("cache/tests"), ".rs", &mut sources);
    sources.iter().for_each(|path| code.push_str(&read(path)));
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    for name in named.iter().filter(|name| name.contains('_') && !name.contains(['/', ':'])) {
        assert!(
            code.contains(&format!("fn {name}(")) || code.contains(&format!("\"{name}\"")),
            "{name} is nowhere"
        );
    }
    let walk = read("cache/tests/protocol_walk.rs");
    let faults: Vec<&str> = between(&walk, "let faults = [", "];").split("Fault::").skip(1).collect();
    for found in faults.iter().filter_map(|fault| fault.split('"').nth(1)) {
        assert!(named.contains(&found), "{found} is not named");
    }
    let numbers =
        ["twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"];
    let said = numbers.iter().position(|number| text.contains(&format!("{number} planted faults")));
    assert_eq!(said.map(|index| index + 12), Some(faults.len()));
}

/// Goal: CONTRIBUTING.md names all services of this tree, none twice, and the handlers of its libraries.
#[test]
fn services_and_handlers_of_libraries_are_named() {
    let guide = read("CONTRIBUTING.md");
    let service = guide.split_once("## A service").expect("there is that part").1;
    let mut named: Vec<String> =
        first_cells(service, "| name |").iter().map(|cell| cell.trim_matches('`').to_owned()).collect();
    let mut found = Vec::new();
    for folder in ["vgas/src", "objects/src", "cache/src"] {
        let mut sources = Vec::new();
        files(&root().join(folder), ".rs", &mut sources);
        for text in sources.iter().map(read).filter(|text| text.contains(" Service for ")) {
            // What follows in a file is its tests.
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let names = product.lines().filter_map(|line| line.split_once("const NAME: &'static str = \""));
            found.extend(names.filter_map(|(_, rest)| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    named.sort_unstable();
    found.sort_unstable();
    assert_eq!(named, found);
    for (file, name) in [("objects/src/task/travel.rs", "HANDLER"), ("upcxx-compat/c/src/long.rs", "CARRIED")]
    {
        let text = read(file);
        let index = between(&text, &format!("const {name}: u8 = "), ";");
        let row = guide.lines().find(|line| line.contains(&format!("({file})"))).unwrap_or_default();
        let indices = row.split('|').nth(1).unwrap_or_default();
        assert!(indices.split([' ', ',']).any(|word| word == index), "{file} takes {index}, not in {row:?}");
    }
}

/// Goal: docs/EXAMPLES.md names all examples, and each says how it is run.
#[test]
fn examples_are_named_and_say_how_they_run() {
    let named = read("docs/EXAMPLES.md");
    for example in stems("vgas/examples") {
        assert!(named.contains(&format!("(../vgas/examples/{example}.rs)")), "{example} is not named");
        let text = read(format!("vgas/examples/{example}.rs"));
        assert!(text.contains("//! Run it: `cargo build --release --examples && "), "{example}");
    }
}

/// Goal: words that GLOSSARY.md replaces become fewer, and one that is gone stays away. Method: they are counted, as whole words, in all text
/// and code but there.
#[test]
fn replaced_words_become_fewer() {
    const LEFT: &[(&str, usize)] =
        &[("everybody", 38), ("nobody", 411), ("somebody", 94), ("whoever", 88), ("whom", 13)];
    let glossary = read("GLOSSARY.md");
    let table = glossary.split_once("| not | write |").expect("a table").1;
    let words: Vec<&str> = table
        .lines()
        .skip(2)
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split(','))
        .collect();
    let mut paths = Vec::new();
    for ending in [".rs", ".md"] {
        files(root(), ending, &mut paths);
    }
    paths.retain(|path| !path.ends_with("GLOSSARY.md") && !path.ends_with("testing/tests/documents.rs"));
    let texts: Vec<String> =
        paths.iter().map(|path| read_to_string(path).expect("it can be read").to_lowercase()).collect();
    for word in words.into_iter().map(str::trim) {
        let is_part = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
        let is_word = |text: &str, at: usize| {
            !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
        };
        let count: usize = texts
            .iter()
            .map(|text| text.match_indices(word).filter(|(at, _)| is_word(text, *at)).count())
            .sum();
        let left = LEFT.iter().find(|(known, _)| *known == word).map_or(0, |(_, left)| *left);
        assert!(
            count <= left,
            "{word:?} is there {count} times, {left} were left: GLOSSARY.md says what to write"
        );
    }
}
