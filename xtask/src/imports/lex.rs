//! Rust source as tokens: identifiers, string literals and punctuation, without comments.

/// A token and the line on which it starts, counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub kind: Kind,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Ident(String),
    Str(String),
    /// `::`
    PathSep,
    Punct(char),
}

impl Token {
    pub(crate) fn ident(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ident(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn is(&self, punct: char) -> bool {
        self.kind == Kind::Punct(punct)
    }
}

/// The tokens of a source file. Lifetimes, numbers and character literals are left out.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { chars, at: 0, line: 1, tokens: Vec::new() };
    while lexer.at < lexer.chars.len() {
        lexer.next();
    }
    lexer.tokens
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn bump(&mut self) -> char {
        let c = self.peek(0);
        self.line += usize::from(c == '\n');
        self.at += 1;
        c
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.tokens.push(Token { kind, line });
    }

    fn next(&mut self) {
        let line = self.line;
        match self.peek(0) {
            '/' if self.peek(1) == '/' => self.skip_line(),
            '/' if self.peek(1) == '*' => self.skip_block_comment(),
            '"' => self.string(),
            '\'' => self.quote(),
            ':' if self.peek(1) == ':' => {
                self.at += 2;
                self.push(Kind::PathSep, line);
            }
            c if c.is_alphabetic() || c == '_' => self.word(),
            c if c.is_ascii_digit() => {
                while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
                    self.at += 1;
                }
            }
            c => {
                self.bump();
                if !c.is_whitespace() {
                    self.push(Kind::Punct(c), line);
                }
            }
        }
    }

    fn skip_line(&mut self) {
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            self.at += 1;
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', '/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {
                    self.bump();
                }
            }
        }
    }

    /// A string with escapes; the position is at its opening quote.
    fn string(&mut self) {
        let line = self.line;
        let mut value = String::new();
        self.bump();
        while self.at < self.chars.len() {
            match self.bump() {
                '"' => break,
                '\\' => {
                    self.bump();
                }
                c => value.push(c),
            }
        }
        self.push(Kind::Str(value), line);
    }

    /// A string without escapes; the position is at its first `#` or its opening quote.
    fn raw_string(&mut self) {
        let line = self.line;
        let mut hashes = 0;
        while self.peek(0) == '#' {
            hashes += 1;
            self.at += 1;
        }
        self.bump();
        let mut value = String::new();
        while self.at < self.chars.len() {
            let c = self.bump();
            if c == '"' && (0..hashes).all(|i| self.peek(i) == '#') {
                self.at += hashes;
                break;
            }
            value.push(c);
        }
        self.push(Kind::Str(value), line);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        self.bump();
        if self.peek(0) == '\\' {
            self.at += 2;
            while self.at < self.chars.len() && self.bump() != '\'' {}
        } else if self.peek(1) == '\'' {
            self.bump();
            self.bump();
        } else {
            while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
                self.at += 1;
            }
        }
    }

    fn word(&mut self) {
        let (start, line) = (self.at, self.line);
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        match (word.as_str(), self.peek(0)) {
            ("r" | "br" | "cr", '"') => self.raw_string(),
            ("r", '#') if self.peek(1).is_alphabetic() || self.peek(1) == '_' => {
                self.at += 1;
                self.word();
            }
            ("r" | "br" | "cr", '#') => self.raw_string(),
            ("b" | "c", '"') => self.string(),
            ("b", '\'') => self.quote(),
            _ => self.push(Kind::Ident(word), line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokens};

    fn words(text: &str) -> Vec<String> {
        tokens(text)
            .into_iter()
            .filter_map(|token| match token.kind {
                Kind::Ident(name) => Some(name),
                Kind::Str(value) => Some(format!("\"{value}\"")),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn comments_literals_and_lifetimes_hold_no_identifier() {
        let text = "a // b\n/* c /* d */ e */ f<'g> 'h' '\\'' b'i' 0x1f_u8 j";
        assert_eq!(words(text), ["a", "f", "j"]);
    }

    #[test]
    fn strings_end_where_rust_ends_them() {
        let text = r####"a "b\"c" r"d\" r#"e"f"# b"g" r#type"####;
        assert_eq!(words(text), ["a", "\"bc\"", "\"d\\\"", "\"e\"f\"", "\"g\"", "type"]);
    }

    #[test]
    fn lines_are_counted_in_comments_and_strings() {
        let found = tokens("/* \n */ \"\n\" a::b");
        assert_eq!(found.iter().map(|token| token.line).collect::<Vec<_>>(), [2, 3, 3, 3]);
        assert_eq!(found[2].kind, Kind::PathSep);
    }
}
