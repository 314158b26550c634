// SPDX-License-Identifier: MIT OR Apache-2.0
//! No file depends on a file that depends on it: a reader who knows what a file uses need not know what uses it.
//!
//! `tree` reads which file uses which, `tokens` the text of one. Test code may use whatever it likes and is left out.

mod tokens;
mod tree;

use std::path::Path;

use tree::Tree;

/// The trees of source files that are looked at, from the root of the workspace.
const CHECKED: [&str; 4] = ["src", "plugin-abi/src", "ffi/src", "hw-tests/softhca/src"];

#[test]
fn no_file_depends_on_one_that_depends_on_it() {
    for root in CHECKED {
        let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(root));
        assert!(tree.uses() > tree.files(), "{root}: {} files, {} uses: they are not read", tree.files(), tree.uses());
        if let Some(circle) = tree.circle() {
            panic!("files of {root} depend on each other: {}", circle.join(" -> "));
        }
    }
}

/// The circle in a tree made up of files with these texts.
fn circle_in(files: &[(&str, &str)]) -> Option<String> {
    Some(Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))).circle()?.join(" -> "))
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
    assert_eq!(circle_in(&files[..3]), None);
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
            mod more { use crate::a::A; fn f() { if true { crate::a::f(); } } }"##,
        ),
        ("b/tests.rs", "use crate::a::A; use super::*;"),
    ];
    assert_eq!(circle_in(&files), None);
    let mut after = files;
    let text = format!("{} use crate::a::A;", files[2].1);
    after[2].1 = &text;
    assert_eq!(circle_in(&after).as_deref(), Some("a.rs -> b.rs -> a.rs"), "what follows is read");
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
