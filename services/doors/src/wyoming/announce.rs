//! Tells the local network of the ports (mDNS), so that Home Assistant offers them by itself.

use mdns_sd::{DaemonEvent, Error, ServiceDaemon, ServiceInfo};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Service that Home Assistant looks for.
const SERVICE: &str = "_wyoming._tcp.local.";
/// Time that the goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// The network hears of the programs until `end`.
pub struct Announcement {
    daemon: ServiceDaemon,
    full_names: Vec<String>,
}

impl Announcement {
    /// `programs`: names and where they are. Nothing outside reaches a loopback address, so that is not told.
    pub fn begin(daemon: ServiceDaemon, programs: &[(&str, SocketAddr)]) -> Result<Announcement, Error> {
        let errors = daemon.monitor()?;
        // Trouble of the network is found later, by the library's thread, with which this one ends.
        std::thread::spawn(move || {
            while let Ok(event) = errors.recv() {
                if let DaemonEvent::Error(error) = event {
                    tracing::warn!(%error, "the local network may not hear of the Wyoming port");
                }
            }
        });
        let mut full_names = Vec::new();
        for (name, address) in programs {
            if address.ip().is_loopback() {
                tracing::warn!(name, %address, "wyoming.mdns announces nothing: only this machine reaches that address");
                continue;
            }
            let service = service(name, *address)?;
            full_names.push(service.get_fullname().to_owned());
            daemon.register(service)?;
        }
        Ok(Announcement { daemon, full_names })
    }

    /// Takes it back, so that the network forgets the programs at once.
    pub async fn end(self) {
        let Announcement { daemon, full_names } = self;
        let ended = tokio::task::spawn_blocking(move || {
            let mut last = Vec::new();
            for name in &full_names {
                last.extend(daemon.unregister(name));
            }
            last.iter().for_each(|done| drop(done.recv_timeout(GOODBYE)));
            daemon.shutdown().map(|done| drop(done.recv_timeout(GOODBYE)))
        });
        if let Ok(Err(error)) = ended.await {
            tracing::debug!(%error, "the local network was not told that the Wyoming port is closed");
        }
    }
}

/// Home Assistant knows it again by its name, which therefore is the program's and nothing else.
fn service(name: &str, address: SocketAddr) -> Result<ServiceInfo, Error> {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let host: String = name.chars().map(letter).collect();
    let host = format!("{host}.reprise.local.");
    let (ip, port) = (address.ip(), address.port());
    let everywhere = ip.is_unspecified();
    let addresses: &[IpAddr] = if everywhere { &[] } else { &[ip] };
    let service = ServiceInfo::new(SERVICE, name, &host, addresses, port, None)?;
    Ok(if everywhere { service.enable_addr_auto() } else { service })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_told_the_name_the_port_and_the_address() {
        let told = service("Kitchen butler", "192.0.2.7:10500".parse().unwrap()).unwrap();
        assert_eq!(told.get_fullname(), "Kitchen butler._wyoming._tcp.local.");
        assert_eq!((told.get_hostname(), told.get_port()), ("kitchen-butler.reprise.local.", 10_500));
        assert_eq!(told.get_addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.7"]);
        assert!(!told.is_addr_auto() && told.get_properties().is_empty());
        // On all addresses, those that the machine has.
        let told = service("reprise", "0.0.0.0:10500".parse().unwrap()).unwrap();
        assert!(told.is_addr_auto() && told.get_addresses().is_empty());
    }

    /// Returns whether a datagram to a group comes back to this machine. Without that, no program here finds a service.
    fn groups_work() -> bool {
        use std::net::{Ipv4Addr, UdpSocket};
        let tried = || -> std::io::Result<()> {
            let group = Ipv4Addr::new(224, 0, 0, 251);
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
            socket.set_read_timeout(Some(Duration::from_secs(2)))?;
            socket.send_to(b"here", (group, socket.local_addr()?.port()))?;
            socket.recv(&mut [0; 8]).map(drop)
        };
        tried().inspect_err(|error| println!("skipped: this machine's network knows no groups: {error}")).is_ok()
    }

    /// Looks for the service as Home Assistant does, until the service stops.
    #[tokio::test(flavor = "multi_thread")]
    async fn another_program_finds_it_and_forgets_it() {
        use mdns_sd::ServiceEvent;
        if !groups_work() {
            return;
        }
        let name = format!("test {}", std::process::id());
        let looking = ServiceDaemon::new().unwrap();
        let found = looking.browse(SERVICE).unwrap();
        let everywhere = [(name.as_str(), "0.0.0.0:10599".parse().unwrap())];
        let announcement = Announcement::begin(ServiceDaemon::new().unwrap(), &everywhere).unwrap();
        let full = format!("{name}.{SERVICE}");
        let until = |is_it: &dyn Fn(&ServiceEvent) -> bool| loop {
            let event = found.recv_timeout(Duration::from_secs(60)).expect("the network tells");
            if is_it(&event) {
                return event;
            }
        };
        let told = until(&|event| matches!(event, ServiceEvent::ServiceResolved(info) if info.get_fullname() == full));
        let ServiceEvent::ServiceResolved(info) = told else { panic!("{told:?}") };
        assert_eq!((info.get_port(), info.get_properties().len()), (10_599, 0));
        assert!(!info.get_addresses().is_empty());
        announcement.end().await;
        until(&|event| matches!(event, ServiceEvent::ServiceRemoved(_, removed) if *removed == full));
        let _ = looking.shutdown();
    }
}
