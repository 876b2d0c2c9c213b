//! The installed files, used as clients use them: nothing of this repository is named but the prefix.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Bench, crate_folder, finish, library_folder};

/// Installs into a folder of its own, with aliases: every other test shows that they change nothing for the conduits.
fn install(bench: &Bench) -> PathBuf {
    let prefix = bench.path().join("prefix");
    run(Command::new("sh")
        .arg(crate_folder().join("install.sh"))
        .args([Path::new("--prefix"), &prefix, Path::new("--library-folder"), &library_folder()])
        .args(["--alias", "udp", "--alias=mpi", "--alias", "udp"])
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

/// Installs once: the library is large, and linking with it slow; so its debugging information is left out (-Wl,-S).
#[test]
fn installed_files_are_enough() {
    let bench = Bench::new();
    let (prefix, source) = (install(&bench), client(&bench));
    make_fragments_build_clients(&bench, &prefix, &source);
    folders_and_one_library_build_clients(&bench, &prefix, &source);
    pkg_config_builds_clients(&bench, &prefix, &source);
    every_compiler_builds_clients(&bench, &prefix, &source);
    cmake_builds_clients(&bench, &prefix, &source);
    the_shared_library_has_the_tools(&bench, &prefix);
    the_command_starts_clients(&bench, &prefix, &source);
    configurations_cannot_be_mixed(&bench, &prefix, &source);
    configure_scripts_find_gasnet(&bench, &prefix);
    aliases_are_conduits_to_their_clients(&bench, &prefix);
}

/// Goal: what configure scripts link to find GASNet is there, as is what they link beside its conduits of sockets and MPI; the
/// limits of messages are constants, by which clients size arrays.
fn configure_scripts_find_gasnet(bench: &Bench, prefix: &Path) {
    let (source, program) = (bench.path().join("looks.c"), bench.path().join("looks"));
    let (include, lib) =
        (format!("-I{}", prefix.join("include").display()), format!("-L{}", prefix.join("lib").display()));
    let build = |text: &str, libraries: &[&str]| {
        std::fs::write(&source, text).expect("the folder is writable");
        let mut command = Command::new(support::cc());
        command.args(["-Wall", "-Werror", "-DGASNET_PAR", "-pthread", &include]).arg(&source).arg(&lib);
        command.args(libraries).args(["-Wl,-S", "-o"]).arg(&program);
        assert!(command.status().expect("a C compiler runs").success(), "{text}");
    };
    for symbol in ["gasnetc_AMPoll", "gasnetc_attach", "gasnetc_AMRequestShortM", "gasnetc_AMReplyLongM"] {
        let text = format!("char {symbol}(void);\nint main(void) {{ return {symbol}(); }}\n");
        build(&text, &["-lgasnet-smp-par"]);
    }
    let text = "#include <gasnet.h>\n#include <sys/param.h>\n\
        static char buffer[gasnet_AMMaxMedium() + sizeof(int) * gasnet_AMMaxArgs()];\n\
        int main(void) { return MIN(sizeof buffer, MAX(1, 2)) == 2 ? 0 : 1; }\n";
    build(text, &["-lgasnet-smp-par", "-lamudp", "-lammpi"]);
    run(&mut Command::new(&program));
}

/// Goal: a client that knows a fixed list of conduits, and checks which it got, finds one of them: in the names of files, of
/// libraries and of the fragment's variables, in the macros and texts of the headers, and in the spawner's.
fn aliases_are_conduits_to_their_clients(bench: &Bench, prefix: &Path) {
    let source = bench.path().join("picky.c");
    let text = "#include <gasnet.h>\n#include <stdio.h>\n\
        #if !GASNET_CONDUIT_UDP || defined(GASNET_CONDUIT_TCP) || defined(GASNET_CONDUIT_MPI)\n#error not udp\n#endif\n\
        int main(int argc, char **argv) {\n\
        if (gasnet_init(&argc, &argv) != GASNET_OK || gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) != GASNET_OK) return 1;\n\
        printf(\"%s %s of %d\\n\", GASNET_CONDUIT_NAME_STR, GASNET_CONFIG_STRING, (int)gasnet_nodes());\n\
        gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);\n\
        gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);\n\
        gasnet_exit(0);\nreturn 0;\n}\n";
    std::fs::write(&source, text).expect("the folder is writable");
    let program = bench.path().join("picky");
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let folder = |path: &Path| format!("-I{}", path.display());
    let udp = folder(&include.join("udp-conduit"));
    let build = |flags: &[&str], library: &str| {
        let mut command = Command::new(support::cc());
        command
            .args(["-DGASNET_PAR", "-pthread", &folder(&include)])
            .args(flags)
            .arg(&source)
            .arg("-L")
            .arg(&lib);
        command.args([library, "-Wl,-S", "-o"]).arg(&program).stderr(Stdio::null());
        command.status().expect("a C compiler runs").success()
    };
    // By the folder, as makefiles do, and by the macro alone.
    for flags in [&[udp.as_str()][..], &["-DGASNET_CONDUIT_UDP"], &[&udp, "-DGASNET_CONDUIT_UDP=1"]] {
        assert!(build(flags, "-lgasnet-udp-par"), "{flags:?}");
        let text = run(Command::new(&program).arg("2"));
        assert_eq!(text.matches("UDP RELEASE=").count(), 2, "{flags:?}: {text}");
        assert_eq!(text.matches("CONDUIT=UDP(UDP-").count(), 2, "{flags:?}: {text}");
    }
    let text = run(Command::new(prefix.join("bin/gasnetrun_udp")).args(["-n", "3", "-N", "2"]).arg(&program));
    assert_eq!(text.matches("of 3").count(), 3, "{text}");
    // Another library, two conduits, and an alias that was not installed.
    assert!(!build(&[&udp], "-lgasnet-tcp-par") && !build(&[&udp], "-lgasnet-mpi-par"));
    assert!(!build(&[&udp, "-DGASNET_CONDUIT_UDP", "-DGASNET_CONDUIT_TCP"], "-lgasnet-udp-par"));
    assert!(!build(&[&udp, "-DGASNET_CONDUIT_UDP", "-DGASNET_CONDUIT_MPI"], "-lgasnet-udp-par"));
    for mode in ["seq", "parsync", "par"] {
        let fragment = std::fs::read_to_string(include.join(format!("mpi-conduit/mpi-{mode}.mak")));
        let fragment = fragment.expect("the fragment was installed");
        assert!(fragment.contains("GASNET_CONDUIT = mpi\n"), "{fragment}");
        assert!(
            fragment.contains("-DGASNET_CONDUIT_MPI\n")
                && fragment.contains(&format!("-lgasnet-mpi-{mode} "))
        );
        assert!(lib.join(format!("libgasnet-mpi-{mode}.a")).exists());
        assert!(lib.join(format!("pkgconfig/gasnet-mpi-{mode}.pc")).exists());
    }
}

/// Goal: a conduit's own name can be an alias as well, where a build system insists on it and the machine has no such network.
#[test]
fn an_alias_takes_the_place_of_a_conduit() {
    let bench = Bench::new();
    let prefix = bench.path().join("prefix");
    run(Command::new("sh")
        .arg(crate_folder().join("install.sh"))
        .args([Path::new("--prefix"), &prefix, Path::new("--library-folder"), &library_folder()])
        .args(["--alias", "ibv"])
        .env("CC", support::cc()));
    let program = bench.path().join("ibv");
    build_shared_for("ibv", &support::cc(), &[], &prefix, &client(&bench), &program);
    // Where there is no RDMA, the conduit of that name would refuse to start.
    assert_eq!(run(Command::new(&program).arg("2")).matches("of 2, 0 arguments").count(), 2);
    let config = std::fs::read_to_string(prefix.join("lib/cmake/vgas/vgas-config.cmake"));
    assert!(config.expect("it was installed").contains("foreach(_conduit smp tcp ibv)"));
}

/// Goal: a client that is linked statically is small without any flag of its build system; what debuggers want is beside it. Of the release, which is what users install.
#[test]
#[ignore = "builds the release, which takes minutes; .ci/run runs it among the slower tests"]
fn a_static_client_is_small() {
    // Of which joining jobs that others have started, and leading them, are 0.2 MB, the conduit over libfabric 0.1 MB, networks and
    // memory of virtual nodes 0.1 MB, and collectives, by messages and over a board in shared memory, 0.1 MB.
    const CLIENT_BYTES_MAX: u64 = 5_200_000;
    let bench = Bench::new();
    let (prefix, source) = (bench.path().join("prefix"), client(&bench));
    let build = Command::new("sh")
        .arg(crate_folder().join("install.sh"))
        .arg("--prefix")
        .arg(&prefix)
        .env("CC", support::cc())
        .status();
    assert!(build.expect("a shell runs").success());
    let bytes = |path: &Path| std::fs::metadata(path).expect("it is there").len();
    let program = bench.path().join("small");
    run(Command::new(support::cc())
        .args(["-O2", "-s", "-pthread", "-DGASNET_PAR", "-DGASNET_CONDUIT_TCP", "-I"])
        .arg(prefix.join("include"))
        .arg(&source)
        .arg("-L")
        .arg(prefix.join("lib"))
        .args(["-lgasnet-tcp-par", "-o"])
        .arg(&program));
    assert!(bytes(&program) <= CLIENT_BYTES_MAX, "{} bytes", bytes(&program));
    assert_eq!(run(Command::new(&program).arg("2")).matches("of 2, 0 arguments").count(), 2);
    for (library, least) in [("libvgas.a", 2 * CLIENT_BYTES_MAX), ("libvgas.so.0.debug", CLIENT_BYTES_MAX)] {
        assert!(bytes(&prefix.join("lib/debug").join(library)) > least, "{library}");
    }
    let shared = bytes(&prefix.join("lib/libvgas.so.0"));
    assert!(shared <= CLIENT_BYTES_MAX, "{shared} bytes");
}

/// Goal: the installer says what is wrong with its options, and does nothing then.
#[test]
fn wrong_options_are_refused() {
    let installer = || {
        let mut command = Command::new("sh");
        command.arg(crate_folder().join("install.sh"));
        command
    };
    for (options, said) in [
        (&[][..], "where to?"),
        (&["--prefix"], "--prefix needs a folder"),
        (&["--prefix", "/nowhere", "--library-folder"], "--library-folder needs a folder"),
        (&["--prefex", "/nowhere"], "no option --prefex"),
        (&["--prefix", "/nowhere", "--alias"], "--alias needs the name of a conduit"),
        (&["--prefix", "/nowhere", "--alias", "tcp"], "name another conduit, such as udp"),
        (&["--prefix", "/nowhere", "--alias", "UDP"], "small letters and digits"),
        (&["--prefix", "/nowhere", "--alias", ""], "--alias needs the name of a conduit"),
    ] {
        let output = installer().args(options).output().expect("a shell runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(error.contains(said) && error.lines().count() == 1, "{options:?}: {error}");
    }
    assert!(run(installer().arg("--help")).contains("install.sh --prefix DIR"));
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
                 \t$(GASNET_LD) $(GASNET_LDFLAGS) -Wl,-S $@.o -o $@ $(GASNET_LIBS)\n",
            prefix.display(),
            program.display(),
            source.display()
        );
        std::fs::write(&makefile, text).expect("the folder is writable");
        run(Command::new("make").arg("-f").arg(&makefile));
        // As strings(1) shows it.
        let built = std::fs::read(&program).expect("it was built");
        let wanted = format!("THREADMODEL={}", mode.to_uppercase());
        assert!(built.windows(wanted.len()).any(|text| text == wanted.as_bytes()), "{wanted}");
        let spawner = prefix.join(format!("bin/gasnetrun_{conduit}"));
        let text = run(Command::new(&spawner).args(["-n", "2", "-N", "2"]).arg(&program).args(["a", "b"]));
        assert_eq!(text.matches("of 2, 2 arguments").count(), 2, "{text}");
        // Values without a space, and the program in the folder that one is in.
        for ranks in ["-n3", "-np3"] {
            let name = program.file_name().expect("it has one");
            let mut spawner = Command::new(&spawner);
            spawner.args([ranks, "-N2", "-c1", "-EPATH,HOME"]).arg(name).arg("-n2").current_dir(bench.path());
            let text = run(&mut spawner);
            assert_eq!(text.matches("of 3, 1 arguments").count(), 3, "{text}");
        }
        let text = match conduit {
            "smp" => run(Command::new(&program).arg("a").env("GASNET_PSHM_NODES", "3")),
            _ => run(Command::new(&program).args(["3", "a"])),
        };
        assert_eq!(text.matches("of 3, 1 arguments").count(), 3, "{text}");
    }
}

/// Goal: the folders of a conduit choose it, in either order, and the library of a configuration is all that is linked, however
/// it is named, by each linker that is here, and also when everything has been moved elsewhere.
fn folders_and_one_library_build_clients(bench: &Bench, prefix: &Path, source: &Path) {
    let moved = bench.path().join("moved");
    std::os::unix::fs::symlink(prefix, &moved).expect("the folder is writable");
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let conduit = include.join("tcp-conduit");
    let by_name = [format!("-L{}", lib.display()), "-lgasnet-tcp-par".into()];
    let by_path = [moved.join("lib/libgasnet-tcp-par.a").display().to_string()];
    let program = bench.path().join("one-library");
    for (folders, linker, library) in [
        ([&include, &conduit], None, &by_name[..]),
        ([&conduit, &include], None, &by_path[..]),
        ([&include, &conduit], Some("gold"), &by_path[..]),
        ([&include, &conduit], Some("lld"), &by_path[..]),
    ] {
        if linker.is_some_and(|linker| !is_installed(&format!("ld.{linker}"))) {
            continue;
        }
        run(Command::new(support::cc())
            .args(["-DGASNET_PAR", "-pthread", "-Wl,-S"])
            .args(linker.map(|linker| format!("-fuse-ld={linker}")))
            .args(folders.iter().map(|folder| format!("-I{}", folder.display())))
            .arg(source)
            .args(library)
            .arg("-o")
            .arg(&program)
            .current_dir("/"));
        let text = run(Command::new(&program).arg("2"));
        assert_eq!(text.matches("of 2, 0 arguments").count(), 2, "{linker:?} {library:?}: {text}");
    }
}

/// Goal: the same through pkg-config.
fn pkg_config_builds_clients(bench: &Bench, prefix: &Path, source: &Path) {
    if !is_installed("pkg-config") {
        return;
    }
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "gasnet-tcp-par"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let program = bench.path().join("client");
    let mut link = Command::new(support::cc());
    run(link.arg(source).args(flags.split_whitespace()).args(["-Wl,-S", "-o"]).arg(&program));
    assert_eq!(run(Command::new(&program).arg("2")).matches("of 2, 0 arguments").count(), 2);
    the_examples_build_as_they_say(bench, prefix);
}

/// Goal: the command that an example shows in its first lines builds it. (What it does is checked by the test `examples`.)
fn the_examples_build_as_they_say(bench: &Bench, prefix: &Path) {
    for example in ["ring", "stencil", "histogram"] {
        let name = format!("{example}.c");
        let text = std::fs::read_to_string(crate_folder().join("../../examples/c").join(&name))
            .expect("the example is there");
        let line =
            text.lines().find_map(|line| line.strip_prefix(" *   $CC ")).expect("it shows its command");
        let arguments = line.split_once(" && ").expect("it is built, and then run").0;
        std::fs::write(bench.path().join(&name), &text).expect("the folder is writable");
        run(Command::new("sh")
            .args(["-e", "-c", &format!("$CC -Wl,-S {arguments}")])
            .current_dir(bench.path())
            .env("CC", support::cc())
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
        assert!(bench.path().join(example).exists(), "{line}");
    }
}

/// A client built with the installed headers and the shared library.
fn build_shared(compiler: &str, flags: &[&str], prefix: &Path, source: &Path, program: &Path) {
    build_shared_for("tcp", compiler, flags, prefix, source, program);
}

fn build_shared_for(
    conduit: &str,
    compiler: &str,
    flags: &[&str],
    prefix: &Path,
    source: &Path,
    program: &Path,
) {
    let lib = prefix.join("lib");
    run(Command::new(compiler)
        .args(["-DGASNET_PAR", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg(format!("-DGASNET_CONDUIT_{}", conduit.to_uppercase()))
        .args(flags)
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(source)
        .args(["-x", "none", "-L"])
        .arg(&lib)
        .args([&format!("-lvgas-{conduit}-par"), "-lvgas"])
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg("-o")
        .arg(program));
}

/// Goal: the installed headers are good for every language and standard that clients are written in, with each compiler that
/// is here, and what comes out runs; with the static library once for each compiler.
fn every_compiler_builds_clients(bench: &Bench, prefix: &Path, source: &Path) {
    for (language, standards) in [("c", &["-std=c99", "-std=c11"][..]), ("c++", &["-std=c++17"][..])] {
        for compiler in support::compilers(language) {
            for standard in standards {
                // The name has a `=`, which some ways to start a program trip over.
                let program = bench.path().join(format!("{compiler}{standard}"));
                build_shared(compiler, &[standard, "-x", language, "-O2"], prefix, source, &program);
                assert_eq!(run(Command::new(&program).arg("2")).matches("of 2, 0 arguments").count(), 2);
            }
            let program = bench.path().join(format!("{compiler}-static"));
            run(Command::new(compiler)
                .args(["-DGASNET_SEQ", "-DGASNET_CONDUIT_SMP", "-x", language, "-I"])
                .arg(prefix.join("include"))
                .arg(source)
                .args(["-x", "none", "-L"])
                .arg(prefix.join("lib"))
                .args(["-lgasnet-smp-seq", "-l:libvgas.a", "-Wl,-S"])
                .args(support::SYSTEM_LIBRARIES)
                .arg("-o")
                .arg(&program));
            let text = run(Command::new(&program).env("GASNET_PSHM_NODES", "2"));
            assert_eq!(text.matches("of 2, 0 arguments").count(), 2, "{compiler}: {text}");
        }
    }
}

/// Goal: a CMake project finds both packages, and builds clients of both libraries, in C and C++.
fn cmake_builds_clients(bench: &Bench, prefix: &Path, source: &Path) {
    if !is_installed("cmake") {
        return;
    }
    let project = bench.path().join("project");
    std::fs::create_dir(&project).expect("the folder is writable");
    std::fs::copy(source, project.join("client.c")).expect("the folder is writable");
    std::fs::copy(source, project.join("client.cc")).expect("the folder is writable");
    let text = "cmake_minimum_required(VERSION 3.13)\nproject(client C CXX)\n\
        find_package(gasnet 1.30 REQUIRED)\nfind_package(vgas 0.1 REQUIRED)\n\
        add_executable(in-c client.c)\ntarget_link_libraries(in-c vgas::gasnet-${CONDUIT}-par)\n\
        add_executable(in-cxx client.cc)\ntarget_link_libraries(in-cxx vgas::gasnet-${CONDUIT}-seq)\n";
    std::fs::write(project.join("CMakeLists.txt"), text).expect("the folder is writable");
    for (conduit, shared) in [("tcp", "ON"), ("smp", "OFF")] {
        let build = bench.path().join(format!("build-{conduit}"));
        run(Command::new("cmake")
            .arg("-S")
            .arg(&project)
            .arg("-B")
            .arg(&build)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
            .arg("-DCMAKE_EXE_LINKER_FLAGS=-Wl,-S")
            .args([format!("-DCONDUIT={conduit}"), format!("-DVGAS_SHARED={shared}")]));
        run(Command::new("cmake").arg("--build").arg(&build));
        for program in ["in-c", "in-cxx"] {
            let spawner = prefix.join(format!("bin/gasnetrun_{conduit}"));
            let text = run(Command::new(spawner).args(["-n", "2"]).arg(build.join(program)));
            assert_eq!(text.matches("of 2, 0 arguments").count(), 2, "{conduit} {program}: {text}");
        }
    }
}

/// Goal: the GASNet tools are in the shared library, for programs with gasnet.h (`build_shared`) and, as here, without.
fn the_shared_library_has_the_tools(bench: &Bench, prefix: &Path) {
    let source = bench.path().join("clock.c");
    let text = "#include <gasnet_tools.h>\n#include <stdio.h>\nint main(void) {\n\
        gasnett_tick_t begun = gasnett_ticks_now();\ngasnett_nsleep(1000000);\n\
        printf(\"%d cores, slept: %d\\n\", gasnett_cpu_count(), gasnett_ticks_to_ns(gasnett_ticks_now() - begun) >= 900000);\n\
        return 0;\n}\n";
    std::fs::write(&source, text).expect("the folder is writable");
    let (lib, program) = (prefix.join("lib"), bench.path().join("clock"));
    run(Command::new(support::cc())
        .args(["-D_GNU_SOURCE=1", "-I"])
        .arg(prefix.join("include"))
        .arg(&source)
        .arg("-L")
        .arg(&lib)
        .args(["-lvgas", &format!("-Wl,-rpath,{}", lib.display()), "-o"])
        .arg(&program));
    assert!(run(&mut Command::new(program)).contains("slept: 1"));
}

/// Goal: `vgas run` starts clients, too.
fn the_command_starts_clients(bench: &Bench, prefix: &Path, source: &Path) {
    let vgas = library_folder().parent().expect("a folder above").join("vgas");
    if !vgas.exists() {
        eprintln!("skipped: {} is not built (cargo build)", vgas.display());
        return;
    }
    let program = bench.path().join("run");
    build_shared(&support::cc(), &[], prefix, source, &program);
    let text = run(Command::new(vgas).args(["run", "-n", "3", "--nodes", "2", "--"]).arg(program).arg("a"));
    assert_eq!(text.matches("of 3, 1 arguments").count(), 3, "{text}");
}

/// Goal: a client that was compiled for one thread mode or conduit is not linked with the library of another, however it was
/// optimised.
fn configurations_cannot_be_mixed(bench: &Bench, prefix: &Path, source: &Path) {
    let wrong = ["smp-seq", "tcp-par", "ibv-par"].map(|library| (library, false));
    let cases =
        wrong.into_iter().flat_map(|(library, links)| [("-O0", library, links), ("-O3", library, links)]);
    for (level, library, links) in cases.chain([("-O3", "smp-par", true)]) {
        let status = Command::new(support::cc())
            .args([level, "-DGASNET_PAR", "-DGASNET_CONDUIT_SMP", "-I"])
            .arg(prefix.join("include"))
            .arg(source)
            .arg("-L")
            .arg(prefix.join("lib"))
            .args([&format!("-lgasnet-{library}"), "-l:libvgas.a", "-Wl,-S"])
            .args(support::SYSTEM_LIBRARIES)
            .arg("-o")
            .arg(bench.path().join("client"))
            .stderr(Stdio::null())
            .status();
        assert_eq!(status.expect("a C compiler runs").success(), links, "{level} {library}");
    }
}
