//! What one client may take of a server.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use gallerist_util::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Options;
use crate::client::{Client, Peer};

/// The requests that a client may save up, in seconds of its rate.
pub(crate) const BURST: u32 = 5;

/// The largest number of clients that are counted apart. Further ones are counted together: an attacker with many
/// addresses cannot fill the memory.
const CLIENTS: usize = 1 << 16;

/// The limits of each client. Clones share the counts.
#[derive(Clone)]
pub(crate) struct Limits {
    requests: Option<Arc<Rate<Key>>>,
    uploads: Option<Arc<Rate<Key>>>,
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Self {
        let rate = |a_second: u32| (a_second > 0).then(|| Arc::new(Rate::new(a_second)));
        Self { requests: rate(options.client_requests), uploads: rate(options.client_uploads) }
    }

    /// Counts a request, also as an upload if it runs the network. Refused, it gives the time to wait.
    pub(crate) fn take(&self, client: Client, is_upload: bool) -> Result<(), Duration> {
        let (key, now) = (Key::of(client.0), Instant::now());
        if let Some(requests) = &self.requests {
            requests.take(key, now)?;
        }
        match &self.uploads {
            Some(uploads) if is_upload => uploads.take(key, now),
            _ => Ok(()),
        }
    }
}

/// Whom a limit counts: an IPv4 address, or 64 bits of an IPv6 address, which is what one customer of a provider has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Client(IpAddr),
    /// All clients beyond the largest number.
    Others,
}

impl Key {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Client(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

/// A rate by the generic cell rate algorithm (a token bucket with one time for each key). Written here because the memory of
/// the crates for it grows with the number of clients until they are told to forget some.
pub(crate) struct Rate<K> {
    /// The time between two requests at the rate.
    every: Duration,
    /// When the bucket of a key is full again. An entry of the past is the same as none.
    full: Mutex<(HashMap<K, Instant>, Instant)>,
}

impl Rate<Key> {
    pub(crate) fn new(a_second: u32) -> Self {
        Self { every: Duration::from_secs(1) / a_second, full: Mutex::new((HashMap::new(), Instant::now())) }
    }

    pub(crate) fn take(&self, mut key: Key, now: Instant) -> Result<(), Duration> {
        let mut held = lock(&self.full);
        let (full, swept) = &mut *held;
        if full.len() >= CLIENTS && !full.contains_key(&key) {
            // At most once a second, because it visits all of them.
            if now.saturating_duration_since(*swept) >= Duration::from_secs(1) {
                full.retain(|_, full| *full > now);
                *swept = now;
            }
            if full.len() >= CLIENTS {
                key = Key::Others;
            }
        }
        let next = full.get(&key).map_or(now, |full| (*full).max(now)) + self.every;
        let burst = (self.every * BURST).max(Duration::from_secs(BURST.into()));
        let wait = next.saturating_duration_since(now).saturating_sub(burst);
        if wait.is_zero() {
            full.insert(key, next);
            Ok(())
        } else {
            Err(wait)
        }
    }
}

/// The open connections of each client.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<Key, usize>>>);

impl Connections {
    /// Counts a connection until it is dropped; `None` if the client has `most` already.
    pub(crate) fn open(&self, peer: Peer, most: usize) -> Option<OpenConnection> {
        let key = Key::of(peer.0);
        let mut open = lock(&self.0);
        let count = open.entry(key).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(OpenConnection(self.clone(), key))
    }
}

pub(crate) struct OpenConnection(Connections, Key);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = lock(&self.0.0);
        if let Some(count) = open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.1);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> Key {
        Key::of(std::net::Ipv4Addr::from_bits(number).into())
    }

    /// The requests of one client that are answered, asked for every `step` during `time`.
    fn taken(rate: &Rate<Key>, key: Key, from: Instant, time: Duration, step: Duration) -> usize {
        let steps = (time.as_nanos() / step.as_nanos()) as u32;
        (0..steps).filter(|&at| rate.take(key, from + step * at).is_ok()).count()
    }

    #[test]
    fn a_client_gets_its_burst_and_then_its_rate_and_others_theirs() {
        let rate = Rate::new(10);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(taken(&rate, v4(1), start, second, second / 1000), 59, "50 saved up, and one each 100 ms");
        assert_eq!(taken(&rate, v4(1), start + second, second * 10, second / 1000), 100);
        assert_eq!(taken(&rate, v4(2), start + second, second, second / 1000), 59, "another client");
        assert_eq!(taken(&rate, v4(3), start, second * 20, second / 10), 200, "at the rate, all");
        // The time to wait is the time after which it is answered.
        assert!(rate.take(v4(1), start + second * 11).is_ok());
        let wait = rate.take(v4(1), start + second * 11).unwrap_err();
        assert!(rate.take(v4(1), start + second * 11 + wait - Duration::from_nanos(1)).is_err());
        assert!(rate.take(v4(1), start + second * 11 + wait).is_ok());
        // A slow rate still lets one through.
        assert!(Rate::new(1).take(v4(1), start).is_ok());
    }

    #[test]
    fn many_clients_take_bounded_memory_and_known_ones_keep_their_rate() {
        let rate = Rate::new(1);
        let start = Instant::now();
        assert!(rate.take(v4(0), start).is_ok());
        let answered = (1..200_000).filter(|&client| rate.take(v4(client), start).is_ok()).count();
        assert_eq!(answered, CLIENTS - 1 + 5, "those beyond share one rate");
        assert!(rate.take(v4(0), start).is_ok());
        assert_eq!(lock(&rate.full).0.len(), CLIENTS + 1);
        // Later the old ones are forgotten.
        assert!(rate.take(v4(300_000), start + Duration::from_secs(60)).is_ok());
        assert_eq!(lock(&rate.full).0.len(), 1);
    }

    #[test]
    fn the_addresses_of_one_network_of_ipv6_are_one_client() {
        let key = |text: &str| Key::of(text.parse().unwrap());
        assert!(key("2001:db8:0:1::1") == key("2001:db8:0:1:ffff::2"));
        assert!(key("2001:db8:0:1::1") != key("2001:db8:0:2::1"));
        assert!(key("1.1.1.1") != key("1.1.1.2"));
    }

    #[test]
    fn connections_are_counted_by_client_until_they_close() {
        let connections = Connections::default();
        let [a, b] = ["1.1.1.1", "1.1.1.2"].map(|text| Peer(text.parse().unwrap()));
        let first = connections.open(a, 2);
        let second = connections.open(a, 2);
        assert!(first.is_some() && second.is_some() && connections.open(a, 2).is_none());
        assert!(connections.open(b, 2).is_some());
        drop(first);
        assert!(connections.open(a, 2).is_some());
        drop(second);
        assert!(lock(&connections.0).is_empty());
        // As for the rates, 64 bits of IPv6 are one client.
        let peers = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        let [a, b, c] = peers.map(|text| Peer(text.parse().unwrap()));
        let first = connections.open(a, 1);
        assert!(connections.open(b, 1).is_none() && connections.open(c, 1).is_some());
        drop(first);
        assert!(connections.open(b, 1).is_some());
    }
}
