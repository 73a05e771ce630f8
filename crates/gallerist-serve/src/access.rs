//! Tokens: who may read and who may change a gallery.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gallerist_util::hex;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The name of a token that has none.
const NAMELESS: &str = "token";

/// The largest name of a token, in bytes.
const NAME: usize = 40;

/// A secret by which a client may read or change a gallery, and a name for it in the
/// [audit log](crate::Options::audit).
///
/// Only its digests are kept. They are compared in constant time, and cannot be compared in another way:
///
/// ```compile_fail
/// # use gallerist_serve::Token;
/// let token: Token = "alice:3f9c".parse()?;
/// assert!(token == token.clone());
/// # Ok::<(), gallerist_serve::Error>(())
/// ```
///
/// # Example
///
/// ```
/// use gallerist_serve::{Options, Token};
///
/// let alice: Token = "alice:3f9c1d77ab".parse()?;
/// assert_eq!(alice.name(), "alice");
/// let options = Options { read_tokens: vec![alice, "8bd20f6e55".parse()?], ..Options::default() };
/// # Ok::<(), gallerist_serve::Error>(())
/// ```
#[derive(Clone)]
pub struct Token {
    name: Arc<str>,
    digest: Secret,
    /// The value of the cookie of a page that was opened with the token. The token cannot be computed from it.
    session: Secret,
}

/// Bytes that are only compared in constant time.
#[derive(Clone)]
struct Secret([u8; 32]);

impl Secret {
    fn of(purpose: &str, text: &[u8]) -> Self {
        Self(Sha256::new().chain_update(purpose).chain_update([0]).chain_update(text).finalize().into())
    }

    fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl FromStr for Token {
    type Err = crate::Error;

    /// Reads `TOKEN` or `NAME:TOKEN`. A name has letters, digits, `-`, `_` and `.`; a token has visible ASCII characters.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |problem: String| {
            let hint = "give TOKEN or NAME:TOKEN, for example alice:$(openssl rand -hex 32)".to_owned();
            Err(crate::Error::Option { problem, hint: Some(hint) })
        };
        let (name, token) = text.split_once(':').unwrap_or((NAMELESS, text));
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME || !name.bytes().all(is_of_name) {
            return refused(format!(
                "the name of a token has 1 to {NAME} letters, digits, `-`, `_` and `.`; one has other characters"
            ));
        }
        if token.is_empty() {
            return refused(format!("the token `{name}` is empty"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refused(format!("the token `{name}` has a space or a character that is not ASCII"));
        }
        let digest = Secret::of("token", token.as_bytes());
        let session = Secret::of("session", &digest.0);
        Ok(Self { name: name.into(), digest, session })
    }
}

impl Token {
    /// Its name; `token` if it was given none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name and the value of the cookie of a page that was opened with it. Servers at other ports of a host use the same
    /// cookies, so tokens have different names.
    pub(crate) fn cookie(&self) -> (String, String) {
        let name = Secret::of("cookie", &self.session.0);
        (format!("gallerist-{}", hex::encode(&name.0[..4])), hex::encode(&self.session.0))
    }
}

/// The name alone.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({})", self.name)
    }
}

/// The token of a list that was given. The time does not depend on which one it is, nor on how much of it is right.
pub(crate) fn find<'a>(tokens: &'a [Token], given: &str) -> Option<&'a Token> {
    let given = Secret::of("token", given.as_bytes());
    only(tokens, |token| token.digest.is(&given))
}

/// The token of a list whose cookie has this value.
pub(crate) fn find_session<'a>(tokens: &'a [Token], value: &str) -> Option<&'a Token> {
    let mut given = Secret([0; 32]);
    let bytes = value.as_bytes();
    if bytes.len() != 64 {
        return None;
    }
    for (byte, pair) in given.0.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    only(tokens, |token| token.session.is(&given))
}

/// Compares all tokens, also after one is found.
fn only(tokens: &[Token], is: impl Fn(&Token) -> Choice) -> Option<&Token> {
    tokens.iter().fold(None, |found, token| if bool::from(is(token)) { Some(token) } else { found })
}

/// Refuses tokens of which two are the same: the right of a client would depend on their order.
pub(crate) fn check(tokens: &[Token], read_tokens: &[Token]) -> crate::Result<()> {
    let all: Vec<&Token> = tokens.iter().chain(read_tokens).collect();
    for (at, token) in all.iter().enumerate() {
        if let Some(other) = all[..at].iter().find(|other| bool::from(other.digest.is(&token.digest))) {
            return Err(crate::Error::Option {
                problem: format!("the tokens `{}` and `{}` are the same", other.name, token.name),
                hint: Some(
                    "use each token once; a token that may change the gallery may also read it".to_owned(),
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(texts: &[&str]) -> Vec<Token> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_token_is_found_by_all_of_its_characters_and_its_cookie_is_another_secret() {
        let tokens = tokens(&["alice:secret", "bob:secreT", "plain"]);
        let name = |given: &str| find(&tokens, given).map(Token::name);
        assert_eq!(["secret", "secreT", "plain"].map(name), [Some("alice"), Some("bob"), Some("token")]);
        for given in ["", "secre", "secrets", "alice:secret", "alice", " secret"] {
            assert_eq!(name(given), None, "{given}");
        }
        let cookies: Vec<_> = tokens.iter().map(Token::cookie).collect();
        assert!(cookies[0].0 != cookies[1].0 && cookies[0].1 != cookies[1].1);
        for (token, (_, value)) in tokens.iter().zip(&cookies) {
            assert_eq!(find_session(&tokens, value).map(Token::name), Some(token.name()));
            assert!(find(&tokens, value).is_none());
        }
        for value in ["", "secret", &cookies[0].1[1..], &cookies[0].1.replace(|_| true, "0"), &"é".repeat(32)]
        {
            assert!(find_session(&tokens, value).is_none(), "{value}");
        }
        assert_eq!(format!("{:?}", tokens[0]), "Token(alice)");
    }

    #[test]
    fn tokens_that_a_header_cannot_carry_are_refused_and_so_are_two_of_the_same() {
        for text in ["", ":a", "alice:", "a b", "a b:c", "alice:é", "x:a\n"] {
            let problem = text.parse::<Token>().unwrap_err().to_string();
            assert!(problem.contains("token") && !problem.contains("a b"), "{text}: {problem}");
        }
        assert!(check(&tokens(&["a:1", "b:2"]), &tokens(&["c:3"])).is_ok());
        let problem = check(&tokens(&["a:1"]), &tokens(&["b:1"])).unwrap_err().to_string();
        assert_eq!(problem, "the tokens `a` and `b` are the same");
    }
}
