//! The connections of a session.

use super::happening::ConnId;

#[derive(Clone, Debug, Default)]
pub struct Clients {
    connections: Vec<ConnId>,
}

impl Clients {
    pub fn add(&mut self, conn: ConnId) {
        self.remove(conn);
        self.connections.push(conn);
    }

    pub fn remove(&mut self, conn: ConnId) -> bool {
        let before = self.connections.len();
        self.connections.retain(|other| *other != conn);
        self.connections.len() < before
    }

    pub fn clear(&mut self) {
        self.connections.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub fn has(&self, conn: ConnId) -> bool {
        self.connections.contains(&conn)
    }

    pub fn all(&self) -> Vec<ConnId> {
        self.connections.clone()
    }
}
