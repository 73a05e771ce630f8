//! Who sends a request: the address of a client, also through proxies.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::Error;

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = Error;

    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::Option {
            problem: format!("`{text}` is no range of addresses"),
            hint: Some("give an address or a range: 127.0.0.1, 10.0.0.0/8, fd00::/8".to_owned()),
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| refused())?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| refused())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(refused()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Whether it has the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differing = match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        differing >= self.bits.into()
    }
}

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self(address.ip().to_canonical())
    }
}

/// The address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client(pub(crate) IpAddr);

/// The client of a request: its peer, or if that is a trusted proxy, the last address in `X-Forwarded-For` that is no
/// trusted proxy. Every proxy appends the address that it was called from, so those before it may be invented.
pub(crate) fn client<'a>(
    peer: Peer,
    forwarded: impl DoubleEndedIterator<Item = &'a str>,
    proxies: &[Network],
) -> Client {
    let is_proxy = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    let mut client = peer.0;
    for text in forwarded.flat_map(|line| line.split(',')).rev() {
        if !is_proxy(client) {
            break;
        }
        match address(text.trim()) {
            Some(address) => client = address,
            None => break,
        }
    }
    Client(client)
}

/// An address in `X-Forwarded-For`, which some proxies write with a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address = text.trim_matches(['[', ']']).parse().ok().or_else(with_port);
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_addresses_that_begin_with_its_bits() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        let has = |text: &str, address: &str| network(text).contains(address.parse().unwrap());
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
        assert!(has("10.1.2.3", "::ffff:10.1.2.3") && !has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/8", "fd12::1") && has("::/0", "1::") && !has("::1/128", "::2"));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "x", "10.0.0.0/-1", "::/129", "10.0.0.0/8/8"] {
            assert!(text.parse::<Network>().unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client_and_only_the_one_it_was_called_from() {
        let proxies: Vec<Network> = ["127.0.0.1", "10.0.0.0/8"].map(|text| text.parse().unwrap()).to_vec();
        let of = |peer: &str, forwarded: &[&str]| {
            let forwarded = forwarded.iter().copied();
            client(Peer(peer.parse().unwrap()), forwarded, &proxies).0.to_string()
        };
        assert_eq!(of("7.7.7.7", &["1.1.1.1"]), "7.7.7.7", "not a proxy");
        assert_eq!(of("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(of("127.0.0.1", &["1.1.1.1"]), "1.1.1.1");
        assert_eq!(of("127.0.0.1", &["6.6.6.6, 1.1.1.1"]), "1.1.1.1", "the first one is invented");
        assert_eq!(of("127.0.0.1", &["6.6.6.6", "1.1.1.1, 10.0.0.3"]), "1.1.1.1", "two proxies, two headers");
        assert_eq!(of("127.0.0.1", &["1.1.1.1:4711"]), "1.1.1.1");
        assert_eq!(of("127.0.0.1", &["[2001:db8::1]:80"]), "2001:db8::1");
        assert_eq!(of("127.0.0.1", &["unknown"]), "127.0.0.1");
        assert_eq!(of("127.0.0.1", &["1.1.1.1, <script>"]), "127.0.0.1");
    }
}
