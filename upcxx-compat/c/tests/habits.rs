//! What existing GASNet clients rely on without being promised it, each found with one of them.

mod support;

use std::process::{Command, Stdio};
use support::{Bench, Conduit, Mode, tiered};

/// Goal: clients that wait without polling, tell threads apart by their thread data, or send pointers by the macros for
/// them, work in every configuration and with segments of both kinds.
#[test]
fn habits() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        for mode in Mode::ALL {
            let program = bench.program("habits", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(3, &[("VGASNET_NODES", nodes)], &[]);
            program.pass(3, &tiered(nodes), &[]);
        }
    }
}

/// Goal: a runtime in C++ may include gasnet.h inside of `extern "C"`.
#[test]
fn habits_of_runtimes_in_cpp() {
    let bench = Bench::new();
    let source = support::crate_folder().join("tests/c/habits.c");
    for compiler in support::compilers("c++") {
        for standard in ["-std=c++98", "-std=c++17"] {
            let program = bench.path().join(format!("{compiler}{standard}"));
            bench.compile(compiler, &[standard, "-x", "c++"], &source, Conduit::Smp, Mode::Seq, &program);
        }
    }
}

/// Goal: to itself a rank may name all of its memory, in every form of put and get; to others its segment alone.
#[test]
fn own_memory() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("own", conduit, Mode::Seq);
        program.pass(2, &[("VGASNET_NODES", nodes)], &[]);
        program.pass(2, &tiered(nodes), &[]);
        let output = program.run(2, &[("VGASNET_NODES", nodes)], &["others"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("outside of the segment of node"), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}

/// Goal: a long message carries the 4 MiB that benchmarks send, to many ranks at once, and so does a reply into a pinned segment.
#[test]
fn long_messages() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("long", conduit, Mode::Seq);
        program.pass(4, &[("VGASNET_NODES", nodes)], &["replies"]);
        program.pass(3, &tiered(nodes), &[]);
    }
}

/// Goal: names that the specification lacks and clients use do what these expect.
#[test]
fn names() {
    let bench = Bench::new();
    for mode in Mode::ALL {
        let program = bench.program("names", Conduit::Tcp, mode);
        program.pass(2, &[("VGASNET_NODES", "2")], &[]);
        program.pass(2, &tiered("2"), &[]);
    }
    let source = support::crate_folder().join("tests/c/names.c");
    for compiler in support::compilers("c++") {
        let program = bench.path().join(format!("names-{compiler}"));
        let flags = ["-std=c++11", "-x", "c++"];
        bench.compile(compiler, &flags, &source, Conduit::Tcp, Mode::Par, &program);
    }
}

/// Goal: a client that catches SIGQUIT decides how an interrupted job ends, but not how one ends that a rank has left.
#[test]
fn interruption() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("interruption", conduit, Mode::Par);
        for (how, whether, status) in [
            ("interrupt", "catch", 4),
            ("interrupt", "ignore", 130),
            ("exit", "catch", 0),
            ("exit", "ignore", 0),
        ] {
            let output = program.run(3, &[("VGASNET_NODES", nodes)], &[how, whether]);
            assert_eq!(output.status.code(), Some(status), "{conduit:?} {how} {whether}: {output:?}");
        }
    }
}

/// Goal: a pointer to a function or to a global variable means the same in all ranks, also of position-independent programs.
#[test]
fn addresses() {
    if !Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system refuses to load programs at addresses that are not random");
        return;
    }
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("addresses", conduit, Mode::Seq);
        program.pass(4, &[("VGASNET_NODES", nodes)], &[]);
    }
}

/// Goal: ranks agree on the names of barriers as the specification wants it since 1.8, which existing clients check; all
/// threads may take part in those of teams.
#[test]
fn barriers() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        for mode in [Mode::Seq, Mode::Par] {
            let program = bench.program("barriers", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(4, &[("VGASNET_NODES", nodes)], &[]);
        }
    }
}

/// Goal: hosts are named as GASNet's users name them, in a variable or a file; and who asks is told what becomes of each
/// variable. A script stands in for ssh, so that all hosts are this one.
#[test]
fn hosts_and_variables() {
    let bench = Bench::new();
    let program = bench.program("ring", Conduit::Tcp, Mode::Par);
    let (script, called) = (bench.path().join("ssh"), bench.path().join("called"));
    let text = format!("host=$1\nshift\necho $host >>{}\nexec sh -c \"$*\"\n", called.display());
    std::fs::write(&script, text).expect("the folder is writable");
    let ssh = format!("sh {}", script.display());
    let list = bench.path().join("list");
    std::fs::write(&list, "first # and not\n\nsecond third\n").expect("the folder is writable");
    let list = list.to_str().expect("a path that is text");
    for (name, value) in
        [("GASNET_SSH_SERVERS", "first, second"), ("GASNET_SSH_NODEFILE", list), ("GASNET_NODEFILE", list)]
    {
        let environment = [
            ("GASNET_SPAWNFN", "S"),
            (name, value),
            ("VGAS_RUN_SSH", &ssh),
            ("GASNET_VERBOSEENV", "1"),
            ("GASNET_TRACEMASK", "PG"),
        ];
        let output = program.run(2, &environment, &[]);
        assert!(output.status.success(), "{name}: {output:?}");
        let mut hosts: Vec<_> = std::fs::read_to_string(&called)
            .expect("the script was called")
            .lines()
            .map(str::to_owned)
            .collect();
        hosts.sort();
        assert_eq!(hosts, ["first", "second"], "{name}");
        std::fs::remove_file(&called).expect("it was there");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(&format!("ENV parameter: {name} = {value}\n")), "{told}");
        assert!(told.contains("ENV parameter: GASNET_TRACEMASK = PG (ignored: use VGAS_LOG)"), "{told}");
    }
    let output = program.run(2, &[("GASNET_SPAWNFN", "S")], &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs hosts"), "{output:?}");
}

/// Goal: a job runs also in a folder that has been deleted meanwhile.
#[test]
fn a_deleted_folder() {
    let bench = Bench::new();
    let program = bench.program("ring", Conduit::Tcp, Mode::Par);
    let folder = bench.path().join("deleted");
    std::fs::create_dir(&folder).expect("the folder is writable");
    let mut shell = Command::new("sh");
    shell.args(["-c", "cd \"$0\" && rmdir \"$0\" && exec \"$1\" 3"]).arg(&folder).arg(program.path());
    let child = shell.env("VGASNET_NODES", "2").stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let output = support::finish(child.expect("a shell"), "a job in a deleted folder");
    assert!(output.status.success(), "{output:?}");
}

/// Goal: a client may be a library that a program or an interpreter loads while it runs; where that cannot work, a line says so.
#[test]
fn clients_loaded_while_a_program_runs() {
    let bench = Bench::new();
    let client = bench.path().join("libclient.so");
    let source = support::crate_folder().join("tests/c/loaded.c");
    let flags = ["-std=gnu11", "-shared", "-fPIC"];
    bench.compile(&support::cc(), &flags, &source, Conduit::Smp, Mode::Seq, &client);
    let (program, loader) = (bench.path().join("loads"), bench.path().join("loads.c"));
    let text = "#include <dlfcn.h>\nint main(int argc, char **argv) {\nvoid *client = dlopen(argv[1], RTLD_NOW);\n\
        return client ? ((int (*)(int, char **))dlsym(client, \"client_main\"))(argc, argv) : 2;\n}\n";
    std::fs::write(&loader, text).expect("the folder is writable");
    let built = Command::new(support::cc()).arg(&loader).arg("-o").arg(&program).arg("-ldl").status();
    assert!(built.expect("a C compiler runs").success());
    let run = |command: &mut Command, preload: Option<&str>| {
        command.current_dir(bench.path()).env("GASNET_PSHM_NODES", "3").env("VGASNET_NODES", "2");
        command.envs(preload.map(|library| ("LD_PRELOAD", library)));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        support::finish(child.expect("it starts"), "a program that loads a client")
    };
    let passes = |command: &mut Command, preload: Option<&str>| {
        let output = run(command, preload);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted = format!("of 3, preloaded: {}\n", preload.unwrap_or("nothing"));
        assert!(output.status.success() && text.matches(&wanted).count() == 3, "{output:?}");
    };
    passes(Command::new(&program).arg("./libclient.so"), None);
    passes(Command::new(&program).arg("./libclient.so"), Some("libdl.so.2"));
    let script = format!("import ctypes; ctypes.CDLL({client:?}, ctypes.RTLD_GLOBAL).client_main(0, None)");
    let mut python = Command::new("python3");
    match Command::new("python3").args(["-c", "import ctypes"]).status() {
        Ok(status) if status.success() => passes(python.args(["-c", &script]), None),
        _ => eprintln!("skipped: python3 is not installed"),
    }
    // The client runs within the constructor of a library that the program is linked with: before `main`, and before the
    // constructors of what is preloaded.
    let early = bench.path().join("early");
    let text = "#include <dlfcn.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void load(int argc, char **argv) \
        {\nvoid *client = dlopen(\"./libclient.so\", RTLD_NOW);\nif (!client) exit(2);\n\
        exit(((int (*)(int, char **))dlsym(client, \"client_main\"))(argc, argv));\n}\nvoid needed(void) {}\n";
    std::fs::write(bench.path().join("early.c"), text).expect("the folder is writable");
    std::fs::write(
        bench.path().join("main.c"),
        "void needed(void);\nint main(void) { needed(); return 9; }\n",
    )
    .expect("the folder is writable");
    for arguments in [
        &["-shared", "-fPIC", "early.c", "-o", "libearly.so", "-ldl"][..],
        &["main.c", "-o", "early", "./libearly.so"],
    ] {
        let built = Command::new(support::cc()).current_dir(bench.path()).args(arguments).status();
        assert!(built.expect("a C compiler runs").success(), "{arguments:?}");
    }
    passes(&mut Command::new(&early), None);
    // The library is loaded under this name as a part of the client, so that it is found there. No shell preloads a path with a space.
    let folder = bench.path().join("a folder");
    std::fs::create_dir(&folder).expect("the folder is writable");
    let library = support::library_folder().join("libvgasnet.so");
    std::fs::copy(&library, folder.join("libvgas.so.0")).expect("the folder is writable");
    passes(Command::new(&program).arg("./libclient.so").env("LD_LIBRARY_PATH", &folder), None);
}

/// Goal: a client may be a plugin that uses its program's symbols, so that no other program can load it; one that calls `gasnet_init` within a
/// constructor as well ends with a line.
#[test]
fn plugins_of_a_program() {
    let bench = Bench::new();
    let write = |name: &str, text: &str| {
        std::fs::write(bench.path().join(name), text).expect("the folder is writable");
        bench.path().join(name)
    };
    let client = support::crate_folder().join("tests/c/loaded.c");
    let plugin = write(
        "plugin.c",
        &format!(
            "#include {client:?}\nextern int of_the_program;\nint *used = &of_the_program;\n\
             #ifdef EARLY\n__attribute__((constructor)) static void start(void) {{ exit(client_main(0, 0)); }}\n#endif\n"
        ),
    );
    // With the library in it, as plugins of runtimes have it.
    let compile = |flags: &[&str], out: &str| {
        let mut compiler = Command::new(support::cc());
        compiler
            .args(["-std=gnu11", "-shared", "-fPIC", "-pthread", Conduit::Smp.flag(), Mode::Seq.flag(), "-I"])
            .arg(support::crate_folder().join("include"))
            .args(flags)
            .arg(&plugin)
            .arg(support::crate_folder().join("csrc/configuration.c"))
            .args([bench.tools(), support::library_folder().join("libvgasnet.a")])
            .args(support::SYSTEM_LIBRARIES)
            .arg("-o")
            .arg(bench.path().join(out));
        assert!(compiler.status().expect("a C compiler runs").success());
    };
    compile(&[], "libplugin.so");
    compile(&["-DEARLY"], "libearly.so");
    let text = "#include <dlfcn.h>\nint of_the_program = 7;\nint main(int argc, char **argv) {\n\
        void *client = dlopen(argv[1], RTLD_NOW);\n\
        return client ? ((int (*)(int, char **))dlsym(client, \"client_main\"))(argc, argv) : 2;\n}\n";
    let program = bench.path().join("loads");
    let built = Command::new(support::cc())
        .arg(write("loads.c", text))
        .args(["-rdynamic", "-ldl", "-o"])
        .arg(&program)
        .status();
    assert!(built.expect("a C compiler runs").success());
    let run = |plugin: &str| {
        let mut command = Command::new(&program);
        command.arg(plugin).current_dir(bench.path()).env("GASNET_PSHM_NODES", "3").env("VGASNET_NODES", "2");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        support::finish(child.expect("it starts"), "a program that loads a plugin")
    };
    let output = run("./libplugin.so");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.matches("of 3, preloaded: nothing\n").count() == 3, "{output:?}");
    let output = run("./libearly.so");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("start the program by vgas run"), "{output:?}");
}

/// Goal: a client is called what its user has called it; it says how large its segments become unless the user does; and it may
/// run other clients, which are jobs of their own.
#[test]
fn jobs_in_jobs() {
    let bench = Bench::new();
    let (inner, outer) =
        (bench.program("inner", Conduit::Tcp, Mode::Seq), bench.program("inner", Conduit::Smp, Mode::Seq));
    let link = bench.path().join("link");
    std::os::unix::fs::symlink(inner.path(), &link).expect("the folder is writable");
    let link = link.to_str().expect("a path that is text");
    let told = |ranks: u32, bytes: u64| format!("{link} of {ranks} with {bytes}\n");
    let output = Command::new(link).arg("2").output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), told(2, 3 << 20), "{output:?}");
    let output = Command::new(link).arg("2").env("GASNET_MAX_SEGSIZE", "2MB").output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), told(2, 2 << 20), "{output:?}");
    // The variable of the spawners is for the job that they start.
    for environment in [&[][..], &[("VGASNET_RANKS", "3")], &[("VGAS_SEGMENT_KIND", "tiered")]] {
        outer.pass(2, environment, &[&format!("{link} 2"), &told(2, 3 << 20)]);
    }
}
