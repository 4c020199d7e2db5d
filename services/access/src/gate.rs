//! Allowances of keys and addresses: connections, requests, bytes of bodies. Time is an argument.

use crate::{Caller, Error};
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use parking_lot::Mutex;
use settings::{LimitSettings, ProxyHeader, Settings};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub struct Gate {
    started: Instant,
    trusted_proxies: Vec<IpNet>,
    proxy_header: ProxyHeader,
    goodbyes: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    requests_of_key: Buckets<String>,
    requests_of_address: Buckets<IpAddr>,
    failures_of_address: Buckets<IpAddr>,
    connections: usize,
    connections_of: HashMap<RateLimitKey, usize>,
    body_bytes_of_address: HashMap<IpAddr, usize>,
    limits: LimitSettings,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    pub limit: u64,
    pub remaining: u64,
    /// Seconds until the allowance is whole again.
    pub reset_s: f64,
}

pub struct ConnectionPlace {
    gate: Arc<Gate>,
    of: RateLimitKey,
}

// Connection that the gate refused. It holds one of the goodbyes (`limits.goodbyes`) until it is dropped.
pub struct Refused {
    pub error: Error,
    _goodbye: OwnedSemaphorePermit,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum RateLimitKey {
    Address(IpAddr),
    Key(String),
}

impl Gate {
    pub fn new(settings: &Settings) -> Gate {
        let limits = settings.limits.clone();
        let most = limits.connections.saturating_mul(KEPT_PER_CONNECTION);
        let state = State {
            requests_of_key: Buckets::new(limits.requests_per_minute_per_key, most),
            requests_of_address: Buckets::new(limits.requests_per_minute_per_address, most),
            failures_of_address: Buckets::new(settings.auth.failures_per_minute, most),
            connections: 0,
            connections_of: HashMap::new(),
            body_bytes_of_address: HashMap::new(),
            limits,
        };
        Gate {
            started: Instant::now(),
            trusted_proxies: settings.server.trusted_proxies.clone(),
            proxy_header: settings.server.proxy_header,
            goodbyes: Arc::new(Semaphore::new(settings.limits.goodbyes)),
            state: Mutex::new(state),
        }
    }

    pub fn connect(self: &Arc<Gate>, address: IpAddr) -> Result<ConnectionPlace, Error> {
        let state = &mut *self.state.lock();
        let all = state.limits.connections;
        // Behind a proxy are many clients.
        let limit = if self.is_proxy(address) { all } else { state.limits.connections_per_address };
        if state.connections >= all {
            return Err(Error::TooManyConnections(format!(
                "the server has {all} connections already (limits.connections)"
            )));
        }
        let message = || format!("your address has {limit} connections already (limits.connections_per_address)");
        let place = self.place(state, RateLimitKey::Address(network(address)), limit, message)?;
        state.connections += 1;
        Ok(place)
    }

    // Decides about a connection as it comes, before a task begins: tasks that wait for their turn would hold as many files
    // as connections came. `None`: the connection is closed without a word.
    pub fn enter(self: &Arc<Gate>, address: IpAddr) -> Option<Result<ConnectionPlace, Refused>> {
        match self.connect(address) {
            Ok(place) => Some(Ok(place)),
            Err(error) => {
                tracing::debug!(%address, %error, "a connection was refused");
                self.goodbye().map(|goodbye| Err(Refused { error, _goodbye: goodbye }))
            }
        }
    }

    /// Returns one of the goodbyes (`limits.goodbyes`), in which the service tells a client why it refuses the connection.
    /// `None`: all are taken. Each holds a file for up to a second, and a client may open connections faster than that.
    pub fn goodbye(&self) -> Option<OwnedSemaphorePermit> {
        self.goodbyes.clone().try_acquire_owned().ok()
    }

    pub fn connect_key(self: &Arc<Gate>, key: &str) -> Result<ConnectionPlace, Error> {
        let state = &mut *self.state.lock();
        let limit = state.limits.connections_per_key;
        let message = || format!("this key has {limit} connections already (limits.connections_per_key)");
        self.place(state, RateLimitKey::Key(key.to_owned()), limit, message)
    }

    fn place(
        self: &Arc<Gate>,
        state: &mut State,
        of: RateLimitKey,
        limit: usize,
        message: impl FnOnce() -> String,
    ) -> Result<ConnectionPlace, Error> {
        let count = state.connections_of.entry(of.clone()).or_default();
        if *count >= limit {
            return Err(Error::TooManyConnections(message()));
        }
        *count += 1;
        Ok(ConnectionPlace { gate: self.clone(), of })
    }

    pub fn body(self: &Arc<Gate>, address: IpAddr) -> BodyPlace {
        BodyPlace { gate: self.clone(), address: network(address), bytes: 0 }
    }

    pub fn request_of_address(&self, address: IpAddr) -> Result<Allowance, Error> {
        let now = self.now();
        let taken = self.state.lock().requests_of_address.take(&network(address), now);
        taken.map_err(|wait_s| Error::TooFast { what: "requests from your address", wait_s })
    }

    /// Takes a request from the caller's allowance, and returns the rest of it. A key has its own; without one the caller
    /// shares that of its address.
    pub fn request(&self, caller: &Caller) -> Result<Allowance, Error> {
        if caller.identity.key.is_none() {
            self.request_of_address(caller.address)?;
        }
        self.request_of_key(&caller.account)
    }

    /// Gives a request back to the allowance of an address, because a right key came with it: one key would otherwise use
    /// up what others behind the same address have.
    pub fn request_has_key(&self, address: IpAddr) {
        self.state.lock().requests_of_address.give_back(&network(address));
    }

    pub fn request_of_key(&self, key: &str) -> Result<Allowance, Error> {
        let now = self.now();
        self.state
            .lock()
            .requests_of_key
            .take(&key.to_owned(), now)
            .map_err(|wait_s| Error::TooFast { what: "requests of this key", wait_s })
    }

    pub fn wrong_key(&self, address: IpAddr) -> Result<Allowance, Error> {
        let now = self.now();
        let taken = self.state.lock().failures_of_address.take(&network(address), now);
        taken.map_err(|wait_s| Error::TooFast { what: "wrong keys from your address", wait_s })
    }

    /// Returns the address that a request comes from: its connection's, or what the trusted proxies say in their header. The
    /// last proxy writes at the end, so the last address that is no proxy's is the client's; before it stands what the client
    /// wrote. Other headers are not read, because a proxy passes on those that it does not set.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.is_proxy(peer) {
            return peer;
        }
        let name = match self.proxy_header {
            ProxyHeader::Forwarded => header::FORWARDED,
            ProxyHeader::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ProxyHeader::XRealIp => HeaderName::from_static("x-real-ip"),
        };
        // A hop that is no text has no address: what stands before it is not the proxy's word.
        let lines: Vec<_> = headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        let hops: Vec<&str> = lines.iter().flat_map(|line| line.split(',')).collect();
        let hops = hops.into_iter().rev().map(|hop| match self.proxy_header {
            ProxyHeader::Forwarded => address_of(forwarded_for(hop)),
            ProxyHeader::XForwardedFor | ProxyHeader::XRealIp => address_of(hop),
        });
        // A hop without an address is the nearest that is known of the client.
        let known = hops.take_while(Option::is_some).flatten();
        let mut client = peer;
        for address in known {
            client = address;
            if !self.is_proxy(address) {
                break;
            }
        }
        client
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&address.to_canonical()))
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub fn connections(&self) -> usize {
        self.state.lock().connections
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let state = &mut *self.gate.state.lock();
        if let RateLimitKey::Address(_) = self.of {
            state.connections = state.connections.saturating_sub(1);
        }
        if let Some(count) = state.connections_of.get_mut(&self.of) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                state.connections_of.remove(&self.of);
            }
        }
    }
}

/// Room for a body, given back when this is dropped.
pub struct BodyPlace {
    gate: Arc<Gate>,
    address: IpAddr,
    bytes: usize,
}

impl BodyPlace {
    pub fn take(&mut self, bytes: usize) -> Result<(), Error> {
        let state = &mut *self.gate.state.lock();
        let limit = state.limits.body_bytes_per_address;
        let taken = state.body_bytes_of_address.entry(self.address).or_default();
        self.bytes += bytes;
        *taken += bytes;
        if *taken <= limit {
            return Ok(());
        }
        Err(Error::TooManyBytes { limit })
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        let taken = &mut self.gate.state.lock().body_bytes_of_address;
        let left = taken.get(&self.address).map_or(0, |bytes| bytes.saturating_sub(self.bytes));
        if left == 0 {
            taken.remove(&self.address);
        } else {
            taken.insert(self.address, left);
        }
    }
}

/// Returns the address under which limits count: an IPv4 client has one address, an IPv6 client a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

fn forwarded_for(hop: &str) -> &str {
    let mut pairs = hop.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| name.eq_ignore_ascii_case("for")).map_or("", |(_, address)| address)
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `"[2001:db8::1]:80"`.
fn address_of(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim().trim_matches('"');
    let bare = hop.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(hop);
    bare.parse().ok().or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// Addresses and keys that are remembered for each connection there may be.
const KEPT_PER_CONNECTION: usize = 16;
const MINUTE_S: f64 = 60.0;

/// Allowance a minute for each key: all of it at once, then as it comes back.
struct Buckets<K> {
    per_minute: f64,
    buckets: HashMap<K, Bucket>,
    /// Bucket shared by keys for which there is no room.
    crowd: Bucket,
    most: usize,
}

#[derive(Clone, Copy)]
struct Bucket {
    spent: f64,
    at: f64,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    fn new(per_minute: u32, most: usize) -> Buckets<K> {
        let crowd = Bucket { spent: 0.0, at: 0.0 };
        Buckets { per_minute: f64::from(per_minute), buckets: HashMap::new(), crowd, most }
    }

    /// Takes one request of the allowance, or returns the seconds until there is one again.
    fn take(&mut self, key: &K, now: f64) -> Result<Allowance, f64> {
        let per_minute = self.per_minute;
        let bucket = self.bucket(key, now);
        bucket.refill(per_minute, now);
        bucket.check(per_minute)?;
        bucket.spent += 1.0;
        Ok(bucket.allowance(per_minute))
    }

    fn give_back(&mut self, key: &K) {
        if let Some(bucket) = self.buckets.get_mut(key) {
            bucket.spent = (bucket.spent - 1.0).max(0.0);
        }
    }

    fn bucket(&mut self, key: &K, now: f64) -> &mut Bucket {
        if !self.buckets.contains_key(key) {
            if self.buckets.len() >= self.most {
                let per_minute = self.per_minute;
                self.buckets.retain(|_, bucket| {
                    bucket.refill(per_minute, now);
                    bucket.spent > 0.0
                });
            }
            if self.buckets.len() >= self.most {
                return &mut self.crowd;
            }
        }
        self.buckets.entry(key.clone()).or_insert(Bucket { spent: 0.0, at: now })
    }
}

impl Bucket {
    fn refill(&mut self, per_minute: f64, now: f64) {
        let back = (now - self.at).max(0.0) * per_minute / MINUTE_S;
        self.spent = (self.spent - back).max(0.0);
        self.at = now;
    }

    fn check(&self, per_minute: f64) -> Result<(), f64> {
        let over = self.spent + 1.0 - per_minute;
        if over > 1e-9 { Err(over * MINUTE_S / per_minute) } else { Ok(()) }
    }

    fn allowance(&self, per_minute: f64) -> Allowance {
        let remaining = (per_minute - self.spent).max(0.0) as u64;
        Allowance { limit: per_minute as u64, remaining, reset_s: self.spent * MINUTE_S / per_minute }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use settings::Sources;

    #[test]
    fn a_right_key_uses_up_nothing_of_its_address() {
        let gate = gate(|settings| settings.limits.requests_per_minute_per_address = 3);
        let address = IpAddr::from([192, 168, 0, 7]);
        for _ in 0..20 {
            gate.request_of_address(address).unwrap();
            gate.request_has_key(address);
            gate.request_of_key("ann").unwrap();
        }
        let without_key = (0..4).map(|_| gate.request_of_address(address).is_ok()).collect::<Vec<_>>();
        assert_eq!(without_key, [true, true, true, false]);
    }

    fn gate(change: impl FnOnce(&mut Settings)) -> Arc<Gate> {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        change(&mut settings);
        Arc::new(Gate::new(&settings))
    }

    #[test]
    fn an_allowance_is_there_at_once_and_comes_back_with_time() {
        let mut buckets: Buckets<&str> = Buckets::new(60, 10);
        for taken in 1..=60 {
            let left = buckets.take(&"ann", 0.0).unwrap();
            assert_eq!((left.limit, left.remaining), (60, 60 - taken));
        }
        let wait_s = buckets.take(&"ann", 0.0).unwrap_err();
        assert!((wait_s - 1.0).abs() < 1e-6, "{wait_s}");
        assert!(buckets.take(&"ann", 0.9).is_err());
        assert!(buckets.take(&"ann", 1.0).is_ok() && buckets.take(&"ann", 1.0).is_err());
        assert_eq!(buckets.take(&"ann", 1000.0).unwrap().remaining, 59);
    }

    #[test]
    fn memory_is_bounded_and_the_rest_shares_one_allowance() {
        let mut buckets: Buckets<usize> = Buckets::new(2, 3);
        for key in 0..3 {
            buckets.take(&key, 0.0).unwrap();
        }
        assert!(buckets.take(&3, 0.0).is_ok() && buckets.take(&4, 0.0).is_ok());
        assert!(buckets.take(&5, 0.0).is_err() && buckets.take(&6, 0.0).is_err());
        assert!(buckets.take(&0, 0.0).is_ok());
        // When the others are whole again they are forgotten.
        assert!(buckets.take(&5, 1000.0).is_ok());
        assert_eq!(buckets.buckets.len(), 1);
    }

    #[test]
    fn places_are_given_back() {
        let gate = gate(|settings| {
            settings.limits.connections = 3;
            settings.limits.connections_per_address = 2;
            settings.limits.connections_per_key = 1;
        });
        let [ann, bob]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let first = gate.connect(ann).unwrap();
        let _second = gate.connect(ann).unwrap();
        assert!(gate.connect(ann).is_err());
        let _third = gate.connect(bob).unwrap();
        assert!(gate.connect(bob).is_err_and(|error| error.to_string().contains("limits.connections)")));
        drop(first);
        assert!(gate.connect(bob).is_ok());
        let key = gate.connect_key("k").unwrap();
        assert!(gate.connect_key("k").is_err() && gate.connect_key("l").is_ok());
        drop(key);
        assert!(gate.connect_key("k").is_ok());
    }

    #[test]
    fn few_refused_connections_are_told_why_at_once() {
        let gate = gate(|settings| settings.limits.goodbyes = 2);
        let first = gate.goodbye().unwrap();
        let _second = gate.goodbye().unwrap();
        assert!(gate.goodbye().is_none());
        drop(first);
        assert!(gate.goodbye().is_some());

        let gate = self::gate(|settings| {
            settings.limits.connections_per_address = 1;
            settings.limits.goodbyes = 1;
        });
        let address = "192.0.2.1".parse().unwrap();
        let _place = gate.enter(address).unwrap().ok().unwrap();
        let refused = gate.enter(address).unwrap().err().unwrap();
        assert!(refused.error.to_string().contains("connections_per_address"));
        assert!(gate.enter(address).is_none(), "the connection is closed at once");
        drop(refused);
        assert!(gate.enter(address).unwrap().is_err(), "a goodbye is free again");
    }

    #[test]
    fn one_network_is_one_address() {
        let same = [("2001:db8::1", "2001:db8::ffff:2"), ("::ffff:192.0.2.1", "192.0.2.1")];
        for (one, other) in same {
            assert_eq!(network(one.parse().unwrap()), network(other.parse().unwrap()));
        }
        assert_ne!(network("2001:db8::1".parse().unwrap()), network("2001:db8:0:1::1".parse().unwrap()));
    }

    #[test]
    fn only_the_proxys_own_header_names_the_client() {
        let [proxy, stranger]: [IpAddr; 2] = ["10.0.0.1", "192.0.2.7"].map(|address| address.parse().unwrap());
        let of = |header, peer, lines: &[(&'static str, &'static str)]| {
            let gate = gate(|settings| {
                settings.server.trusted_proxies = vec!["10.0.0.0/24".parse().unwrap()];
                settings.server.proxy_header = header;
            });
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            gate.client(peer, &headers).to_string()
        };
        let all = [("forwarded", "for=203.0.113.1"), ("x-forwarded-for", "203.0.113.2"), ("x-real-ip", "203.0.113.3")];
        for (header, client) in [
            (ProxyHeader::Forwarded, "203.0.113.1"),
            (ProxyHeader::XForwardedFor, "203.0.113.2"),
            (ProxyHeader::XRealIp, "203.0.113.3"),
        ] {
            assert_eq!(of(header, proxy, &all), client);
            assert_eq!(of(header, stranger, &all), "192.0.2.7", "no proxy");
            assert_eq!(of(header, proxy, &[]), "10.0.0.1");
        }
        let chain =
            ["1.1.1.1, 203.0.113.9 , 10.0.0.2", "1.1.1.1, unknown, 10.0.0.2", "1.1.1.1, \u{e9}, 203.0.113.9:80"];
        for (line, client) in chain.into_iter().zip(["203.0.113.9", "10.0.0.2", "203.0.113.9"]) {
            assert_eq!(of(ProxyHeader::XForwardedFor, proxy, &[("x-forwarded-for", line)]), client, "{line}");
        }
        let lines = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(
            of(ProxyHeader::XForwardedFor, proxy, &lines),
            "203.0.113.9",
            "a line of its own, as HAProxy writes it"
        );
        let quoted = [("forwarded", "for=1.1.1.1;by=\", for=\"[2001:db8::1]:80\";proto=https")];
        assert_eq!(of(ProxyHeader::Forwarded, proxy, &quoted), "2001:db8::1");
    }

    #[test]
    fn wrong_keys_wait_by_their_address() {
        let gate = gate(|settings| settings.auth.failures_per_minute = 2);
        let [ann, bob]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        for _ in 0..2 {
            assert!(gate.wrong_key(ann).is_ok());
        }
        assert!(matches!(gate.wrong_key(ann), Err(Error::TooFast { .. })));
        assert!(gate.wrong_key(bob).is_ok());
    }
}
