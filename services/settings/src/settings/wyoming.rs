//! The door of the Wyoming protocol, which knows no keys.

use std::net::IpAddr;

use crate::reader::{SectionReader, sections};

sections! {
    pub struct WyomingSettings {
        pub port: Option<u16> = whole_or_auto(0..=65535),
        pub host: Option<IpAddr> = optional_address(),
        pub without_key: bool = bool(),
        pub user: String = name(),
        pub name: String = name(),
        pub mdns: bool = bool(),
        pub intents: bool = bool(),
        pub line_bytes: usize = bytes(1024..=1 << 20),
        pub data_bytes: usize = bytes(1024..=1 << 24),
        pub payload_bytes: u64 = bytes(0..=1 << 30),
        pub idle_s: u64 = time(1..=86_400),
    }
}

/// Default port: other servers of the protocol have ports from 10200 on.
pub const WYOMING_PORT: u16 = 10500;

impl SectionReader<'_> {
    fn optional_address(&self, key: &'static str) -> Option<IpAddr> {
        let allowed = "\"\", or an IP address such as \"127.0.0.1\", \"0.0.0.0\" or \"::1\"";
        self.text_as(key, None, allowed, |text| match text {
            "" => Ok(None),
            "localhost" => Err(Some("did you mean \"127.0.0.1\"".to_string())),
            text => text.parse().map(Some).map_err(|_| None),
        })
    }

    fn name(&self, key: &'static str) -> String {
        let allowed = "a name of 1 to 63 bytes in one line";
        self.text_as(key, String::new(), allowed, |name| {
            let is_name = (1..=63).contains(&name.len()) && !name.chars().any(char::is_control);
            if is_name { Ok(name.to_string()) } else { Err(None) }
        })
    }
}
