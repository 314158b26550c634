// SPDX-License-Identifier: MIT OR Apache-2.0
//! One source file: which files it declares as modules, what it has and re-exports, and the paths that it uses.
//!
//! Grade: setup. Called by `tree`. Tests: in `main`.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{is_name, tokens};

/// A module's names from the root of the target on.
pub(crate) type Module = Vec<String>;

/// What a file says.
#[derive(Default)]
pub(crate) struct File {
    /// Its path from the root of the workspace on.
    pub(crate) path: String,
    /// Modules in files of their own that it declares.
    pub(crate) declares: Vec<Declared>,
    /// What it has itself.
    pub(crate) items: BTreeSet<String>,
    /// What it re-exports: the name here, and the whole path.
    pub(crate) exports: Vec<(String, Module)>,
    /// Paths of which it re-exports all.
    pub(crate) exports_all: Vec<Module>,
    /// The whole paths that it uses.
    pub(crate) uses: Vec<Module>,
}

/// A module in a file of its own.
pub(crate) struct Declared {
    pub(crate) module: Module,
    /// Where its attribute says that the file is, from the folder of the declaring file on.
    pub(crate) at: Option<String>,
}

impl File {
    /// Reads the text of the file at this path, which is this module.
    pub(crate) fn read(path: &str, module: &[String], text: &str) -> File {
        Reader::new(path.to_owned(), module.to_vec()).read(&tokens(text))
    }
}

/// Reads one file.
struct Reader {
    file: File,
    /// The module that the file is.
    module: Module,
    /// The names of the modules that it declares.
    children: BTreeSet<String>,
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
        let (inner, paths) = (Vec::new(), Vec::new());
        Reader { file, module, children: BTreeSet::new(), inner, braces: 0, bound: BTreeMap::new(), paths }
    }

    fn read(mut self, tokens: &[String]) -> File {
        let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
        self.children.extend(declared.map(|three| three[1].clone()));
        let mut at = 0;
        let mut is_public = false;
        let mut file_named = None;
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
                "#" if tokens[at + 1..].starts_with(&["[", "path", "="].map(str::to_owned)) => {
                    file_named = tokens.get(at + 4).map(|text| text.trim_matches('"').to_owned());
                    at += 5;
                }
                "mod" if tokens.get(at + 2).is_some_and(|token| token == ";") => {
                    let module = [self.here(), vec![next.to_owned()]].concat();
                    self.file.declares.push(Declared { module, at: file_named.take() });
                    at += 2;
                }
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
            name if self.children.contains(name) => module.clone_from(&self.module),
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
