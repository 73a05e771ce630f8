//! A condition as a list of words, values and signs.

use super::expression::LiteralValue;
use super::fault::Fault;
use crate::columns::Instant;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A column, or a word of the language.
    Word(String),
    /// A column in backquotes.
    Name(String),
    /// With the text of it as it is written, without quotes.
    Value(LiteralValue, String),
    Sign(&'static str),
    End,
}

/// Longer signs come first.
const SIGNS: [&str; 9] = ["!=", "<=", ">=", "=", "<", ">", "(", ")", ","];

/// The tokens of a condition, each with its first byte; the last is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let start = at;
        let token = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if matches!(first, '"' | '\'' | '`') {
            let (content, length) = quoted(rest, first, at)?;
            at += length;
            if first == '`' {
                Token::Name(content)
            } else {
                Token::Value(LiteralValue::Text(content.clone()), content)
            }
        } else if first.is_ascii_digit() || first == '-' {
            let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '+' | '-'));
            let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
            at += word.len();
            Token::Value(number_or_date(word, start)?, word.to_owned())
        } else if let Some(number) =
            rest.strip_prefix(['.', '+']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            let number =
                &number[..number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len())];
            let whole = if first == '.' { "0." } else { "" };
            let problem = format!("`{first}{number}` is not written as a number");
            return Err(Fault::new(at, problem, format!("write {whole}{number}; write a text in quotes")));
        } else if first.is_alphabetic() || first == '_' {
            let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
            let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
            at += word.len();
            Token::Word(word.to_owned())
        } else if let Some(wrong) = ["==", "<>", "&&", "||", "!"].iter().find(|sign| rest.starts_with(**sign))
            && !rest.starts_with("!=")
        {
            let right = ["=", "!=", "and", "or", "not"]
                [["==", "<>", "&&", "||", "!"].iter().position(|s| s == wrong).unwrap_or(0)];
            return Err(Fault::new(
                at,
                format!("`{wrong}` is no part of a condition"),
                format!("write `{right}`"),
            ));
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            at += sign.len();
            Token::Sign(sign)
        } else {
            let hint =
                "write texts in quotes, and columns with such characters in their names in `backquotes`";
            return Err(Fault::new(at, format!("`{first}` is no part of a condition"), hint.to_owned()));
        };
        tokens.push((start, token));
    }
    tokens.push((text.len(), Token::End));
    Ok(tokens)
}

/// The text between two `quote`s and the bytes of it all. A backslash keeps the next character.
fn quoted(rest: &str, quote: char, at: usize) -> Result<(String, usize), Fault> {
    let mut content = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((i, character)) = characters.next() {
        match character {
            '\\' => content.extend(characters.next().map(|(_, kept)| kept)),
            end if end == quote => return Ok((content, i + end.len_utf8())),
            other => content.push(other),
        }
    }
    Err(Fault::new(at, "the text has no end", format!("close it with {quote}")))
}

fn number_or_date(word: &str, at: usize) -> Result<LiteralValue, Fault> {
    if Instant::parse(word).is_some() {
        return Ok(LiteralValue::Date(word.to_owned()));
    }
    match word.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(LiteralValue::Number(number)),
        Ok(number) if number.is_infinite() && word.ends_with(|c: char| c.is_ascii_digit()) => {
            Err(Fault::new(
                at,
                format!("`{word}` is too large for a number"),
                format!("numbers are at most 1.797e308; write a text in quotes: \"{word}\""),
            ))
        }
        _ => Err(Fault::new(
            at,
            format!("`{word}` is neither a number nor a date"),
            format!("write a text in quotes: \"{word}\"; a date is written 2024-05-01 or 2024-05-01T10:30"),
        )),
    }
}
