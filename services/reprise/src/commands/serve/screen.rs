//! Screen of a ready service.

use crate::commands::speech_servers::SpeechReport;
use indicatif::HumanCount;
use model::Plan;
use settings::{Preset, Settings};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use store::Statistics;

pub struct Screen<'a> {
    pub address: SocketAddr,
    pub in_network: Option<IpAddr>,
    pub wyoming: Vec<SocketAddr>,
    pub settings: &'a Settings,
    pub chosen: &'a Preset,
    pub model: &'a str,
    pub notes: &'a [String],
    pub plan: Option<&'a Plan>,
    pub loaded_in: Duration,
    pub keys_required: bool,
    pub statistics: Statistics,
    pub speech: &'a [SpeechReport],
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Screen { settings, chosen, statistics, .. } = self;
        let near = reachable(self.address);
        let seconds = self.loaded_in.as_secs_f64();
        writeln!(f, "Reprise {}\n", crate::version::short())?;
        for note in self.notes {
            writeln!(f, "  note      {note}")?;
        }
        writeln!(f, "  address   http://{}", self.address)?;
        if settings.ollama.port > 0 {
            writeln!(f, "  ollama    http://{}", SocketAddr::new(self.address.ip(), settings.ollama.port))?;
        }
        writeln!(f, "  model     {} (loaded in {seconds:.1} s)", self.model)?;
        writeln!(f, "  window    {} tokens (preset {})", HumanCount(u64::from(chosen.ctx_size)), chosen.name)?;
        let (sessions, items) = (HumanCount(statistics.sessions), HumanCount(statistics.items));
        writeln!(f, "  store     {} ({sessions} sessions, {items} items)", settings.store.path.display())?;
        let keys = if self.keys_required { "needed: `reprise keys create`" } else { "not needed on this machine" };
        writeln!(f, "  keys      {keys}")?;
        match self.speech {
            [] => writeln!(f, "  speech    none: set speech.stt and speech.tts to hear and speak")?,
            servers => {
                servers.iter().try_for_each(|SpeechReport { kind, says, .. }| writeln!(f, "  {kind:<9} {says}"))?
            }
        }
        if let Some(plan) = self.plan {
            writeln!(f, "\n  memory\n{plan}")?;
        }
        writeln!(
            f,
            "  connect   ws://{near}/v1/realtime   OpenAI Realtime clients, in {}",
            if self.speech.is_empty() { "text" } else { "text and audio" }
        )?;
        writeln!(f, "            http://{near}/v1          OpenAI chat clients (base URL)")?;
        writeln!(f, "            http://{near}/            a page to talk with, in a browser")?;
        if let Some(line) = self.for_phones() {
            writeln!(f, "            {line}")?;
        }
        for address in &self.wyoming {
            writeln!(
                f,
                "            tcp://{}   Home Assistant: Wyoming Protocol, this host and port",
                reachable(*address)
            )?;
        }
        writeln!(f, "            reprise chat --url http://{near}   from a terminal")?;
        writeln!(f)
    }
}

impl Screen<'_> {
    fn for_phones(&self) -> Option<String> {
        let far = SocketAddr::new(self.in_network?, self.address.port());
        let ip = self.address.ip();
        if ip.is_unspecified() {
            return Some(format!(
                "http://{far}/   the same page from a phone, with a key: `reprise keys create --user NAME`"
            ));
        }
        let allow = "for a phone: `reprise keys create --user NAME`, start with --host 0.0.0.0, then";
        ip.is_loopback().then(|| format!("{allow} http://{far}/"))
    }
}

/// Returns this machine's address in its network, of the interface that leads out. Nothing is sent.
pub fn address_in_network() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((DOCUMENTATION, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

const DOCUMENTATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1); // an address that no machine has

fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}
