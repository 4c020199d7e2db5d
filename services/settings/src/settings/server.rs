//! Address of the service, and the names, pages and proxies that it trusts. A value without a meaning, or one that
//! trusts every client, is a mistake.

use std::net::IpAddr;

use ipnet::IpNet;
use strum::{IntoStaticStr, VariantArray};

use crate::reader::{SectionReader, sections};

sections! {
    pub struct ServerSettings {
        pub host: IpAddr = ip_address(),
        pub port: u16 = whole(0..=65535),
        pub public: bool = bool(),
        pub allowed_origins: Vec<String> = origins(),
        pub allowed_hosts: Vec<String> = hosts(),
        pub trusted_proxies: Vec<IpNet> = proxies(),
        pub proxy_header: ProxyHeader = choice(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum ProxyHeader {
    XForwardedFor,
    XRealIp,
    Forwarded,
}

impl SectionReader<'_> {
    fn ip_address(&self, key: &'static str) -> IpAddr {
        let allowed = "an IP address such as \"127.0.0.1\", \"0.0.0.0\" or \"::1\"";
        self.text_as(key, IpAddr::from([127, 0, 0, 1]), allowed, |text| match text {
            "localhost" => Err(Some("did you mean \"127.0.0.1\"".to_string())),
            text => text.parse().map_err(|_| None),
        })
    }

    fn origins(&self, key: &'static str) -> Vec<String> {
        let allowed = "a list of origins such as [\"https://home.example\"], each a scheme, a name and, if it is not the usual one, \
                       a port; no \"*\", and not \"null\", which is the origin of any page in a file or a sandbox";
        self.list_of(key, allowed, |text| if is_origin(text) { Ok(text.to_string()) } else { Err(None) })
    }

    fn hosts(&self, key: &'static str) -> Vec<String> {
        let allowed = "a list of names such as [\"home.example\", \"home.example:8080\"], each as a browser's Host header has it; \
                       no \"*\"";
        self.list_of(key, allowed, |text| if is_host(text) { Ok(text.to_string()) } else { Err(None) })
    }

    fn proxies(&self, key: &'static str) -> Vec<IpNet> {
        let allowed = "a list of addresses and networks such as [\"127.0.0.1\", \"10.0.0.0/8\"], none larger than \"10.0.0.0/8\" or \
                       \"fc00::/7\": the header of a stranger would be believed";
        self.list_of(key, allowed, |text| {
            let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| None)?;
            if network.prefix_len() < LEAST_PREFIX[usize::from(network.addr().is_ipv6())] {
                Err(None)
            } else {
                Ok(network)
            }
        })
    }
}

/// Prefixes of the largest private networks, of IPv4 and of IPv6.
const LEAST_PREFIX: [u8; 2] = [8, 7];

fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.trim_end_matches('/').split_once("://") else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme && is_host(host)
}

/// True for `home.example`, `home.example:8080`, `[::1]:8080`, `::1`.
fn is_host(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']');
    text.chars().any(|c| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
}
