// SPDX-License-Identifier: MIT OR Apache-2.0
//! No file depends on a file that depends on it: a reader who knows what a file uses need not know what uses it.
//!
//! `targets` finds all that the workspace's members are built into, `tree` reads which file of a target uses which,
//! `source` what one file says, `tokens` its text. Modules that only a test build has may use whatever they like and are
//! left out.

mod source;
mod targets;
mod tokens;
mod tree;

use std::collections::BTreeSet;

use targets::Workspace;
use tree::Tree;

#[test]
fn no_file_depends_on_one_that_depends_on_it() {
    let workspace = Workspace::here();
    let (mut files, mut uses, mut circles) = (0, 0, BTreeSet::new());
    for target in &workspace.targets {
        let tree = Tree::read(&target.root, &|path| workspace.text(path));
        (files, uses) = (files + tree.files(), uses + tree.uses());
        circles.extend(tree.circle().map(|circle| circle.join(" -> ")));
    }
    assert!(files > workspace.targets.len() && uses > files, "{files} files, {uses} uses: they are not read");
    let circles: Vec<String> = circles.into_iter().collect();
    assert!(circles.is_empty(), "files depend on each other:\n{}", circles.join("\n"));
}

/// The circle in a target made up of files with these texts, the first its root.
fn circle_in(files: &[(&str, &str)]) -> Option<String> {
    let text = |wanted: &str| files.iter().find(|(path, _)| *path == wanted).map(|(_, text)| (*text).to_owned());
    Some(Tree::read(files[0].0, &text).circle()?.join(" -> "))
}

#[test]
fn a_circle_is_found_and_named() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::{self, B};"),
        ("b.rs", "use super::c; pub struct B; fn f() { c::g() }"),
        ("c.rs", "pub fn g() { let _ = crate::a::A::new(); }"),
    ];
    assert_eq!(circle_in(&files).as_deref(), Some("a.rs -> b.rs -> c.rs -> a.rs"));
    let mut others = files;
    others[3].1 = "pub fn g() {}";
    assert_eq!(circle_in(&others), None);
}

#[test]
fn the_shortest_circle_is_named() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::c::C;"),
        ("c.rs", "use crate::{a::A, b::B};"),
    ];
    assert_eq!(circle_in(&files).as_deref(), Some("b.rs -> c.rs -> b.rs"));
}

#[test]
fn a_circle_is_seen_through_what_a_folder_re_exports() {
    let files = [
        ("lib.rs", "mod a; mod room;"),
        ("a.rs", "use crate::room; fn f() { room::inner() }"),
        ("room/mod.rs", "mod inner; mod other; pub(crate) use inner::{inner as renamed, inner}; pub use other::*;"),
        ("room/inner.rs", "use crate::a::f; pub fn inner() {}"),
        ("room/other.rs", "pub fn other() {}"),
    ];
    assert_eq!(circle_in(&files).as_deref(), Some("a.rs -> room/inner.rs -> a.rs"));
    let mut others = files;
    others[1].1 = "use crate::room::other;";
    assert_eq!(circle_in(&others), None, "another file of the room, by a re-export of all it has");
}

#[test]
fn a_folder_that_declares_and_re_exports_its_files_does_not_depend_on_them_but_one_that_uses_them_does() {
    let child = ("room/child.rs", "use super::Shared; pub struct Child;");
    let root = ("lib.rs", "mod room;");
    assert_eq!(circle_in(&[root, child, ("room/mod.rs", "mod child; pub use child::Child; pub struct Shared;")]), None);
    for uses in ["mod child; use child::Child; pub struct Shared;", "mod child; pub struct Shared(child::Child);"] {
        assert_eq!(
            circle_in(&[root, child, ("room/mod.rs", uses)]).as_deref(),
            Some("room/child.rs -> room/mod.rs -> room/child.rs"),
            "{uses}"
        );
    }
}

#[test]
fn comments_texts_and_tests_are_no_uses() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;"),
        (
            "b.rs",
            r##"// use crate::a::A;
            /* crate::a::f() /* nested */ crate::a::g() */
            /// See [`crate::a`].
            const T: &str = "crate::a::f \" crate::a::g"; const R: &str = r#"crate::a::"h"#; const C: char = '"';
            #[cfg(test)]
            pub(crate) mod tests { use crate::a::A; }
            #[cfg(test)]
            mod more { use crate::a::A; fn f() { if true { crate::a::f(); } } }
            #[cfg(all(test, not(loom)))]
            mod elsewhere;"##,
        ),
        ("b/elsewhere.rs", "use crate::a::A; use super::*;"),
    ];
    assert_eq!(circle_in(&files), None);
    let mut after = files;
    let text = format!("{} use crate::a::A;", files[2].1);
    after[2].1 = &text;
    assert_eq!(circle_in(&after).as_deref(), Some("a.rs -> b.rs -> a.rs"), "what follows is read");
}

#[test]
fn a_file_is_found_where_an_attribute_says_and_its_own_beside_it() {
    let root = ("src/main.rs", r#"#[path = "../other/room.rs"] mod room; mod a;"#);
    let files = [
        root,
        ("src/a.rs", "use crate::room::deep::D; pub struct A;"),
        ("other/room.rs", "pub mod deep;"),
        ("other/deep.rs", "use crate::a::A; pub struct D;"),
    ];
    assert_eq!(circle_in(&files).as_deref(), Some("other/deep.rs -> src/a.rs -> other/deep.rs"));
}

#[test]
fn super_in_a_module_within_a_file_is_the_file() {
    let root = ("lib.rs", "mod a;");
    let child = ("a/child.rs", "use super::super::a::A;");
    assert_eq!(circle_in(&[root, ("a.rs", "mod inner { use super::A; } mod child; pub struct A;"), child]), None);
    assert_eq!(
        circle_in(&[root, ("a.rs", "mod inner { use super::child::C; } mod child; pub struct A;"), child]).as_deref(),
        Some("a.rs -> a/child.rs -> a.rs")
    );
}
