// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manual pages of section 7 from documents: Markdown becomes roff with the macros of man(7), and tables those of
//! tbl(1). Called by [`super`]. Grade: setup. Tests: below.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Converts a document into the manual page of this name. `whatis` shows the document's title.
pub(super) fn page(name: &str, document: &str) -> String {
    // The first line has man(1) set the tables. Lines are neither full, as words of narrow columns would be far apart,
    // nor hyphenated, as most long words are names.
    let text = format!("'\\\" t\n.TH {name} 7 \"\" ibex\n.ad l\n.nh\n.SH NAME\n{name} \\- ");
    let mut page = Page { text, ..Page::default() };
    Parser::new_ext(document, Options::ENABLE_TABLES).for_each(|event| page.take(event));
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
    /// The numbers of the next items of the open lists, or `None` for items without numbers.
    lists: Vec<Option<u64>>,
    /// Whether the next paragraph belongs to the macro before it.
    continues: bool,
    is_code: bool,
    /// Whether the next cell is not its row's first.
    is_in_row: bool,
    link: String,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.words(&text),
            Event::Code(code) => {
                self.text.push_str("\\fB");
                self.words(&code);
                self.text.push_str("\\fR");
            }
            Event::SoftBreak | Event::HardBreak => self.text.push('\n'),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level: HeadingLevel::H1, .. } => {}
            Tag::Heading { level, .. } => self.request(if level == HeadingLevel::H2 { ".SH " } else { ".SS " }),
            Tag::Paragraph if self.continues => self.continues = false,
            Tag::Paragraph => self.request(if self.lists.is_empty() { ".PP\n" } else { ".IP\n" }),
            Tag::List(first) => {
                if !self.lists.is_empty() {
                    self.request(".RS\n");
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::CodeBlock(_) => {
                self.is_code = true;
                self.request(if self.lists.is_empty() { ".PP\n" } else { ".IP\n" });
                self.request(".RS 4\n.EX\n");
            }
            Tag::Table(columns) => {
                let row = vec!["lx"; columns.len()].join(" ");
                self.request(&format!(".PP\n.TS\nallbox;\n{row}.\n"));
            }
            Tag::TableHead | Tag::TableRow => self.is_in_row = false,
            Tag::TableCell => {
                self.text.push_str(if self.is_in_row { "\tT{\n" } else { "T{\n" });
                self.is_in_row = true;
            }
            Tag::Emphasis => self.text.push_str("\\fI"),
            Tag::Strong => self.text.push_str("\\fB"),
            Tag::Link { dest_url, .. } => self.link = dest_url.into_string(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(HeadingLevel::H1) => self.text.push_str("\n.SH DESCRIPTION\n"),
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.request(".RE\n");
                }
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                self.request(".EE\n.RE\n");
            }
            TagEnd::Table => self.request(".TE\n"),
            TagEnd::TableCell => self.text.push_str("\nT}"),
            TagEnd::TableHead | TagEnd::TableRow => self.text.push('\n'),
            TagEnd::Emphasis | TagEnd::Strong => self.text.push_str("\\fR"),
            // A place in the document itself is found by its heading.
            TagEnd::Link if !self.link.starts_with('#') => {
                let link = std::mem::take(&mut self.link);
                self.words(&format!(" <{link}>"));
            }
            TagEnd::Item => self.continues = false,
            _ => {}
        }
    }

    fn item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!(".IP {}. 4\n", *number - 1)
            }
            _ => ".IP \\(bu 2\n".to_owned(),
        };
        self.request(&mark);
        self.continues = true;
    }

    /// Writes a request or macro, which begins a line.
    fn request(&mut self, request: &str) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(request);
    }

    /// Writes text, in which nothing means something to roff.
    fn words(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '.' | '\'' if self.text.ends_with('\n') => self.text.extend(['\\', '&', character]),
                '\\' => self.text.push_str("\\e"),
                '-' => self.text.push_str("\\-"),
                '\'' => self.text.push_str("\\(aq"),
                '^' => self.text.push_str("\\(ha"),
                '~' => self.text.push_str("\\(ti"),
                '`' => self.text.push_str("\\(ga"),
                '\n' if !self.is_code => self.text.push('\n'),
                _ => self.text.push(character),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# The title\n\nFirst *words* of `a-b`,\nsee [there](other.md) and [below](#part).\n\n## Part\n\n\
        - one\n\n  and more\n  1. two\n- **three**\n\n### Code\n\n```sh\n.it 'is'\n    \\n\n```\n\n\
        | name | value |\n|---|---|\n| `x` | y z |\n";

    #[test]
    fn a_document_becomes_a_page_with_its_title_as_the_name() {
        let page = page("made-up", DOCUMENT);
        let body = page.split_once(".SH NAME\n").unwrap().1;
        assert_eq!(
            body,
            "made-up \\- The title\n.SH DESCRIPTION\n.PP\nFirst \\fIwords\\fR of \\fBa\\-b\\fR,\n\
             see there <other.md> and below.\n.SH Part\n.IP \\(bu 2\none\n.IP\nand more\n.RS\n.IP 1. 4\ntwo\n.RE\n\
             .IP \\(bu 2\n\\fBthree\\fR\n.SS Code\n.PP\n.RS 4\n.EX\n\\&.it \\(aqis\\(aq\n    \\en\n.EE\n.RE\n\
             .PP\n.TS\nallbox;\nlx lx.\nT{\nname\nT}\tT{\nvalue\nT}\nT{\n\\fBx\\fR\nT}\tT{\ny z\nT}\n.TE\n"
        );
    }
}
