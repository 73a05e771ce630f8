//! `milvus://HOST:PORT/COLLECTION`, or `milvus+tls://` for an encrypted connection; the same with `qdrant`.

use std::fmt;
use std::str::FromStr;

use crate::system::{SYSTEMS, System};
use crate::{Error, Result};

/// A collection of a server: `milvus://HOST[:PORT]/COLLECTION`, or `milvus+tls://…` for a server
/// with TLS; `qdrant://…` and `qdrant+tls://…`. The certificates that the system trusts decide which servers are trusted; the environment variable
/// `SSL_CERT_FILE` names others.
///
/// ```
/// use gallerist_database::Address;
///
/// let address: Address = "milvus://db.example:19530/birds".parse()?;
/// assert_eq!((address.host(), address.port(), address.collection()), ("db.example", 19530, "birds"));
/// assert!("milvus+tls://db.example/birds".parse::<Address>()?.is_encrypted());
/// assert_eq!("qdrant://db.example/birds".parse::<Address>()?.port(), 6334);
/// assert_eq!("milvus://[::1]/birds".parse::<Address>()?.to_string(), "milvus://[::1]:19530/birds");
/// # Ok::<(), gallerist_database::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    system: &'static System,
    host: String,
    port: u16,
    collection: String,
    tls: bool,
}

impl Address {
    /// The database.
    pub fn system(&self) -> &'static System {
        self.system
    }

    /// Host name or IP address; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Name of the collection.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// `HOST:PORT`, an IPv6 address in brackets.
    pub fn server(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { self.system.tls_scheme } else { self.system.scheme };
        write!(f, "{scheme}{}/{}", self.server(), self.collection)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let of = |system: &'static System| {
            let encrypted = text.strip_prefix(system.tls_scheme).map(|rest| (system, rest, true));
            encrypted.or_else(|| text.strip_prefix(system.scheme).map(|rest| (system, rest, false)))
        };
        let fault = |system, problem| Error::Address { system, given: text.to_owned(), problem };
        let Some((system, rest, tls)) = SYSTEMS.into_iter().find_map(of) else {
            return Err(fault(None, "it does not begin with `milvus://` or `qdrant://`"));
        };
        parse(system, rest, tls).map_err(|problem| fault(Some(system), problem))
    }
}

/// Reads what follows the scheme.
fn parse(system: &'static System, rest: &str, tls: bool) -> std::result::Result<Address, &'static str> {
    let (server, collection) = rest.split_once('/').ok_or("it names no collection")?;
    let (host, port) = match server.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').ok_or("a bracket is not closed")?;
            host.parse::<std::net::Ipv6Addr>()
                .map_err(|_| "the text between the brackets is no IPv6 address")?;
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':').ok_or("wanted :PORT after the bracket")?),
            };
            (host, port)
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let host_letters = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(host_letters) {
        return Err("it names no host");
    }
    let port = match port {
        None => system.default_port,
        Some(digits) => match digits.parse() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => return Err("its port is not a number from 1 to 65535"),
        },
    };
    if !(system.is_name)(collection) {
        return Err(system.names);
    }
    Ok(Address { system, host: host.to_owned(), port, collection: collection.to_owned(), tls })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_address_is_refused_and_says_why() {
        for (text, problem) in [
            ("http://host/c", "begin with"),
            ("milvus://host:19530", "names no collection"),
            ("milvus:///c", "names no host"),
            ("milvus://user@host/c", "names no host"),
            ("milvus://host:/c", "port"),
            ("milvus://host:0/c", "port"),
            ("milvus://host:65536/c", "port"),
            ("milvus://host:+1/c", "port"),
            ("milvus://::1/c", "no host"),
            ("milvus://[::1/c", "not closed"),
            ("milvus://[host]/c", "no IPv6"),
            ("milvus://[::1]x/c", "wanted :PORT"),
            ("milvus://host/", "a collection's name"),
            ("milvus://host/1st", "a collection's name"),
            ("milvus://host/a/b", "a collection's name"),
            ("milvus://host/ä", "a collection's name"),
            ("milvus://host/a-b", "a collection's name"),
            ("qdrant://host/..", "a collection's name"),
            ("qdrant://host/a b", "a collection's name"),
            ("qdrant+tls://host", "names no collection"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(problem), "{text}: {error}");
        }
        let longest = format!("milvus://h/{}", "c".repeat(255));
        assert!(longest.parse::<Address>().is_ok());
        assert!(format!("{longest}c").parse::<Address>().is_err());
    }

    proptest! {
        #[test]
        fn an_address_is_read_back_from_what_it_prints(text in "(milvus|qdrant)(\\+tls)?://([a-z0-9.-]{1,9}|\\[::[0-9a-f]{1,4}\\])(:[1-9][0-9]{0,3})?/[a-zA-Z_][a-zA-Z0-9_]{0,9}") {
            let address: Address = text.parse().unwrap();
            prop_assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "((milvus|qdrant)://)?.{0,20}") {
            let _ = text.parse::<Address>();
        }
    }
}
