//! The installed files, used as clients use them: nothing of this repository is named but the prefix.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Bench, crate_folder, finish, library_folder};

/// Installs into a folder of its own.
fn install(bench: &Bench) -> PathBuf {
    let prefix = bench.path().join("prefix");
    run(Command::new("sh")
        .arg(crate_folder().join("install.sh"))
        .args([Path::new("--prefix"), &prefix, Path::new("--library-folder"), &library_folder()])
        .env("CC", support::cc()));
    prefix
}

/// Runs a command that must succeed; returns its standard output.
fn run(command: &mut Command) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output =
        finish(child.unwrap_or_else(|error| panic!("{command:?}: {error}")), &format!("{command:?}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("skipped: {tool} is not installed");
    }
    found.is_ok()
}

/// A client that is not in this repository.
fn client(bench: &Bench) -> PathBuf {
    let source = bench.path().join("client.c");
    let text = "#include <gasnet.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n\
        if (gasnet_init(&argc, &argv) != GASNET_OK) return 1;\n\
        if (gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) != GASNET_OK) return 1;\n\
        printf(\"node %d of %d, %d arguments\\n\", (int)gasnet_mynode(), (int)gasnet_nodes(), argc - 1);\n\
        gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);\n\
        gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);\n\
        gasnet_exit(0);\nreturn 0;\n}\n";
    std::fs::write(&source, text).expect("the folder is writable");
    source
}

/// Installs once: the library is large, and linking with it slow.
#[test]
fn installed_files_are_enough() {
    let bench = Bench::new();
    let (prefix, source) = (install(&bench), client(&bench));
    make_fragments_build_clients(&bench, &prefix, &source);
    pkg_config_builds_clients(&bench, &prefix, &source);
    configurations_cannot_be_mixed(&bench, &prefix, &source);
}

/// Goal: a makefile that includes the fragment of a configuration builds a client; the spawner runs it, and so does the
/// client itself.
fn make_fragments_build_clients(bench: &Bench, prefix: &Path, source: &Path) {
    if !is_installed("make") {
        return;
    }
    // The installer treats all configurations alike; these have all parts of their names.
    for (conduit, mode) in [("smp", "seq"), ("smp", "par"), ("tcp", "parsync")] {
        let program = bench.path().join(format!("{conduit}-{mode}"));
        let makefile = bench.path().join("Makefile");
        let text = format!(
            "include {}/include/{conduit}-conduit/{conduit}-{mode}.mak\n{}: {}\n\
                 \t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -c $< -o $@.o\n\
                 \t$(GASNET_LD) $(GASNET_LDFLAGS) $@.o -o $@ $(GASNET_LIBS)\n",
            prefix.display(),
            program.display(),
            source.display()
        );
        std::fs::write(&makefile, text).expect("the folder is writable");
        run(Command::new("make").arg("-f").arg(&makefile));
        let spawner = prefix.join(format!("bin/gasnetrun_{conduit}"));
        let text = run(Command::new(spawner).args(["-n", "2", "-N", "2"]).arg(&program).args(["a", "b"]));
        assert_eq!(text.matches("of 2, 2 arguments").count(), 2, "{text}");
        let text = match conduit {
            "smp" => run(Command::new(&program).arg("a").env("GASNET_PSHM_NODES", "3")),
            _ => run(Command::new(&program).args(["3", "a"])),
        };
        assert_eq!(text.matches("of 3, 1 arguments").count(), 3, "{text}");
    }
}

/// Goal: the same through pkg-config, and with the shared library.
fn pkg_config_builds_clients(bench: &Bench, prefix: &Path, source: &Path) {
    if !is_installed("pkg-config") {
        return;
    }
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "gasnet-tcp-par"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let program = bench.path().join("client");
    run(Command::new(support::cc()).arg(source).args(flags.split_whitespace()).arg("-o").arg(&program));
    assert_eq!(run(Command::new(&program).arg("2")).matches("of 2, 0 arguments").count(), 2);
    let lib = prefix.join("lib");
    let shared = bench.path().join("shared");
    run(Command::new(support::cc())
        .args(["-DGASNET_PAR", "-DGASNET_CONDUIT_TCP", "-I"])
        .arg(prefix.join("include"))
        .arg(source)
        .arg("-L")
        .arg(&lib)
        .args(["-lgasnet-tcp-par", "-lvgas"])
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg("-o")
        .arg(&shared));
    assert_eq!(run(Command::new(&shared).arg("2")).matches("of 2, 0 arguments").count(), 2);
}

/// Goal: a client that was compiled for one thread mode or conduit is not linked with the library of another.
fn configurations_cannot_be_mixed(bench: &Bench, prefix: &Path, source: &Path) {
    for (library, links) in [("smp-par", true), ("smp-seq", false), ("tcp-par", false)] {
        let status = Command::new(support::cc())
            .args(["-DGASNET_PAR", "-DGASNET_CONDUIT_SMP", "-I"])
            .arg(prefix.join("include"))
            .arg(source)
            .arg("-L")
            .arg(prefix.join("lib"))
            .args([&format!("-lgasnet-{library}"), "-l:libvgas.a"])
            .args(support::SYSTEM_LIBRARIES)
            .arg("-o")
            .arg(bench.path().join("client"))
            .stderr(Stdio::null())
            .status();
        assert_eq!(status.expect("a C compiler runs").success(), links, "{library}");
    }
}
