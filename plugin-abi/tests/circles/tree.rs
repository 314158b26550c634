// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a crate, and which uses which: by its `use` lines and by the paths in its text.
//!
//! A path is followed to the file that has what it names, through what modules re-export. A module that declares its
//! files and re-exports what is in them does not use them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use super::tokens::{is_name, tokens};

/// A module's names from the root of the crate on.
type Module = Vec<String>;

/// What a file says.
#[derive(Default)]
struct File {
    /// Its path from the root on.
    path: String,
    /// Modules in files of their own that it declares.
    declares: BTreeSet<String>,
    /// What it has itself.
    items: BTreeSet<String>,
    /// What it re-exports: the name here, and the whole path.
    exports: Vec<(String, Module)>,
    /// Paths of which it re-exports all.
    exports_all: Vec<Module>,
    /// The whole paths that it uses.
    uses: Vec<Module>,
}

/// The files of a crate.
pub(crate) struct Tree {
    files: BTreeMap<Module, File>,
    /// By the files' paths.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Tree {
    /// Reads the files under the folder that has `lib.rs`.
    pub(crate) fn read(root: &Path) -> Tree {
        let mut texts = Vec::new();
        read_folder(root, "", &mut texts);
        Tree::of(texts)
    }

    /// Of files with these paths and texts.
    pub(crate) fn of(texts: impl IntoIterator<Item = (String, String)>) -> Tree {
        let mut files = BTreeMap::new();
        for (path, text) in texts {
            if !path.split('/').any(|part| part == "tests" || part == "tests.rs") {
                let module = module_of(&path);
                files.insert(module.clone(), Reader::new(path, module).read(&tokens(&text)));
            }
        }
        let mut tree = Tree { files, uses: BTreeMap::new() };
        for file in tree.files.values() {
            let targets = file.uses.iter().flat_map(|path| tree.files_of(path, 0));
            let used = targets.filter(|target| *target != file.path).collect();
            tree.uses.insert(file.path.clone(), used);
        }
        tree
    }

    /// How many files there are.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// How many times one uses another.
    pub(crate) fn uses(&self) -> usize {
        self.uses.values().map(BTreeSet::len).sum()
    }

    /// The shortest circle, its first file at both ends.
    pub(crate) fn circle(&self) -> Option<Vec<String>> {
        self.uses.keys().filter_map(|file| self.circle_through(file)).min_by_key(Vec::len)
    }

    fn circle_through(&self, start: &str) -> Option<Vec<String>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(file) = next.pop_front() {
            for used in self.uses.get(file).into_iter().flatten() {
                if used == start {
                    let mut circle = vec![start.to_owned()];
                    let mut at = file;
                    while at != start {
                        circle.push(at.to_owned());
                        at = came_from[at];
                    }
                    circle.push(start.to_owned());
                    circle.reverse();
                    return Some(circle);
                }
                if !came_from.contains_key(used.as_str()) {
                    came_from.insert(used, file);
                    next.push_back(used);
                }
            }
        }
        None
    }

    /// The files that have what a whole path names; none for a module itself, of which nothing is named.
    fn files_of(&self, path: &[String], depth: usize) -> Vec<String> {
        let Some(length) = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length])) else {
            return Vec::new();
        };
        let file = &self.files[&path[..length]];
        let Some((name, rest)) = path[length..].split_first() else {
            return self.named_as_the_module(path, depth);
        };
        // Re-exports of a crate are not that deep; a name that stands for itself ends here.
        if depth < 8 && !file.items.contains(name) {
            let through = |to: &Module| self.files_of(&[to, rest].concat(), depth + 1);
            if let Some((_, to)) = file.exports.iter().find(|(exported, _)| exported == name) {
                return through(to);
            }
            let named = |to: &Module| self.files_of(&[to.as_slice(), &path[length..]].concat(), depth + 1);
            let has = |found: &String| self.files.values().any(|file| file.path == *found && file.items.contains(name));
            let found: Vec<String> = file.exports_all.iter().flat_map(named).filter(has).collect();
            if !found.is_empty() {
                return found;
            }
        }
        vec![file.path.clone()]
    }

    /// Where what has the same name as the module at this path comes from, if anything has.
    fn named_as_the_module(&self, path: &[String], depth: usize) -> Vec<String> {
        let parent = path.split_last().and_then(|(name, parent)| Some((name, self.files.get(parent)?)));
        let Some((name, parent)) = parent else {
            return Vec::new();
        };
        let is_of_it = |(exported, to): &&(String, Module)| exported == name && to != path;
        parent.exports.iter().find(is_of_it).map_or(Vec::new(), |(_, to)| self.files_of(to, depth + 1))
    }
}

fn read_folder(folder: &Path, prefix: &str, texts: &mut Vec<(String, String)>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("the folder is read").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        if path.is_dir() {
            read_folder(&path, &format!("{prefix}{name}/"), texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            texts.push((format!("{prefix}{name}"), text));
        }
    }
}

/// The module that a file is.
fn module_of(path: &str) -> Module {
    let mut names: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib" && path == "lib.rs") {
        names.pop();
    }
    names
}

/// Reads one file.
struct Reader {
    file: File,
    /// The module that the file is.
    module: Module,
    /// The modules within the file that are open, each with the number of open braces outside of it.
    inner: Vec<(String, usize)>,
    braces: usize,
    /// What names stand for in the file: those that `use` lines bring.
    bound: BTreeMap<String, Module>,
    /// The paths in the text, and the module they stand in.
    paths: Vec<(Module, Module)>,
}

/// A leaf of a `use` line: the path, and the name it is given here; `*` for all.
struct Leaf {
    path: Module,
    name: String,
}

impl Reader {
    fn new(path: String, module: Module) -> Reader {
        let file = File { path, ..File::default() };
        Reader { file, module, inner: Vec::new(), braces: 0, bound: BTreeMap::new(), paths: Vec::new() }
    }

    fn read(mut self, tokens: &[String]) -> File {
        let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
        self.file.declares.extend(declared.map(|three| three[1].clone()));
        let mut at = 0;
        let mut is_public = false;
        while at < tokens.len() {
            let next = tokens.get(at + 1).map_or("", String::as_str);
            match tokens[at].as_str() {
                "{" => self.braces += 1,
                "}" => {
                    self.braces = self.braces.saturating_sub(1);
                    self.inner.retain(|(_, outside)| *outside < self.braces);
                }
                "pub" => {
                    // `pub`, or `pub(crate)` and the like.
                    let end = if next == "(" { tokens[at..].iter().position(|token| token == ")") } else { None };
                    at += end.unwrap_or(0) + 1;
                    is_public = true;
                    continue;
                }
                "use" => at = self.read_use(tokens, at + 1, is_public),
                "mod" if tokens.get(at + 2).is_some_and(|token| token == "{") => {
                    self.inner.push((next.to_owned(), self.braces));
                    self.braces += 1;
                    at += 2;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" if self.braces == 0 => {
                    let name = tokens[at + 1..].iter().find(|token| !matches!(token.as_str(), "mut" | "unsafe" | "fn"));
                    self.file.items.extend(name.cloned());
                }
                name if is_name(name) && next == "::" => at = self.read_path(tokens, at),
                _ => {}
            }
            is_public = false;
            at += 1;
        }
        self.finish()
    }

    /// Where the text stands now.
    fn here(&self) -> Module {
        self.module.iter().chain(self.inner.iter().map(|(name, _)| name)).cloned().collect()
    }

    /// Reads a path from its first name on. Returns where it ends.
    fn read_path(&mut self, tokens: &[String], start: usize) -> usize {
        let mut path = vec![tokens[start].clone()];
        let mut at = start;
        while tokens.get(at + 1).is_some_and(|token| token == "::")
            && let Some(name) = tokens.get(at + 2).filter(|token| is_name(token))
        {
            path.push(name.clone());
            at += 2;
        }
        self.paths.push((self.here(), path));
        at
    }

    /// Reads a `use` line from what follows the word on. Returns where it ends.
    fn read_use(&mut self, tokens: &[String], start: usize, is_public: bool) -> usize {
        let end = tokens[start..].iter().position(|token| token == ";").map_or(tokens.len(), |offset| start + offset);
        let mut leaves = Vec::new();
        read_leaves(&tokens[start..end], &mut Vec::new(), &mut leaves);
        let here = self.here();
        for Leaf { path, name } in leaves {
            let Some(whole) = self.whole(&here, &path) else { continue };
            let is_export = is_public && self.inner.is_empty();
            // What is re-exported of the module's own files is not used.
            let is_own = is_export && whole.starts_with(&self.module) && whole.len() > self.module.len();
            if is_export && name == "*" {
                self.file.exports_all.push(whole.clone());
            } else if is_export {
                self.file.exports.push((name.clone(), whole.clone()));
            }
            if !is_own && name != "*" {
                self.file.uses.push(whole.clone());
            } else if !is_own {
                self.file.uses.push([whole.as_slice(), &["*".to_owned()]].concat());
            }
            self.bound.insert(name, whole);
        }
        end
    }

    /// The whole path of one that begins with `crate`, `self`, `super` or a module that the file declares.
    fn whole(&self, here: &[String], path: &[String]) -> Option<Module> {
        let mut module: Module = here.to_vec();
        let mut names = path;
        match path.first()?.as_str() {
            "crate" => {
                module.clear();
                names = &path[1..];
            }
            "self" | "super" => {
                while let Some((first, rest)) =
                    names.split_first().filter(|(first, _)| *first == "self" || *first == "super")
                {
                    if first == "super" {
                        module.pop()?;
                    }
                    names = rest;
                }
            }
            name if self.file.declares.contains(name) => module.clone_from(&self.module),
            _ => return None,
        }
        module.extend(names.iter().cloned());
        Some(module)
    }

    /// Follows the paths in the text, now that all names are known.
    fn finish(mut self) -> File {
        for (here, path) in std::mem::take(&mut self.paths) {
            let known = self.whole(&here, &path);
            let bound = || Some([self.bound.get(&path[0])?.as_slice(), &path[1..]].concat());
            self.file.uses.extend(known.or_else(bound));
        }
        self.file
    }
}

/// The leaves of a `use` tree.
fn read_leaves(tokens: &[String], prefix: &mut Module, leaves: &mut Vec<Leaf>) {
    let length = prefix.len();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "::" => {}
            "," => prefix.truncate(length),
            "{" => {
                let end = closing(tokens, at);
                read_leaves(&tokens[at + 1..end], prefix, leaves);
                prefix.truncate(length);
                at = end;
            }
            name => {
                let follows = tokens.get(at + 1).map_or("", String::as_str);
                if follows == "::" {
                    prefix.push(name.to_owned());
                } else {
                    let mut path = prefix.clone();
                    if name != "*" && (name != "self" || path.is_empty()) {
                        path.push(name.to_owned());
                    }
                    let last = path.last().cloned().unwrap_or_default();
                    let renamed = if follows == "as" { tokens.get(at + 2).cloned() } else { None };
                    at += if follows == "as" { 2 } else { 0 };
                    let name = renamed.unwrap_or(if name == "*" { "*".to_owned() } else { last });
                    leaves.push(Leaf { path, name });
                }
            }
        }
        at += 1;
    }
    prefix.truncate(length);
}

/// Where the brace at `start` is closed.
fn closing(tokens: &[String], start: usize) -> usize {
    let mut depth = 0_i32;
    for (offset, token) in tokens[start..].iter().enumerate() {
        depth += i32::from(token == "{") - i32::from(token == "}");
        if depth == 0 {
            return start + offset;
        }
    }
    tokens.len()
}
