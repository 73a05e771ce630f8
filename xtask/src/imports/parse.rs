//! What one source file declares, imports and names, outside `#[cfg(test)]`.

use std::collections::BTreeSet;

use super::lex::{Kind, Token, tokens};

/// A module: a file, or a `mod name { … }` inside one.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub name: String,
    /// Names of the functions, types, constants and macros defined at module level.
    pub defined: BTreeSet<String>,
    /// Macros with `#[macro_export]`: their path starts at the root of the crate.
    pub exported_macros: BTreeSet<String>,
    pub uses: Vec<Use>,
    /// Paths in code: `a::b`.
    pub paths: Vec<Path>,
    /// Identifiers in code, without those in `use` declarations.
    pub words: BTreeSet<String>,
    pub inline: Vec<Module>,
    /// `mod name;`, with the value of `#[path]`.
    pub files: Vec<(String, Option<String>)>,
}

/// One name that a `use` declaration brings into scope; the name of a glob is `*`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Use {
    pub name: String,
    pub path: Path,
    pub public: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub segments: Vec<String>,
    pub line: usize,
}

pub(crate) fn parse(text: &str) -> Module {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut module = Module::default();
    parser.block(&mut module, true);
    module
}

#[derive(Default)]
struct Attributes {
    test_only: bool,
    path: Option<String>,
    macro_export: bool,
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn ident(&self, ahead: usize) -> Option<&str> {
        self.peek(ahead).and_then(Token::ident)
    }

    fn is(&self, ahead: usize, punct: char) -> bool {
        self.peek(ahead).is_some_and(|token| token.is(punct))
    }

    fn is_path_sep(&self, ahead: usize) -> bool {
        self.peek(ahead).is_some_and(|token| token.kind == Kind::PathSep)
    }

    /// Reads to the end of a block (its `}` is consumed) or of the file. `items`: the block is a module's.
    fn block(&mut self, module: &mut Module, items: bool) {
        let mut attributes = Attributes::default();
        let mut public = false;
        while self.at < self.tokens.len() {
            if self.is(0, '#') && (self.is(1, '[') || (self.is(1, '!') && self.is(2, '['))) {
                self.attribute(&mut attributes);
                continue;
            }
            if attributes.test_only {
                self.skip_item(items);
                attributes = Attributes::default();
                continue;
            }
            if self.ident(0) == Some("pub") {
                public = true;
                self.at += 1;
                if self.is(0, '(') && matches!(self.ident(1), Some("crate" | "super" | "self" | "in")) {
                    self.skip_group();
                }
                continue;
            }
            if self.is(0, '}') {
                self.at += 1;
                return;
            }
            if self.is(0, '{') {
                self.at += 1;
                self.block(module, false);
            } else if !self.declaration(module, items, public, &mut attributes) {
                self.code(module);
            }
            public = false;
            attributes = Attributes::default();
        }
    }

    /// Reads the start of a declaration; false if there is none here.
    fn declaration(
        &mut self,
        module: &mut Module,
        items: bool,
        public: bool,
        attributes: &mut Attributes,
    ) -> bool {
        let Some(keyword) = self.ident(0).map(str::to_string) else { return false };
        let name = self.ident(1).map(str::to_string);
        match (keyword.as_str(), name) {
            ("mod", Some(name)) if self.is(2, ';') => {
                self.at += 3;
                module.files.push((name, attributes.path.take()));
            }
            ("mod", Some(name)) if self.is(2, '{') => {
                self.at += 3;
                let mut inner = Module { name, ..Module::default() };
                self.block(&mut inner, true);
                module.inline.push(inner);
            }
            ("use", _) if !self.is(1, '<') => {
                self.at += 1;
                self.use_tree(module, Vec::new(), public);
            }
            ("macro_rules", _) if self.is(1, '!') => {
                if let Some(name) = self.ident(2).map(str::to_string) {
                    if attributes.macro_export {
                        module.exported_macros.insert(name.clone());
                    }
                    module.defined.insert(name);
                }
                self.at += 3;
            }
            ("static", Some(name)) if items && name == "mut" => {
                module.defined.extend(self.ident(2).map(str::to_string));
                self.at += 3;
            }
            ("const", Some(name)) if matches!(name.as_str(), "fn" | "unsafe" | "async" | "extern") => {
                self.at += 1
            }
            ("fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static", Some(name))
                if items =>
            {
                self.at += 2;
                module.defined.insert(name);
            }
            _ => return false,
        }
        true
    }

    /// Reads a path, an identifier or one other token.
    fn code(&mut self, module: &mut Module) {
        let line = self.tokens[self.at].line;
        let after_separator = self.at > 0 && self.tokens[self.at - 1].kind == Kind::PathSep;
        let Some(first) = self.ident(0).map(str::to_string) else {
            self.at += 1;
            return;
        };
        self.at += 1;
        if after_separator {
            return;
        }
        module.words.insert(first.clone());
        let mut segments = vec![first];
        while self.is_path_sep(0) {
            let Some(next) = self.ident(1).map(str::to_string) else { break };
            segments.push(next);
            self.at += 2;
        }
        if segments.len() > 1 {
            module.paths.push(Path { segments, line });
        }
    }

    /// Reads a use tree behind `prefix`, up to and with its `;`, or up to the `,` or `}` of the tree around it.
    fn use_tree(&mut self, module: &mut Module, prefix: Vec<String>, public: bool) {
        let mut segments = prefix;
        let line = self.peek(0).map_or(0, |token| token.line);
        let mut name = None;
        let mut group = false;
        while let Some(token) = self.peek(0).cloned() {
            self.at += 1;
            match token.kind {
                Kind::Ident(word) if word == "as" => {
                    name = self.ident(0).map(str::to_string);
                    self.at += 1;
                }
                Kind::Ident(word) => segments.push(word),
                Kind::Punct('*') => segments.push("*".into()),
                Kind::Punct('{') => {
                    group = true;
                    while self.at < self.tokens.len() && !self.is(0, '}') {
                        self.use_tree(module, segments.clone(), public);
                        if self.is(0, ',') {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                }
                Kind::Punct(',' | '}') => {
                    self.at -= 1;
                    break;
                }
                Kind::Punct(';') => break,
                _ => {}
            }
        }
        if group || segments.is_empty() {
            return;
        }
        if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        let name = name.unwrap_or_else(|| segments.last().expect("not empty").clone());
        module.uses.push(Use { name, path: Path { segments, line }, public });
    }

    fn attribute(&mut self, attributes: &mut Attributes) {
        self.at += if self.is(1, '!') { 2 } else { 1 };
        let start = self.at;
        self.skip_group();
        let inside = &self.tokens[start + 1..self.at.max(start + 2) - 1];
        let words: Vec<&str> = inside.iter().filter_map(Token::ident).collect();
        match words.as_slice() {
            ["cfg", "test"] | ["cfg", "all", "test", ..] => attributes.test_only = true,
            ["path"] => {
                attributes.path = inside.iter().find_map(|token| match &token.kind {
                    Kind::Str(value) => Some(value.clone()),
                    _ => None,
                });
            }
            ["macro_export", ..] => attributes.macro_export = true,
            _ => {}
        }
    }

    /// Skips a group in parentheses, brackets or braces that starts here.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.peek(0) {
            match token.kind {
                Kind::Punct('(' | '[' | '{') => depth += 1,
                Kind::Punct(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips what an attribute applies to: to its `;`, to the end of its block, in an expression also to its `,`.
    fn skip_item(&mut self, items: bool) {
        let is_use =
            self.ident(0) == Some("use") || (self.ident(0) == Some("pub") && self.ident(1) == Some("use"));
        while let Some(token) = self.peek(0) {
            match token.kind {
                Kind::Punct('}') => return,
                Kind::Punct('{') => {
                    self.skip_group();
                    if !is_use {
                        return;
                    }
                }
                Kind::Punct('(' | '[') => self.skip_group(),
                Kind::Punct(c) => {
                    self.at += 1;
                    if c == ';' || (c == ',' && !items) {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn uses(text: &str) -> Vec<String> {
        parse(text).uses.iter().map(|u| format!("{}={}", u.name, u.path.segments.join("::"))).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        parse(text).paths.iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn nested_use_trees_give_one_path_per_name() {
        let text = "use crate::{a::{self, B as C}, d::*, e};\npub(crate) use super::f::{g};";
        assert_eq!(
            uses(text),
            ["a=crate::a", "C=crate::a::B", "*=crate::d::*", "e=crate::e", "g=super::f::g"]
        );
        assert!(parse(text).uses.last().unwrap().public);
    }

    #[test]
    fn what_only_tests_see_is_left_out() {
        let text = "#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\n#[cfg(test)]\nuse super::{A, B};\n
                    #[cfg(test)]\nmod more { use crate::C; }\n#[cfg(test)] fn f<A, B>() { crate::d() }\n
                    fn g() { S { #[cfg(test)] x: crate::e(1, 2), y: crate::f() } }";
        assert_eq!(uses(text), Vec::<String>::new());
        assert_eq!(paths(text), ["crate::f"]);
        assert!(parse(text).files.is_empty());
    }

    #[test]
    fn definitions_and_inline_modules_belong_to_their_module() {
        let text = "pub const fn a() { struct Hidden; }\nstatic mut B: u8 = 0;\npub(in crate::x) enum C {}\n
                    mod inner { pub struct D; fn e() { super::a(); } }\nmod file;\nmacro_rules! m { () => { $crate::z() } }";
        let module = parse(text);
        assert_eq!(module.defined.iter().collect::<Vec<_>>(), ["B", "C", "a", "m"]);
        assert_eq!(module.inline[0].defined.iter().collect::<Vec<_>>(), ["D", "e"]);
        assert_eq!(module.inline[0].paths[0].segments, ["super", "a"]);
        assert_eq!(module.files, [("file".to_string(), None)]);
        assert_eq!(module.paths[0].segments, ["crate", "z"]);
    }

    #[test]
    fn paths_stop_at_generic_arguments_and_after_qualified_types() {
        assert_eq!(paths("a::b::<c::D>::e(); <F as g::H>::i::j()"), ["a::b", "c::D", "g::H"]);
    }
}
