// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a source file as tokens: names, `::`, quoted texts and single signs, without comments and without what
//! only a test build has.
//!
//! Grade: setup. Called by `source`. Tests: in `main`.

/// The tokens of a file.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    without_tests(&split(text))
}

/// Whether a token is a name.
pub(crate) fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn split(text: &str) -> Vec<String> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = literal(rest) {
            if first == '"' {
                // Some attributes name a file.
                tokens.push(rest[..length].to_owned());
            }
            length
        } else if is_name(rest) || first.is_ascii_digit() {
            let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..length].to_owned());
            length
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a comment that may have others in it.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_u32;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of the text, raw text or character at the start, if there is one. A lifetime is none.
fn literal(text: &str) -> Option<usize> {
    let marked = text.trim_start_matches(['b', 'c']);
    let mark = text.len() - marked.len();
    if mark > 1 {
        return None;
    }
    if let Some(raw) = marked.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(mark + 1 + hashes + 1 + body.find(&end)? + end.len());
    }
    if let Some(body) = marked.strip_prefix('"') {
        return Some(mark + 1 + end_of_quoted(body, '"')?);
    }
    let body = marked.strip_prefix('\'')?;
    let mut characters = body.chars();
    let is_character = characters.next() == Some('\\') || characters.next() == Some('\'');
    if is_character { Some(mark + 1 + end_of_quoted(body, '\'')?) } else { None }
}

/// The length up to and with the quote that no backslash stands before.
fn end_of_quoted(body: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (index, character) in body.char_indices() {
        if character == quote && !is_escaped {
            return Some(index + 1);
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    None
}

/// Leaves out each module that only a test build has.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(name) = name_of_tests(tokens, at) {
            let is_here = tokens.get(name + 1).is_some_and(|token| token == "{");
            at = if is_here { end_of_block(tokens, name + 1) } else { name + 2 };
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Where the name of a module for tests is that begins at `start`, if one does.
fn name_of_tests(tokens: &[String], start: usize) -> Option<usize> {
    const MARKS: [&[&str]; 2] =
        [&["#", "[", "cfg", "(", "test", ")", "]"], &["#", "[", "cfg", "(", "all", "(", "test", ","]];
    const VISIBLE: [&str; 4] = ["pub", "(", "crate", ")"];
    let is_at = |at: usize, expected: &[&str]| tokens.get(at..at + expected.len()).is_some_and(|is| is == expected);
    MARKS.iter().find(|mark| is_at(start, mark))?;
    let mut at = start + tokens[start..].iter().position(|token| token == "]")? + 1;
    if is_at(at, &VISIBLE) {
        at += VISIBLE.len();
    }
    is_at(at, &["mod"]).then_some(at + 1)
}

/// What follows the block whose brace is at `start`.
fn end_of_block(tokens: &[String], start: usize) -> usize {
    let mut depth = 0_i32;
    for (offset, token) in tokens[start..].iter().enumerate() {
        depth += i32::from(token == "{") - i32::from(token == "}");
        if depth == 0 {
            return start + offset + 1;
        }
    }
    tokens.len()
}
