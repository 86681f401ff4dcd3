//! The module graph of a source folder, read from its text: which module refers to which.
//!
//! A module is a file. A reference is a path in code that begins with `crate::` or `super::`, or a
//! path in a `use` that begins with the name of a child module. Comments, strings and unit tests do
//! not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An item's path from the root of its crate: `["sched", "find", "find_runnable"]`.
pub type ItemPath = Vec<String>;

/// A source file.
#[derive(Debug)]
pub struct Module {
    /// The module's path from the root of the crate: `["sched", "find"]`; empty for `lib.rs`.
    pub path: ItemPath,
    /// The path of the file.
    pub file: PathBuf,
    /// All paths in the module's code, with their line numbers.
    pub references: Vec<(usize, ItemPath)>,
}

/// All modules of a crate.
#[derive(Debug)]
pub struct Modules {
    modules: BTreeMap<ItemPath, Module>,
}

impl Modules {
    /// Reads all files below a crate's `src` folder, except files named `tests.rs` or `*_tests.rs`.
    ///
    /// # Panics
    /// A file cannot be read.
    pub fn read(src: &Path) -> Modules {
        let mut modules = BTreeMap::new();
        visit(src, &mut |file| {
            let path = module_path(file.strip_prefix(src).expect("a file below the folder"));
            let text = std::fs::read_to_string(file).expect("a source file");
            let references = references(&path, &text);
            modules.insert(path.clone(), Module { path, file: file.to_owned(), references });
        });
        Modules { modules }
    }

    /// Returns the module with the path `prefix` and all modules below it.
    pub fn below<'a>(&'a self, prefix: &'a [String]) -> impl Iterator<Item = &'a Module> + 'a {
        self.modules.values().filter(move |module| module.path.starts_with(prefix))
    }

    /// Returns the module that defines or re-exports an item: the longest prefix of its path that
    /// is a module.
    pub fn module_of(&self, item: &[String]) -> Option<&Module> {
        (0..=item.len()).rev().find_map(|len| self.modules.get(&item[..len]))
    }

    /// Returns the path that the crate root re-exports under this item's name, or the item's own
    /// path.
    pub fn behind_re_export<'a>(&'a self, item: &'a ItemPath) -> &'a [String] {
        let is_module =
            item.first().is_none_or(|name| self.modules.contains_key(std::slice::from_ref(name)));
        let root = self.modules.get::<[String]>(&[]).filter(|_| !is_module);
        let exported = root.into_iter().flat_map(|root| &root.references).map(|(_, path)| path);
        exported.into_iter().find(|path| path.last() == item.first()).unwrap_or(item)
    }

    /// Returns, for each module below `prefix`, the other modules below `prefix` that it refers to.
    pub fn edges<'a>(&'a self, prefix: &'a [String]) -> BTreeMap<&'a [String], Edges<'a>> {
        let edges_of = |module: &'a Module| {
            let mut edges = Edges::new();
            for (line, item) in &module.references {
                let Some(target) = self.module_of(item) else { continue };
                if target.path.starts_with(prefix) && target.path != module.path {
                    edges.entry(&target.path).or_default().insert((*line, item));
                }
            }
            edges
        };
        self.below(prefix).map(|module| (module.path.as_slice(), edges_of(module))).collect()
    }
}

/// The outgoing references of a module: for each module it refers to, the lines and the paths.
pub type Edges<'a> = BTreeMap<&'a [String], BTreeSet<(usize, &'a ItemPath)>>;

/// Returns the groups of modules that refer to each other in a cycle, largest first.
pub fn cycles<'a>(edges: &BTreeMap<&'a [String], Edges<'a>>) -> Vec<Vec<&'a [String]>> {
    let reachable = |from: &'a [String]| {
        let mut seen = BTreeSet::new();
        let mut left = vec![from];
        while let Some(module) = left.pop() {
            for &next in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next) {
                    left.push(next);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&[String], BTreeSet<&[String]>> =
        edges.keys().map(|&module| (module, reachable(module))).collect();
    let mut found: BTreeSet<Vec<&[String]>> = BTreeSet::new();
    for (&module, reached) in reach.iter().filter(|(module, reached)| reached.contains(*module)) {
        let circle = reached.iter().filter(|other| reach[**other].contains(module));
        found.insert(circle.copied().collect());
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

fn visit(folder: &Path, each: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            visit(&path, each);
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") && name != "tests.rs" {
            each(&path);
        }
    }
}

/// Returns the module path of a file: `sched::find` for `sched/find.rs`, `sched` for
/// `sched/mod.rs`, the root for `lib.rs`.
fn module_path(file: &Path) -> ItemPath {
    let mut path: ItemPath =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| ["mod", "lib"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// Returns the code of a file line by line, without comments, strings and unit tests.
fn code(text: &str) -> Vec<String> {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let mut lines = Vec::new();
    let mut in_string = false;
    for line in text[..end].lines() {
        let mut kept = String::new();
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if in_string => drop(chars.next()),
                // A quotation mark as a character literal.
                '\'' if !in_string && chars.peek() == Some(&'"') => drop(chars.next()),
                '"' => in_string = !in_string,
                '/' if !in_string && chars.peek() == Some(&'/') => break,
                c if !in_string => kept.push(c),
                _ => {}
            }
        }
        lines.push(kept);
    }
    lines
}

/// Returns the references in the code of the module at `path`.
fn references(path: &[String], text: &str) -> Vec<(usize, ItemPath)> {
    let lines = code(text);
    let mut found = Vec::new();
    let mut tokens = Vec::new();
    for (line, number) in lines.iter().zip(1..) {
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                tokens.push((number, std::mem::take(&mut word)));
            }
            if !c.is_whitespace() {
                tokens.push((number, c.to_string()));
            }
        }
    }
    let mut at = 0;
    while at < tokens.len() {
        let (number, word) = (tokens[at].0, tokens[at].1.as_str());
        let token_before = |count: usize| at.checked_sub(count).map(|at| tokens[at].1.as_str());
        let before = token_before(1);
        // A single colon precedes a type; a double colon is part of a path.
        let is_inside = before == Some(":") && token_before(2) == Some(":");
        let is_start = !is_inside && before != Some(".");
        let in_use = before == Some("use");
        let is_path = tokens.get(at + 1).is_some_and(|next| next.1 == ":")
            && tokens.get(at + 2).is_some_and(|next| next.1 == ":");
        if is_start && is_path && ["crate", "super", "self"].contains(&word) || in_use {
            let mut items = Vec::new();
            at = tree(&tokens, at, &mut Vec::new(), &mut items);
            for item in items {
                found.extend(resolve(path, &item).map(|item| (number, item)));
            }
        } else {
            at += 1;
        }
    }
    found
}

/// Reads a path, or the tree of a `use`, that starts at `at`. Returns the index of the token after
/// it.
fn tree(
    tokens: &[(usize, String)],
    mut at: usize,
    prefix: &mut ItemPath,
    out: &mut Vec<ItemPath>,
) -> usize {
    let depth = prefix.len();
    let is = |at: usize, what: &str| tokens.get(at).is_some_and(|token| token.1 == what);
    loop {
        if is(at, "{") {
            at += 1;
            while at < tokens.len() && !is(at, "}") {
                at = tree(tokens, at, prefix, out);
                while at < tokens.len() && !is(at, ",") && !is(at, "}") {
                    at += 1; // `as name`
                }
                at += usize::from(is(at, ","));
            }
            at += 1;
            break;
        }
        let Some((_, word)) = tokens.get(at) else { break };
        prefix.push(word.clone());
        at += 1;
        if is(at, ":") && is(at + 1, ":") {
            at += 2;
            // Generic arguments of a call end the path.
            if is(at, "<") {
                out.push(prefix.clone());
                break;
            }
        } else {
            out.push(prefix.clone());
            break;
        }
    }
    prefix.truncate(depth);
    at
}

/// Converts a path in the code of `module` to a path from the crate root. Paths that name neither
/// `crate`, `super` nor `self` are taken as relative to the module.
fn resolve(module: &[String], item: &[String]) -> Option<ItemPath> {
    let mut base = module.to_vec();
    let mut rest = item;
    match rest.first().map(String::as_str) {
        Some("crate") => {
            base.clear();
            rest = &rest[1..];
        }
        Some("super") => {
            while rest.first().is_some_and(|word| word == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        Some("self") => rest = &rest[1..],
        // A child of the module, or another crate. The caller decides.
        Some(_) => {}
        None => return None,
    }
    let names = rest.iter().filter(|word| *word != "self" && *word != "*");
    base.extend(names.cloned());
    Some(base)
}
