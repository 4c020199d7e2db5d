//! Names and pages that may address this server, and the demand for keys.
//!
//! A page that a browser in the house opens can talk to any address in the house. Two checks keep foreign pages out: the
//! `Origin` that the browser states must be known, and the `Host` must be this server's name, because a foreign name that
//! resolves to this address (DNS rebinding) makes a foreign page look like the server's own.

use crate::Error;
use http::{HeaderMap, header};
use settings::{KeysRequired, Settings};
use std::net::IpAddr;
use store::Store;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub keys_required: bool,
    allowed_origins: Vec<String>,
    allowed_hosts: Vec<String>,
}

pub async fn check_access(settings: &Settings, store: &Store) -> Result<Policy, Error> {
    let policy = Policy::new(settings);
    if policy.keys_required {
        let keys = store.keys(None).await?;
        if !keys.iter().any(|key| key.revoked_at_ms.is_none()) {
            let server = &settings.server;
            let why = if !server.host.is_loopback() {
                format!("others in the network can reach {} (server.host)", server.host)
            } else if server.public {
                "server.public says that others can reach this server".to_owned()
            } else {
                "auth.required demands keys".to_owned()
            };
            return Err(Error::NoKeyYet { why });
        }
    }
    Ok(policy)
}

impl Policy {
    pub fn new(settings: &Settings) -> Policy {
        let server = &settings.server;
        let open = !server.host.is_loopback() || server.public;
        Policy {
            keys_required: open || settings.auth.required == KeysRequired::Always,
            allowed_origins: server.allowed_origins.iter().map(|origin| plain(origin)).collect(),
            allowed_hosts: server.allowed_hosts.iter().map(|host| plain(host)).collect(),
        }
    }

    pub fn check<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, Error> {
        let host = headers.get(header::HOST).ok_or(Error::NoHost)?;
        let host = host.to_str().map_err(|_| Error::ForeignHost)?;
        if !self.is_own(host) {
            return Err(Error::ForeignHost);
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(None) };
        let origin = origin.to_str().map_err(|_| Error::ForeignOrigin)?;
        let known = self.allowed_origins.contains(&plain(origin)) || is_page_of(origin, host);
        if known && origins.next().is_none() { Ok(Some(origin)) } else { Err(Error::ForeignOrigin) }
    }

    /// Tells whether a host is this server. Rebinding needs a name, so every address is this server's.
    fn is_own(&self, host: &str) -> bool {
        let name = plain(without_port(host));
        name == "localhost"
            || name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
            || self.allowed_hosts.iter().any(|allowed| *allowed == name || *allowed == plain(host))
    }
}

fn is_page_of(origin: &str, host: &str) -> bool {
    let origin = plain(origin);
    let own = |scheme: &str, port: &str| {
        origin.strip_prefix(scheme).is_some_and(|rest| {
            let host = plain(host);
            rest == host || format!("{rest}{port}") == host || format!("{host}{port}") == rest
        })
    };
    own("http://", ":80") || own("https://", ":443")
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => {
            if name.contains(':') && !name.starts_with('[') { host } else { name }
        }
        _ => host,
    }
}

fn plain(text: &str) -> String {
    text.trim().trim_end_matches('/').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Sources;

    fn policy() -> Policy {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        settings.server.allowed_hosts = vec!["Talk.home".into()];
        settings.server.allowed_origins = vec!["https://panel.home/".into()];
        Policy::new(&settings)
    }

    fn check(host: Option<&str>, origin: Option<&str>) -> Result<bool, String> {
        let mut headers = HeaderMap::new();
        host.map(|host| headers.insert(header::HOST, host.parse().unwrap()));
        origin.map(|origin| headers.insert(header::ORIGIN, origin.parse().unwrap()));
        policy().check(&headers).map(|origin| origin.is_some()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_of_this_server() {
        for host in
            ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "192.168.1.5:80", "talk.home:8080"]
        {
            assert_eq!(check(Some(host), None), Ok(false), "{host}");
        }
        for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert_eq!(check(Some(host), None), Err(Error::ForeignHost.to_string()), "{host}");
        }
        assert_eq!(check(None, None), Err(Error::NoHost.to_string()));
    }

    #[test]
    fn pages_that_may_connect() {
        let host = Some("localhost:8080");
        for origin in ["https://panel.home", "http://localhost:8080", "https://localhost:8080"] {
            assert_eq!(check(host, Some(origin)), Ok(true), "{origin}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "http://panel.home",
            "https://panel.home.evil.example",
            "http://localhost:8081",
            "http://localhost",
            "http://127.0.0.1:8080",
        ] {
            assert_eq!(check(host, Some(origin)), Err(Error::ForeignOrigin.to_string()), "{origin}");
        }
        assert_eq!(check(Some("talk.home"), Some("http://talk.home")), Ok(true));
        assert_eq!(check(Some("talk.home:80"), Some("http://talk.home")), Ok(true));
        // The page of a rebound name is refused for its host.
        assert_eq!(
            check(Some("evil.example:8080"), Some("http://evil.example:8080")),
            Err(Error::ForeignHost.to_string())
        );
    }

    #[test]
    fn an_open_address_demands_keys() {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        assert!(!Policy::new(&settings).keys_required);
        settings.server.public = true;
        assert!(Policy::new(&settings).keys_required);
        settings.server.public = false;
        settings.server.host = "0.0.0.0".parse().unwrap();
        assert!(Policy::new(&settings).keys_required);
        settings.server.host = "::1".parse().unwrap();
        assert!(!Policy::new(&settings).keys_required);
        settings.auth.required = KeysRequired::Always;
        assert!(Policy::new(&settings).keys_required);
    }
}
