// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of one target (a library, a program, an integration test), and which uses which: by its `use` lines and by
//! the paths in its text.
//!
//! A path is followed to the file that has what it names, through what modules re-export. A module that declares its
//! files and re-exports what is in them does not use them. Grade: setup. Tests: in `main`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::{Declared, File, Module};

/// Where a file is.
struct Place {
    path: String,
    /// Where those that it declares are.
    folder: String,
}

/// The files of a target.
pub(crate) struct Tree {
    files: BTreeMap<Module, File>,
    /// By the files' paths.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Tree {
    /// Reads the file at `root`, and all that it and they declare; `text` gives the text of a file that there is.
    pub(crate) fn read(root: &str, text: &dyn Fn(&str) -> Option<String>) -> Tree {
        let mut files = BTreeMap::new();
        let mut next = vec![(Module::new(), Place { path: root.to_owned(), folder: folder_of(root) })];
        while let Some((module, place)) = next.pop() {
            let Some(text_here) = text(&place.path) else { panic!("{} is declared, and is not there", place.path) };
            let file = File::read(&place.path, &module, &text_here);
            for Declared { module: child, at } in &file.declares {
                let names = child[module.len()..].join("/");
                let there = at.as_ref().map_or_else(|| place.declared(&names, text), |at| place.named(at));
                next.push((child.clone(), there));
            }
            files.insert(module, file);
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

impl Place {
    /// Where the file of a module is that the file here declares.
    fn declared(&self, names: &str, text: &dyn Fn(&str) -> Option<String>) -> Place {
        let folder = joined(&self.folder, names);
        let [file, in_folder] = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
        Place { path: if text(&in_folder).is_some() { in_folder } else { file }, folder }
    }

    /// Where an attribute in the file here says that it is.
    fn named(&self, at: &str) -> Place {
        let path = joined(&folder_of(&self.path), at);
        Place { folder: folder_of(&path), path }
    }
}

/// The folder of a file.
fn folder_of(path: &str) -> String {
    path.rsplit_once('/').map_or_else(String::new, |(folder, _)| folder.to_owned())
}

/// A path from a folder on, without `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')).filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
