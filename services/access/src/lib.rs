//! The way in: which names and pages may address this server, which user a key is, and how much each may ask.
//!
//! A door hands over what came with a connection or a request, and gets a place, a [`Caller`] or an [`Error`] that says
//! what to do. Places give themselves back when they are dropped.
//!
//! ```
//! use access::{Gate, Policy};
//! use settings::{Settings, Sources};
//! use std::sync::Arc;
//!
//! let mut settings = Settings::load(&Sources::default()).unwrap().settings;
//! settings.limits.connections_per_address = 1;
//! let gate = Arc::new(Gate::new(&settings));
//!
//! let phone = "192.168.0.7".parse().unwrap();
//! let place = gate.connect(phone).unwrap();
//! let refused = gate.connect(phone).err().unwrap().to_string();
//! assert_eq!(refused, "your address has 1 connections already (limits.connections_per_address)");
//! drop(place);
//! assert!(gate.connect(phone).is_ok());
//!
//! // Others in the network need a key.
//! settings.server.host = "0.0.0.0".parse().unwrap();
//! assert!(Policy::new(&settings).keys_required);
//! ```
//!
//! The crate knows no protocol, frame or socket.

mod caller;
mod error;
mod gate;
mod keys;
mod policy;
mod revoked;

pub use caller::Caller;
pub use error::Error;
pub use gate::{Allowance, BodyPlace, ConnectionPlace, Gate, Refused};
pub use keys::{Access, LOCAL_USER};
pub use policy::{Policy, check_access};
pub use revoked::RevokedKeys;
