//! A row of the table of routes.

use crate::App;
use axum::response::Response;
use axum::routing::MethodRouter;
use serde_json::Value;
use store::KeyScope;

pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// Scope that a key needs; `None` needs no key.
    pub scope: Option<KeyScope>,
    pub handler: MethodRouter<App>,
    /// Schema of the query, then of the body.
    pub query: Option<fn() -> Value>,
    pub body: Option<fn() -> Value>,
    pub success: Success,
    pub errors: ErrorForm,
}

/// Form in which the clients of a route read errors.
#[derive(Clone, Copy)]
pub struct ErrorForm {
    /// Name of its schema in the document.
    pub schema: &'static str,
    /// Writes an error anew that `ApiError` wrote.
    pub render: fn(Response) -> Response,
}

pub const OPENAI_ERRORS: ErrorForm = ErrorForm { schema: "Error", render: std::convert::identity };

/// Body of a successful answer, with its media types.
pub enum Success {
    Object,
    List,
    Of(fn() -> Value),
    /// Text or bytes of one of these media types.
    In(&'static [&'static str]),
    /// An object, or a text of this media type where the client asks for one.
    ObjectOr(&'static str),
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
