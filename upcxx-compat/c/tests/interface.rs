//! The C declarations against the Rust definitions, and the names of the specification against the headers.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::Path;
use support::{Bench, Conduit, Mode, crate_folder};

/// A type as both languages are compared: what the ABI makes of it.
fn abi_of_c(text: &str) -> String {
    let text = text.replace("const", " ").replace("struct", " ");
    if text.contains('*') || text.contains("(*") {
        return "pointer".into();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.first().copied().unwrap_or_default() {
        "void" => "void",
        "int" | "int32_t" => "i32",
        "uint32_t" => "u32",
        "uint16_t" => "u16",
        "uint8_t" => "u8",
        "uint64_t" | "uintptr_t" | "size_t" => "word",
        "vgasi_handle_t" | "vgasi_value_t" => "pointer",
        other => panic!("the type {other} of {text:?} is not known to this test"),
    }
    .into()
}

fn abi_of_rust(text: &str) -> String {
    let text = text.trim();
    match text {
        "" | "()" | "!" => "void",
        "c_int" | "i32" => "i32",
        "u32" => "u32",
        "u16" => "u16",
        "u8" => "u8",
        "usize" | "u64" => "word",
        _ if text.starts_with("*mut") || text.starts_with("*const") => "pointer",
        "RawHandler" => "pointer",
        _ if text.starts_with("Option<") => "pointer",
        // Of a function that another header than vgasi.h declares; compared by name only.
        other => other,
    }
    .into()
}

/// Result and parameters of each function `vgasi_…`, by name.
type Functions = BTreeMap<String, Vec<String>>;

fn parameters(list: &str, abi: impl Fn(&str) -> String) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("there is one").push(c);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty() && *part != "void");
    parts.map(abi).collect()
}

fn declared_in_c(text: &str) -> Functions {
    let mut functions = Functions::new();
    // Without what the preprocessor reads.
    let text: String =
        text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    for declaration in text.split(';') {
        let Some(at) = declaration.rfind("extern ") else { continue };
        let declaration = declaration[at + 7..].replace(" VGASI_NORETURN", "");
        let Some((before, after)) = declaration.split_once('(') else { continue };
        let name = before.split([' ', '*']).next_back().unwrap_or_default();
        let Some(list) = after.rfind(')').map(|end| &after[..end]) else { continue };
        if !name.starts_with("vgasi_") {
            continue;
        }
        let result = abi_of_c(before.strip_suffix(name).unwrap_or(before));
        let mut types = vec![result];
        types.extend(parameters(list, abi_of_c));
        functions.insert(name.into(), types);
    }
    functions
}

fn defined_in_rust(folder: &Path, functions: &mut Functions) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            defined_in_rust(&path, functions);
            continue;
        }
        let text = read_to_string(&path).expect("sources are text");
        for definition in text.split("extern \"C\" fn vgasi_").skip(1) {
            let (name, rest) = definition.split_once('(').expect("a function has parameters");
            let (list, rest) = rest.split_at(rest.find(") {").or_else(|| rest.find(") ->")).unwrap_or(0));
            let before_body = rest.split_once('{').map_or(rest, |split| split.0);
            let arrow = before_body.split_once("->").map_or("", |split| split.1);
            // The first `) {` may belong to the body when there is a result: parameters end before the arrow then.
            let list = list.split(") ->").next().unwrap_or(list);
            let arrow = if arrow.is_empty() {
                definition[name.len() + 1 + list.len()..]
                    .strip_prefix(") ->")
                    .map_or("", |rest| rest.split_once('{').map_or("", |split| split.0))
            } else {
                arrow
            };
            let types = std::iter::once(abi_of_rust(arrow)).chain(parameters(list, |parameter| {
                abi_of_rust(parameter.split_once(':').map_or("", |split| split.1))
            }));
            functions.insert(format!("vgasi_{name}"), types.collect());
        }
    }
}

/// Goal: what the headers declare is what the library defines, function by function, type by type.
#[test]
fn declarations_match_definitions() {
    let text = |name| read_to_string(crate_folder().join("include").join(name)).expect("the header is there");
    let text = text("vgasi.h") + &text("vgasi_hit.h");
    let declared = declared_in_c(&text);
    let mut defined = Functions::new();
    defined_in_rust(&crate_folder().join("src"), &mut defined);
    assert!(declared.len() > 50, "only {} declarations were found", declared.len());
    for (name, types) in &declared {
        assert_eq!(defined.get(name), Some(types), "{name}");
    }
    // Later headers declare what they alone use.
    let headers: String = headers().into_values().collect();
    for name in defined.keys() {
        assert!(headers.contains(name.as_str()), "no header declares {name}");
    }
}

/// The names of the specification by section, from `specification.txt`.
fn specification() -> Vec<(String, Vec<String>)> {
    let text = read_to_string(crate_folder().join("tests/specification.txt")).expect("the list is there");
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("= ") {
            Some(title) => sections.push((title.into(), Vec::new())),
            None => {
                let names = &mut sections.last_mut().expect("a section comes first").1;
                names.extend(line.split_whitespace().map(str::to_owned));
            }
        }
    }
    sections
}

/// A name that stands for the forms with 0 to 16 arguments, as these; others as themselves.
fn expanded(name: &str) -> Vec<String> {
    match name.strip_suffix('M') {
        Some(stem) if name.starts_with("gasnet_AM") => {
            (0..=16).map(|count| format!("{stem}{count}")).collect()
        }
        _ => vec![name.into()],
    }
}

/// The headers and their texts, by name.
fn headers() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(crate_folder().join("include")).expect("the headers are there");
    let entries = entries.map(|entry| {
        let entry = entry.expect("a folder can be listed");
        let text = read_to_string(entry.path()).expect("headers are text");
        (entry.file_name().to_string_lossy().into_owned(), text)
    });
    entries.collect()
}

/// The header that a name stands in first; those with a macro that makes several names have a part of it.
fn header_of(headers: &BTreeMap<String, String>, name: &str) -> String {
    let stem = if name.starts_with("gasnet_AM") { name.trim_end_matches('M') } else { name };
    let holds = |text: &str| {
        text.match_indices(stem).any(|(at, _)| {
            let after = text[at + stem.len()..].chars().next().unwrap_or(' ');
            !(after.is_ascii_alphanumeric() || after == '_')
        })
    };
    let found = headers.iter().find(|(_, text)| holds(text));
    let made = || headers.iter().find(|(_, text)| text.contains(stem) || text.contains("##"));
    found.or_else(made).map_or_else(|| panic!("no header has {name}"), |(header, _)| header.clone())
}

/// Goal: docs/GASNET.md lists every name of the specification and where it is, as it is. UPDATE_DOCS=1 writes the list.
#[test]
fn the_list_of_names_is_true() {
    const MARK: &str = "<!-- The rest is written by the test `interface` with UPDATE_DOCS=1. -->\n";
    let headers = headers();
    let mut list = String::new();
    for (title, names) in specification() {
        list += &format!("\n### {title}\n\n| name | header |\n|---|---|\n");
        for name in names {
            list += &format!("| `{name}` | {} |\n", header_of(&headers, &name));
        }
    }
    let path = crate_folder().join("../../docs/GASNET.md");
    let text = read_to_string(&path).expect("the page is there");
    let (before, written) = text.split_once(MARK).expect("the page has the mark");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{MARK}{list}")).expect("the page can be written");
    } else {
        assert_eq!(written, list, "docs/GASNET.md is not up to date: run this test with UPDATE_DOCS=1");
    }
}

/// Goal: a client that includes the headers can use every name: macros are known to the preprocessor, types and functions
/// to the compiler.
#[test]
fn every_name_is_offered() {
    let names: BTreeSet<String> =
        specification().iter().flat_map(|(_, names)| names).flat_map(|name| expanded(name)).collect();
    assert!(names.len() > 500, "only {} names", names.len());
    let bench = Bench::new();
    let mut text = String::from(
        "#include <gasnet.h>\n#include <gasnet_vis.h>\n#include <gasnet_coll.h>\n#include <gasnet_tools.h>\n",
    );
    for (index, name) in names.iter().enumerate() {
        // A macro, or a type, function or variable; an error for what is unknown.
        text += &format!("#if !defined({name})\ntypedef __typeof__({name}) check_{index};\n#endif\n");
    }
    let source = bench.path().join("names.c");
    std::fs::write(&source, text).expect("the folder is writable");
    for mode in Mode::ALL {
        bench.check(&support::cc(), &["-std=gnu11", "-fsyntax-only", "-pthread"], &source, mode);
    }
}

/// Goal: the library's own interface works on both kinds of segments, and named ones outlive the job.
#[test]
fn vgasnet() {
    let bench = Bench::new();
    let program = bench.program("vgasnet", Conduit::Tcp, Mode::Par);
    let small = [("VGAS_CACHE_SIZE", "2MiB"), ("VGAS_CACHE_PAGE", "4KiB")];
    for kind in ["pinned", "tiered", "relaxed", "configured"] {
        program.pass(1, &small, &[kind]);
        program.pass(3, &small, &[kind]);
        program.pass(4, &[small[0], small[1], ("VGASNET_NODES", "2")], &[kind]);
    }
    let folder = bench.path().to_str().expect("a path that is text");
    let settings = [small[0], small[1], ("VGAS_NVM_DIRECTORY", folder)];
    program.pass(2, &settings, &["tiered", "keep", "write"]);
    program.pass(2, &settings, &["tiered", "keep", "read"]);
    // What an error leaves to the log is there.
    let logged = [small[0], small[1], ("VGAS_NVM_DIRECTORY", folder), ("VGAS_LOG", "error")];
    let output = program.run(1, &logged, &["tiered", "no/name", "read"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is no name for a segment"), "{output:?}");
    let output = program.run(1, &[("VGAS_LOG", "vgas=loud")], &["pinned"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("VGAS_LOG is"), "{output:?}");
}

/// Goal: C reads what node-mates have stored, through pointers, and a store through one is named before the job ends.
#[test]
fn mates() {
    let bench = Bench::new();
    let program = bench.program("mates", Conduit::Tcp, Mode::Par);
    let small = [("VGAS_CACHE_SIZE", "2MiB"), ("VGAS_CACHE_PAGE", "4KiB")];
    program.pass(2, &small, &[]);
    program.pass(4, &[small[0], small[1], ("VGASNET_NODES", "2")], &[]);
    let output = program.run(2, &small, &["store"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("only its owner may store there; put it"),
        "{output:?}"
    );
}
