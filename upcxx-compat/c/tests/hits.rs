//! The hit path that the headers compile into clients: its structures against the Rust definitions, and that it makes no calls.

mod support;

use support::{Bench, Conduit, Mode, crate_folder};
use vgasnet::{hit, segment::Window};

/// Goal: what the headers have compiled in is what the library lays out. A field that moves in Rust alone would otherwise
/// show as memory that is overwritten.
#[test]
fn structures_match() {
    let bench = Bench::new();
    let mut text = String::from("#include <gasnet.h>\n#include <stddef.h>\n");
    for (index, (expression, value)) in hit::LAYOUT.iter().chain(Window::LAYOUT).enumerate() {
        text +=
            &format!("typedef char check_{index}[({expression}) == {value} ? 1 : -1]; /* {expression} */\n");
    }
    let source = bench.path().join("structures.c");
    std::fs::write(&source, &text).expect("the folder is writable");
    let flags = ["-std=gnu11", "-fsyntax-only"];
    for compiler in support::compilers("c") {
        bench.check(compiler, &flags, &source, Mode::Seq);
    }
    // The check can fail.
    let wrong = text.replacen("== ", "!= ", 1);
    std::fs::write(&source, wrong).expect("the folder is writable");
    let include = crate_folder().join("include");
    let mut command = std::process::Command::new(support::cc());
    command.args(flags).args(["-DGASNET_SEQ", "-I"]).arg(include).arg(&source);
    assert!(!command.output().expect("a C compiler runs").status.success());
}

/// Goal: puts and gets of cached pages, of any form and length, are done without a call of the library, and counted as
/// Rust's; what must not be done so is not. Pages of 4 KiB, so that many operations go over several.
#[test]
fn hits_call_nobody() {
    let bench = Bench::new();
    let settings = |nodes| {
        [
            ("VGAS_SEGMENT_KIND", "tiered"),
            ("VGAS_CACHE_SIZE", "8MiB"),
            ("VGAS_CACHE_PAGE", "4KiB"),
            ("VGASNET_NODES", nodes),
        ]
    };
    for (conduit, mode) in [(Conduit::Smp, Mode::Par), (Conduit::Tcp, Mode::Parsync)] {
        let program = bench.program("hits", conduit, mode);
        program.pass(1, &settings("1"), &["4096"]);
        program.pass(2, &settings("1"), &["4096"]);
        program.pass(4, &settings("2"), &["4096"]);
    }
}
