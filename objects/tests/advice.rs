//! Goal: who makes one of the mistakes that most make first is told by the compiler what to write instead. Method: programs with one each are
//! compiled against the library of this build, by the compiler that has built it; so is one without, which shows that nothing else is wrong.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A program, and words of what is said of it.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "a String in a portable type",
        "#[derive(Portable)] pub struct Person { pub name: String }",
        &["`std::string::String` means nothing in another process", "text is a `DString`, a list a `DVec`"],
    ),
    (
        "a reference as a task's argument",
        "pub fn begin(number: &'static u64) { let _ = spawn(task!(|of: &u64| -> u64 { *of }), number); }",
        &["this task is lent a `&u64`", "begin it in a scope, which waits for it"],
    ),
    (
        "something lent outside of a scope",
        "pub fn begin(number: u64) { let _ = spawn(task!(|of: &u64, by: u64| *of + by), 3); }",
        &["this task is lent a `&u64`", "begin it in a scope, which waits for it"],
    ),
    (
        "a task that never returns",
        "pub fn begin() { let _ = spawn(task!(|number: u64| -> ! { panic!(\"{number}\") }), 3); }",
        &["a task that never returns is written with the result `()`"],
    ),
    (
        "a closure for a thread",
        "pub fn begin(number: u64) { let _ = thread::spawn(move || number + 1); }",
        &["is not made by `call!`", "name what it uses instead of capturing it"],
    ),
    (
        "a value that a task captures",
        "pub fn begin(factor: u64) { let _ = spawn(task!(|number: u64| -> u64 { number * factor }), 3); }",
        &["do not capture any variables", "`factor` captured here", "a_task_gets_what_it_uses_as_arguments"],
    ),
    (
        "a value that call! does not name",
        "pub fn begin(factor: u64, number: u64) { let _ = thread::spawn(call!(|number| number * factor)); }",
        &["do not capture any variables", "`factor` captured here", "a_task_gets_what_it_uses_as_arguments"],
    ),
    (
        "a Cell in a shareable type",
        "#[derive(Portable, Shareable)] pub struct Count { pub of: std::cell::Cell<u64> }",
        &[
            "`Cell<u64>` can change while others read it",
            "is a `DMutex` or a `DAtomicU64` of `vgas_objects::sync`",
        ],
    ),
    (
        "a type that borrows",
        "#[derive(Portable)] pub struct Name<'a> { pub name: &'a str }",
        &["cannot borrow from this one", "as a `DBox`, `DVec` or `DString`"],
    ),
    (
        "two arguments that a task owns",
        "pub fn begin() { let _ = task!(|a: u64, b: u64| -> u64 { a + b }); }",
        &["`u64` is not lent to a task", "several values are a tuple"],
    ),
    (
        "an argument without a type",
        "pub fn begin() { let _ = task!(|a| a + 1); }",
        &["a task is a closure with the type of its argument", "several are a tuple"],
    ),
    (
        "a closure that moves what it captures",
        "pub fn begin(a: u64) { let _ = task!(move |b: u64| a + b); }",
        &["a task captures nothing, so that there is nothing to move"],
    ),
    (
        "a trait object",
        "pub trait Shape {} pub fn keep(of: DBox<dyn Shape>) { drop(of) }",
        &["`(dyn Shape + 'static)` means nothing in another process", "an enum instead of `dyn Trait`"],
    ),
];

/// Programs without `unsafe` that would reach undefined behaviour if they compiled, and words of what is said of them.
const ATTACKS: &[(&str, &str, &[&str])] = &[
    (
        "a task that keeps a static reference which a scope lends",
        "static KEPT: std::sync::OnceLock<&'static u64> = std::sync::OnceLock::new();
         pub fn begin(number: &'static u64) {
             thread::scope(|scope| { let _ = scope.spawn(call!(|number| { let _ = KEPT.set(number); })); });
         }",
        &["borrowed data escapes"],
    ),
    (
        "a task that keeps a static reference which a scope lends for writing",
        "static KEPT: std::sync::Mutex<Option<&'static mut u64>> = std::sync::Mutex::new(None);
         pub fn begin(number: &'static mut u64) {
             thread::scope(|scope| { let _ = scope.spawn(call!(|number| { *KEPT.lock().unwrap() = Some(number); })); });
         }",
        &["borrowed data escapes"],
    ),
    (
        "a task to which something is lent for ever, of a scope",
        "pub fn begin(number: &'static u64) {
             scope(|scope| { let _ = scope.spawn(task!(|of: &'static u64, _n: ()| -> u64 { *of }), number, ()); });
         }",
        &["is not general enough"],
    ),
    (
        "a task that keeps one of two references",
        "static KEPT: std::sync::OnceLock<&'static u64> = std::sync::OnceLock::new();
         pub fn begin() -> Task<((&'static u64, &'static mut u64), ()), ()> {
             task!(|(of, to): (&'static u64, &mut u64), _n: ()| -> () { *to = *of; let _ = KEPT.set(of); })
         }",
        &["is not general enough"],
    ),
    (
        "a task that keeps the value of a lock",
        "static KEPT: std::sync::Mutex<Option<&'static mut u64>> = std::sync::Mutex::new(None);
         pub fn begin(lock: &'static DMutex<u64>) {
             let _ = lock.with((), task!(|of: &'static mut u64, _n: ()| -> () { *KEPT.lock().unwrap() = Some(of); }));
         }",
        &["is not general enough"],
    ),
    (
        "a token without bytes, captured by what is no task",
        "#[derive(Clone, Copy)] pub struct MainThread(std::marker::PhantomData<*const ()>);
         pub fn begin(token: MainThread) {
             let _ = spawn(vgas_objects::task_of(move |((), _n): ((), ())| { let _here = token; }), ());
         }",
        &["call to unsafe function `vgas_objects::task_of`"],
    ),
    (
        "a token without bytes, captured by what is no call",
        "#[derive(Clone, Copy)] pub struct MainThread(std::marker::PhantomData<*const ()>);
         pub fn begin(token: MainThread) {
             let _ = thread::spawn(vgas_objects::called::call_of((), move |((), ())| { let _here = token; }));
         }",
        &["call to unsafe function `", "call_of`"],
    ),
    (
        "a job's endpoint, which outlives that the job is given to a heap",
        "fn with<R>(_: fn(R, &HeapOptions) -> Result<Objects, ObjectError>, _: impl FnOnce(&R)) {}
         pub fn begin() { with(Objects::attach, |runtime| { let _kept = runtime.raw_endpoint().clone(); }); }",
        &["call to unsafe function `", "raw_endpoint`"],
    ),
    (
        "a job's cache, which holds the heap's pages",
        "fn with<R>(_: fn(R, &HeapOptions) -> Result<Objects, ObjectError>, _: impl FnOnce(&R)) {}
         pub fn begin() { with(Objects::attach, |runtime| { let _kept = runtime.raw_client().pool().clone(); }); }",
        &["call to unsafe function `", "raw_client`"],
    ),
    (
        "a job's collectives, whose endpoint is the job's",
        "fn with<R>(_: fn(R, &HeapOptions) -> Result<Objects, ObjectError>, _: impl FnOnce(&R)) {}
         pub fn begin() { with(Objects::attach, |runtime| { let _kept = runtime.raw_collectives().clone(); }); }",
        &["call to unsafe function `", "raw_collectives`"],
    ),
    (
        "bytes for a meeting of heaps",
        "pub fn begin(objects: &Objects) { let _ = objects.runtime().barrier_of_library(112, &[]); }",
        &["call to unsafe function `", "barrier_of_library`"],
    ),
    (
        "a message to the handler of a library",
        "fn with<R>(_: fn(R, &HeapOptions) -> Result<Objects, ObjectError>, _: impl FnOnce(&R)) {}
         pub fn begin() { with(Objects::attach, |runtime| { let _ = runtime.request_library(vgas_objects::rank().unwrap(), 112, &[], &[]); }); }",
        &["call to unsafe function `", "request_library`"],
    ),
    (
        "a box, a row and a lock's guard with a cell, shared by threads",
        "use std::cell::Cell;
         fn is_sync<T: Sync>() {}
         pub fn begin() {
             is_sync::<DBox<Cell<u8>>>();
             is_sync::<vgas_objects::DVec<Cell<u16>>>();
             is_sync::<vgas_objects::sync::Guard<'_, Cell<u32>>>();
         }",
        &[
            "`Cell<u8>` cannot be shared between threads",
            "`Cell<u16>` cannot be shared between threads",
            "`Cell<u32>` cannot be shared between threads",
        ],
    ),
    (
        "a portable type by hand",
        "pub struct Place(usize);
         impl Portable for Place {
             const HAS_LINKS: bool = false;
             fn links(&self, _: &mut dyn FnMut(&vgas_objects::Link)) {}
         }
         impl Shareable for Place {}",
        &[
            "the trait `Portable` requires an `unsafe impl` declaration",
            "the trait `Shareable` requires an `unsafe impl` declaration",
        ],
    ),
    (
        "a pointer whose type has the name of a number",
        "mod hidden { #[allow(non_camel_case_types)] pub struct u64(pub Box<u8>); }
         use hidden::u64;
         #[derive(Portable)] pub struct Count { pub of: u64 }",
        &["`hidden::u64` means nothing in another process"],
    ),
    (
        "a field that the derive is told to skip",
        "#[derive(Portable)] pub struct Person { #[portable(skip)] pub name: String }",
        &["cannot find attribute `portable`", "`std::string::String` means nothing in another process"],
    ),
    (
        "fields of which there are no references",
        "#[derive(Portable)] #[repr(packed)] pub struct Packed { pub first: u8, pub second: u64 }",
        &["reference to field of packed struct is unaligned"],
    ),
    (
        "a box that becomes one of another type",
        "pub fn begin(of: DBox<u64>) -> DBox<char> { DBox::from_raw(DBox::into_raw(of)) }",
        &["call to unsafe function `", "from_raw`"],
    ),
    (
        "an object that is read as one of another type",
        "pub fn begin(of: u64) -> char { vgas_objects::dread(vgas_objects::dalloc(of).unwrap()).unwrap() }",
        &["call to unsafe function `", "dread`"],
    ),
    (
        "files that anybody may have written, as a heap",
        "fn with<R>(_: fn(R, &HeapOptions) -> Result<Objects, ObjectError>, runtime: impl FnOnce() -> R) -> R { runtime() }
         pub fn begin() {
             let _ = Objects::attach_named(with(Objects::attach, || loop {}), &HeapOptions::default(), \"mine\");
         }",
        &["call to unsafe function `", "attach_named`"],
    ),
    (
        "a lock's guard that is kept beyond a checkpoint",
        "pub fn begin(objects: &Objects, lock: &'static DMutex<u64>) {
             let _ = objects.keep(\"guard\", DBox::new(lock.lock().unwrap()));
         }",
        &["`Guard<'_, u64>` means nothing in another process"],
    ),
    (
        "a box that a task takes out of what it is lent",
        "pub fn begin(lock: &DMutex<DBox<u64>>) {
             let _ = lock.with((), task!(|of: &mut DBox<u64>, _n: ()| -> DBox<u64> { *of }));
         }",
        &["cannot move out of `*of`"],
    ),
    (
        "bytes between the fields of a value",
        "pub fn begin(value: &mut (u8, u64)) -> usize { vgas_objects::bytes::of(value).len() }",
        &["module `bytes` is private"],
    ),
    (
        "a token without bytes that a task captures",
        "#[derive(Clone, Copy)] pub struct MainThread(());
         pub fn begin(token: MainThread) { let _ = task!(|_n: ()| -> () { let _here = token; }); }",
        &["do not capture any variables", "`token` captured here"],
    ),
];

/// Programs as the [attacks](ATTACKS), which do what may be done.
const DEFENDED: &[(&str, &str)] = &[
    (
        "static references that a scope lends",
        "pub fn begin(number: &'static u64, to: &'static mut u64) {
             thread::scope(|scope| { let _ = scope.spawn(call!(|number, to| *to += *number)); });
         }",
    ),
    (
        "a lock that lives for ever",
        "pub fn begin(lock: &'static DMutex<u64>) {
             let _ = lock.with(1, task!(|of: &mut u64, by: u64| -> u64 { *of += by; *of }));
             let _ = lock.with((), task!(|of: &mut u64, _n: ()| std::mem::take(of)));
         }",
    ),
    (
        "a box that a task takes out of a lock, and leaves nothing",
        "pub fn begin(lock: &DMutex<Option<DBox<u64>>>) {
             let _ = lock.with((), task!(|of: &mut Option<DBox<u64>>, _n: ()| of.take()));
         }",
    ),
    (
        "a type beside one that has the name of a number",
        "mod hidden { #[allow(non_camel_case_types)] pub struct u64(pub Box<u8>); #[allow(non_camel_case_types)] pub struct bool; }
         #[allow(unused_imports)] use hidden::{bool, u64};
         #[derive(Portable, Shareable)] pub struct Count { pub of: u32 }
         #[derive(Portable, Shareable)] #[repr(u8)] pub enum Either { One(u32), Other }",
    ),
    (
        "a task to which something is lent, and nothing given",
        "pub fn begin(number: u64, mut to: u64) {
             scope(|scope| {
                 let _ = scope.spawn(task!(|of: &u64| *of + 1), &number, ());
                 let _ = scope.spawn(task!(|of: &mut u64| -> () { *of += 1; }), &mut to, ());
             });
         }",
    ),
    (
        "all names at once, and std's rows",
        "pub fn begin() -> (Vec<u64>, vgas_objects::DVec<u64>) {
             use vgas_objects::*;
             (vec![1, 2], dvec![1, 2])
         }",
    ),
    (
        "a value without bytes that is given",
        "#[derive(Portable, Clone, Copy)] pub struct Token(());
         pub fn begin(token: Token) {
             let _ = spawn(task!(|token: Token| -> () { let _there = token; }), token);
             let _ = thread::spawn(call!(|token| { let _there = token; }));
         }",
    ),
];

/// What they all would be without.
const RIGHT: &str = "#[derive(Portable, Shareable)] pub struct Person { pub name: DString, pub age: u64 }
    pub fn begin(factor: u64) { let _ = spawn(task!(|factor: u64| -> u64 { 3 * factor }), factor); }
    pub fn called(factor: u64) { let _ = thread::spawn(call!(|factor| 3 * factor)); }
    pub fn read(of: &DBox<Person>) -> u64 { of.age }";

/// Beginning of each.
const USES: &str = "#![allow(unused_imports)]
    #![forbid(unsafe_code)]
    use vgas_objects::sync::DMutex;
    use vgas_objects::{HeapOptions, ObjectError, Objects};
    use vgas_objects::{DBox, DString, Portable, Shareable, Task, call, prelude::thread, scope, spawn, task};
";

/// The compiler of the cargo that runs this.
fn rustc() -> OsString {
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustc"));
    beside.filter(|path| path.exists()).map_or("rustc".into(), PathBuf::into_os_string)
}

/// What it says of a program, if it refuses it.
fn compile(library: &Path, program: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
    let source = folder.path().join("program.rs");
    std::fs::write(&source, [USES, program].concat()).map_err(|why| why.to_string())?;
    let dependencies = library.parent().unwrap_or(Path::new("."));
    let named = |what: &str, path: &Path| {
        let mut word = OsString::from(what);
        word.push(path);
        word
    };
    let ended = Command::new(rustc())
        // From where the library was built, so that its sources are found, as they are where others build it.
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--color=never", "--extern"])
        .arg(named("vgas_objects=", library))
        .arg("-L")
        .arg(named("dependency=", dependencies))
        .arg("--out-dir")
        .arg(folder.path())
        .arg(&source)
        .output()
        .map_err(|why| why.to_string())?;
    if ended.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ended.stderr).into_owned()) }
}

/// The library that was built with this program: the newest that the right program is compiled with. Others have been built with other features.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("it has a path");
    let files = std::fs::read_dir(program.parent().expect("a folder")).expect("the folder of what was built");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libvgas_objects-") && name.ends_with(".rlib")
    };
    let mut all: Vec<PathBuf> = files.flatten().map(|file| file.path()).filter(is_library).collect();
    let made =
        |path: &PathBuf| path.metadata().and_then(|of| of.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    all.sort_by_key(|path| std::cmp::Reverse(made(path)));
    let mut refused = String::new();
    let found = all.iter().find(|library| compile(library, RIGHT).map_err(|said| refused = said).is_ok());
    found.unwrap_or_else(|| panic!("no library of {} fits: {refused}", all.len())).clone()
}

#[test]
fn the_compiler_says_what_to_write_instead() {
    let library = library();
    for (what, program, words) in MISTAKES {
        refuses(&library, what, program, words);
    }
}

/// Goal: safe programs that would reach undefined behaviour do not compile, for the reason that is meant; their harmless twins do.
#[test]
fn the_compiler_refuses_attacks() {
    let library = library();
    for (what, program) in DEFENDED {
        compile(&library, program).unwrap_or_else(|said| panic!("{what} is refused:\n{said}"));
    }
    for (what, program, words) in ATTACKS {
        refuses(&library, what, program, words);
    }
}

fn refuses(library: &Path, what: &str, program: &str, words: &[&str]) {
    let said = compile(library, program).expect_err(what);
    for word in words {
        assert!(said.contains(word), "of {what}, nothing is said of {word:?}:\n{said}");
    }
}
