//! The connections of a session.

use super::input::ConnId;
use crate::realtime::EventKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    pub conn: ConnId,
    pub extensions: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Clients {
    list: Vec<Client>,
}

impl Clients {
    pub fn add(&mut self, conn: ConnId, extensions: bool) {
        self.remove(conn);
        self.list.push(Client { conn, extensions });
    }

    pub fn remove(&mut self, conn: ConnId) -> bool {
        let before = self.list.len();
        self.list.retain(|client| client.conn != conn);
        self.list.len() < before
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn has(&self, conn: ConnId) -> bool {
        self.list.iter().any(|client| client.conn == conn)
    }

    pub fn has_extensions(&self, conn: ConnId) -> bool {
        self.list.iter().any(|client| client.conn == conn && client.extensions)
    }

    pub fn set_extensions(&mut self, conn: ConnId, extensions: bool) {
        for client in self.list.iter_mut().filter(|client| client.conn == conn) {
            client.extensions = extensions;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Client> + '_ {
        self.list.iter().copied()
    }

    /// Who may hear the event.
    pub fn audience(&self, kind: &EventKind) -> Vec<ConnId> {
        let extension = kind.is_extension();
        self.list.iter().filter(|client| client.extensions || !extension).map(|client| client.conn).collect()
    }
}
