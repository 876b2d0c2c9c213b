//! Goal: files of a crate depend on each other in one direction. A circle of imports is two rooms without a wall: each file of it is read only
//! with all others. Method: the `use` declarations of each crate are read, re-exports are followed to where an item is defined, and
//! files that reach each other are counted. The bounds only ever become lower.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// Circles of all crates together.
const CIRCLES_MAX: usize = 12;
/// Files of the largest circle.
const FILES_MAX: usize = 13;

/// A module, and what its text imports.
#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// Each with the name by which it is known here.
    imports: Vec<(String, Vec<String>)>,
    globs: Vec<Vec<String>>,
}

/// The modules and files of a crate, without those that are only tests.
#[derive(Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
}

/// Whether only tests and fuzz targets see an item.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let is_test = |of: &syn::Attribute| match &of.meta {
        syn::Meta::List(list) if of.path().is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.starts_with("all (test") || ["test", "any (test , fuzzing)"].contains(&&condition[..])
        }
        _ => false,
    };
    attributes.iter().any(is_test)
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, declaration: &'ast syn::ItemUse) {
        if declaration.leading_colon.is_none() && !is_test(&declaration.attrs) {
            self.import(&declaration.tree, &mut Vec::new());
        }
    }
}

impl Module {
    fn import(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        let mut named = |alias: String, ident: &syn::Ident| {
            let last = (ident != "self").then(|| ident.to_string());
            self.imports.push((alias, path.iter().cloned().chain(last).collect()));
        };
        match tree {
            syn::UseTree::Path(of) => {
                path.push(of.ident.to_string());
                self.import(&of.tree, path);
                path.pop();
            }
            syn::UseTree::Name(of) if of.ident == "self" => {
                named(path.last().cloned().unwrap_or_default(), &of.ident);
            }
            syn::UseTree::Name(of) => named(of.ident.to_string(), &of.ident),
            syn::UseTree::Rename(of) => named(of.rename.to_string(), &of.ident),
            syn::UseTree::Glob(_) => self.globs.push(path.clone()),
            syn::UseTree::Group(of) => of.items.iter().for_each(|tree| self.import(tree, path)),
        }
    }
}

impl Crate {
    /// Reads the crate whose root is this file.
    fn of(root: &Path) -> Self {
        let mut all = Self::default();
        all.read(root, root.parent().expect("a file is in a folder"), None);
        all
    }

    fn read(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        self.files.push(file.to_owned());
        self.add(&parsed.items, self.files.len() - 1, folder, parent)
    }

    fn add(&mut self, items: &[syn::Item], file: usize, folder: &Path, parent: Option<usize>) -> usize {
        let me = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        for item in items {
            if let syn::Item::Mod(of) = item {
                if is_test(&of.attrs) {
                    continue;
                }
                let name = of.ident.to_string();
                let inner = folder.join(&name);
                let child = match &of.content {
                    Some((_, items)) => self.add(items, file, &inner, Some(me)),
                    None => {
                        let flat = folder.join(format!("{name}.rs"));
                        let file = if flat.exists() { flat } else { inner.join("mod.rs") };
                        self.read(&file, &inner, Some(me))
                    }
                };
                self.modules[me].children.insert(name, child);
                continue;
            }
            self.modules[me].items.extend(name_of(item));
            self.modules[me].visit_item(item);
        }
        me
    }

    /// The file in which what a path names is defined; none for other crates.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, mut rest) = path.split_first()?;
        let mut at = from;
        match &first[..] {
            "crate" => at = 0,
            "self" => {}
            "super" => {
                at = self.modules[at].parent?;
                while let Some((_, more)) = rest.split_first().filter(|(next, _)| *next == "super") {
                    (at, rest) = (self.modules[at].parent?, more);
                }
            }
            child => at = *self.modules[at].children.get(child)?,
        }
        // Of re-exports that lead to each other.
        if depth > 16 { None } else { self.find(at, rest, depth) }
    }

    fn find(&self, mut at: usize, mut path: &[String], depth: usize) -> Option<usize> {
        while let Some((name, rest)) = path.split_first() {
            let module = &self.modules[at];
            if let Some(&child) = module.children.get(name) {
                (at, path) = (child, rest);
                continue;
            }
            if !module.items.contains(name) {
                if let Some((_, target)) = module.imports.iter().find(|(alias, _)| alias == name) {
                    return self.resolve(at, &[target, rest].concat(), depth + 1);
                }
                let through = |glob: &Vec<String>| self.resolve(at, &[glob, path].concat(), depth + 1);
                if let Some(found) = module.globs.iter().filter_map(through).find(|file| *file != module.file)
                {
                    return Some(found);
                }
            }
            break;
        }
        Some(self.modules[at].file)
    }

    /// Whether one file's module lies within the other's: a module and its parts are one thing.
    fn is_part(&self, part: usize, whole: usize) -> bool {
        let module = |file: usize| self.modules.iter().position(|module| module.file == file);
        let whole = module(whole);
        std::iter::successors(module(part), |&at| self.modules[at].parent).any(|at| Some(at) == whole)
    }

    /// Which file imports something of which other.
    fn imports(&self) -> Vec<BTreeSet<usize>> {
        let mut all = vec![BTreeSet::new(); self.files.len()];
        for (number, module) in self.modules.iter().enumerate() {
            let paths = module.imports.iter().map(|(_, path)| path).chain(&module.globs);
            let found = paths.filter_map(|path| self.resolve(number, path, 0));
            all[module.file].extend(found.filter(|&file| !self.is_part(file, module.file)));
        }
        all
    }

    /// Files that reach each other by imports, as their names.
    fn circles(&self) -> Vec<Vec<String>> {
        let imports = self.imports();
        let reached = |from: usize| {
            let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
            while let Some(file) = left.pop() {
                left.extend(imports[file].iter().copied().filter(|next| seen.insert(*next)));
            }
            seen
        };
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len()).map(reached).collect();
        let mut circles = BTreeSet::new();
        for (file, all) in reached.iter().enumerate().filter(|(file, all)| all.contains(file)) {
            circles.insert(
                all.iter().copied().filter(|&other| reached[other].contains(&file)).collect::<Vec<_>>(),
            );
        }
        let name = |file: &usize| self.files[*file].display().to_string();
        circles.iter().filter(|files| files.len() > 1).map(|files| files.iter().map(name).collect()).collect()
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    use syn::Item;
    let ident = match item {
        Item::Const(of) => &of.ident,
        Item::Enum(of) => &of.ident,
        Item::Fn(of) => &of.sig.ident,
        Item::Macro(of) => of.ident.as_ref()?,
        Item::Static(of) => &of.ident,
        Item::Struct(of) => &of.ident,
        Item::Trait(of) => &of.ident,
        Item::Type(of) => &of.ident,
        Item::Union(of) => &of.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

#[test]
fn imports_run_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's");
    let members =
        manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    let mut circles = Vec::new();
    for member in members.split(',').map(|member| member.trim().trim_matches('"')) {
        let folder = root.join(member).join("src");
        let file = [folder.join("lib.rs"), folder.join("main.rs")].into_iter().find(|file| file.exists());
        circles.extend(Crate::of(&file.expect("a crate has a root")).circles());
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    let told: Vec<String> = circles.iter().map(|circle| circle.join("\n    ")).collect();
    let largest = circles.first().map_or(0, Vec::len);
    assert!(
        circles.len() <= CIRCLES_MAX && largest <= FILES_MAX,
        "{} circles of imports, the largest of {largest} files:\n  {}",
        circles.len(),
        told.join("\n  ")
    );
    assert!(
        circles.len() == CIRCLES_MAX && largest == FILES_MAX,
        "{} circles, the largest of {largest} files: make the bounds of this test lower",
        circles.len()
    );
}

/// Most files with methods of one type of the cache's agent, and most that reach into the node's pool.
const AGENT_FILES_MAX: usize = 8;

/// Goal: a type says what a line of the agent's code may touch. Method: files with methods of each type are counted, and files that name
/// the field with the pool.
#[test]
fn few_files_of_the_agent_share_a_type() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cache/src/agent");
    let (mut folders, mut files) = (vec![root.canonicalize().expect("the agent")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let mut of_type: BTreeMap<String, BTreeSet<&Path>> = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a file");
        for item in syn::parse_file(&text).expect("Rust").items {
            if let syn::Item::Impl(syn::ItemImpl { trait_: None, self_ty, .. }) = item
                && let syn::Type::Path(of) = *self_ty
                && let Some(last) = of.path.segments.last()
            {
                of_type.entry(format!("methods of {}", last.ident)).or_default().insert(file);
            }
        }
        let is_field =
            |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || "_(".contains(next));
        if text.split(".pool").skip(1).any(is_field) {
            of_type.entry("the field `pool`".into()).or_default().insert(file);
        }
    }
    for (what, files) in &of_type {
        assert!(files.len() <= AGENT_FILES_MAX, "{what} in {} files: {files:#?}", files.len());
    }
    assert!(of_type.contains_key("methods of Agent") && of_type.contains_key("the field `pool`"));
}

/// Goal: a circle is found through re-exports and globs; what a module imports of its own parts, and what tests import, is none.
#[test]
fn circles_are_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let texts = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::Of;\nuse c::*;\n"),
        ("a.rs", "use crate::b::Other;\npub struct Of(Other);\n"),
        ("b.rs", "use super::Of;\npub enum Other {}\nfn f() -> Option<Of> { None }\n"),
        (
            "c.rs",
            "use crate::a::Of as Its;\n#[cfg(test)]\nmod tests { use crate::c::Its; }\n#[cfg(test)]\nuse crate::b;\n",
        ),
    ];
    for (name, text) in texts {
        std::fs::write(folder.path().join(name), text).expect("the folder is writable");
    }
    let circles = Crate::of(&folder.path().join("lib.rs")).circles();
    assert_eq!(circles, [["a.rs", "b.rs"].map(|name| folder.path().join(name).display().to_string())]);
}
