//! Ports of Wyoming clients, and the program behind each.

use super::program::WyomingProgram;
use crate::Error;
use settings::{Settings, WYOMING_PORT};
use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpListener;

pub struct WyomingPort {
    pub listener: TcpListener,
    pub program: WyomingProgram,
}

/// A port that the user wrote must be free; the usual one is used where it may be.
pub async fn listen(settings: &Settings) -> Result<Vec<WyomingPort>, Error> {
    let (host, wyoming) = (settings.wyoming_host(), &settings.wyoming);
    let mut ports = Vec::new();
    let own = |listener| {
        let (name, door) = (wyoming.name.clone(), "wyoming".to_owned());
        WyomingPort { listener, program: WyomingProgram { name, model: String::new(), door } }
    };
    match wyoming.port {
        Some(0) => {}
        Some(port) => ports.push(own(bind(host, port, "wyoming.port").await?)),
        None if settings.wyoming_needs_leave() => {
            tracing::info!(
                "the Wyoming protocol is off, because it has no keys and this service demands them: see wyoming.without_key"
            );
        }
        None => match bind(host, WYOMING_PORT, "wyoming.port").await {
            Ok(listener) => ports.push(own(listener)),
            Err(error) => tracing::warn!(%error, "Home Assistant's Wyoming integration finds another program there"),
        },
    }
    for persona in settings.personas.values().filter(|persona| persona.wyoming_port > 0) {
        let key = format!("personas.{}.wyoming_port", persona.name);
        let listener = bind(host, persona.wyoming_port, &key).await?;
        let (name, door) = (persona.name.clone(), format!("wyoming persona {}", persona.name));
        ports.push(WyomingPort { listener, program: WyomingProgram { model: name.clone(), name, door } });
    }
    Ok(ports)
}

async fn bind(host: IpAddr, port: u16, key: &str) -> Result<TcpListener, Error> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.map_err(|source| Error::NoWyomingPort { address, source, key: key.to_owned() })
}
