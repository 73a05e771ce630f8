//! Tokens to a tree.

use super::expression::{Comparison, Expression, Literal, LiteralValue, Operation, Test};
use super::fault::Fault;
use super::lexer::{Token, tokens};

/// The most bytes of a condition.
pub const MAX_LENGTH: usize = 1 << 16;

/// Parentheses and `not` within each other.
const MAX_DEPTH: usize = 100;

pub(super) fn parse(text: &str) -> Result<Expression, Fault> {
    if text.len() > MAX_LENGTH {
        let problem = format!("it has {} bytes; a condition has at most {MAX_LENGTH}", text.len());
        return Err(Fault::new(0, problem, None));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0 };
    let condition = parser.condition(0)?;
    match parser.peek() {
        (_, Token::End) => Ok(condition),
        (at, found) => {
            Err(Fault::new(*at, format!("wanted `and`, `or` or the end, found {}", shown(found)), None))
        }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &(usize, Token) {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> (usize, Token) {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    /// Takes the word of the language if it is the next token.
    fn take_word(&mut self, wanted: &str) -> bool {
        let found = matches!(&self.peek().1, Token::Word(word) if word.eq_ignore_ascii_case(wanted));
        self.next += usize::from(found);
        found
    }

    fn take_sign(&mut self, wanted: &str) -> bool {
        let found = matches!(&self.peek().1, Token::Sign(sign) if *sign == wanted);
        self.next += usize::from(found);
        found
    }

    fn wanted(&self, what: &str, hint: Option<&str>) -> Fault {
        let (at, found) = self.peek();
        Fault::new(*at, format!("wanted {what}, found {}", shown(found)), hint.map(str::to_owned))
    }

    fn condition(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut parts = vec![self.term(depth)?];
        while self.take_word("or") {
            parts.push(self.term(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn term(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut parts = vec![self.factor(depth)?];
        while self.take_word("and") {
            parts.push(self.factor(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn factor(&mut self, depth: usize) -> Result<Expression, Fault> {
        if depth > MAX_DEPTH {
            let problem = format!("more than {MAX_DEPTH} conditions are within each other");
            return Err(Fault::new(self.peek().0, problem, None));
        }
        if self.take_word("not") {
            return Ok(Expression::Not(Box::new(self.factor(depth + 1)?)));
        }
        if self.take_sign("(") {
            let inner = self.condition(depth + 1)?;
            return match self.take_sign(")") {
                true => Ok(inner),
                false => Err(self.wanted("`and`, `or` or `)`", None)),
            };
        }
        self.test().map(Expression::Test)
    }

    fn test(&mut self) -> Result<Test, Fault> {
        let (at, column) = match self.peek().clone() {
            (at, Token::Word(word)) if !is_of_language(&word) => (at, word),
            (at, Token::Name(name)) => (at, name),
            _ => return Err(self.wanted("a column", Some("a condition is, for example, price < 20"))),
        };
        self.take();
        let comparison = match &self.peek().1 {
            Token::Sign("=") => Some(Comparison::Equal),
            Token::Sign("!=") => Some(Comparison::NotEqual),
            Token::Sign("<") => Some(Comparison::Less),
            Token::Sign("<=") => Some(Comparison::AtMost),
            Token::Sign(">") => Some(Comparison::Greater),
            Token::Sign(">=") => Some(Comparison::AtLeast),
            _ => None,
        };
        let operation = if let Some(comparison) = comparison {
            self.take();
            Operation::Compare(comparison, self.literal()?)
        } else if self.take_word("is") {
            let missing = !self.take_word("not");
            if !self.take_word("missing") {
                return Err(self.wanted("`missing`", Some("write `is missing` or `is not missing`")));
            }
            Operation::Missing(missing)
        } else {
            let holds = !self.take_word("not");
            if self.take_word("in") {
                Operation::In(holds, self.list()?)
            } else if self.take_word("has") {
                Operation::Has(holds, self.literal()?)
            } else if self.take_word("under") {
                Operation::Under(holds, self.literal()?)
            } else {
                let all = "`=`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `has`, `under` or `is missing`";
                return Err(self.wanted(all, None));
            }
        };
        Ok(Test { column, at, operation })
    }

    fn list(&mut self) -> Result<Vec<Literal>, Fault> {
        if !self.take_sign("(") {
            return Err(self.wanted("`(`", Some("a list is written in (\"a\", \"b\")")));
        }
        let mut list = vec![self.literal()?];
        while self.take_sign(",") {
            list.push(self.literal()?);
        }
        match self.take_sign(")") {
            true => Ok(list),
            false => Err(self.wanted("`,` or `)`", None)),
        }
    }

    fn literal(&mut self) -> Result<Literal, Fault> {
        match self.peek().clone() {
            (at, Token::Value(value, text)) => {
                self.take();
                Ok(Literal { at, value, text })
            }
            (_, Token::Word(word)) => {
                let hint = format!("write a text in quotes: \"{word}\"");
                Err(self.wanted("a value", Some(&hint)))
            }
            _ => Err(self.wanted("a value", Some("a value is 12.5, 2024-05-01 or \"text\""))),
        }
    }
}

fn is_of_language(word: &str) -> bool {
    ["and", "or", "not", "in", "has", "under", "is"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn shown(token: &Token) -> String {
    match token {
        Token::Word(word) | Token::Name(word) => format!("`{word}`"),
        Token::Value(LiteralValue::Text(text), _) => format!("\"{text}\""),
        Token::Value(_, text) => format!("`{text}`"),
        Token::Sign(sign) => format!("`{sign}`"),
        Token::End => "the end".to_owned(),
    }
}
