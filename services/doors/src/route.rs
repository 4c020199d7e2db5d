//! A row of the table of routes.

use crate::App;
use axum::routing::MethodRouter;
use serde_json::Value;
use store::KeyScope;

pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// None: no key is needed.
    pub scope: Option<KeyScope>,
    pub handler: MethodRouter<App>,
    /// The schemas of what it reads.
    pub query: Option<fn() -> Value>,
    pub body: Option<fn() -> Value>,
    pub success: Success,
}

/// What a success is.
pub enum Success {
    Object,
    List,
    Of(fn() -> Value),
    /// JSON Lines.
    Lines,
    /// Lines as Ollama has them, or one object.
    OllamaLines,
    /// Events, or one object.
    Events,
    Text,
    Websocket,
}

impl Route {
    pub fn query(self, schema: fn() -> Value) -> Route {
        Route { query: Some(schema), ..self }
    }

    pub fn body(self, schema: fn() -> Value) -> Route {
        Route { body: Some(schema), ..self }
    }
}
