//! JSON of clients to structs: where a mistake is, and which fields no struct reads.
//!
//! [`read`] fills a struct and returns a [`FieldError`] with the path of the first mistake. [`KnownFields`] names what a
//! client wrote and the struct does not have, so that nothing is dropped in silence.
//!
//! ```
//! use fields::{KnownFields, read};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Lamp {
//!     places: Vec<Place>,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Place {
//!     percent: u64,
//! }
//!
//! let body = json!({ "places": [{ "percent": 30.0 }], "colour": "red" });
//! assert_eq!(read::<Lamp>(&body).unwrap().places[0].percent, 30);
//! assert_eq!(KnownFields::of::<Lamp>().unread(&body), ["colour"]);
//!
//! let wrong = read::<Lamp>(&json!({ "places": [{ "percent": "much" }] })).err().unwrap();
//! assert_eq!(wrong.path, "places[0].percent");
//! assert!(wrong.message().ends_with("expected a whole number of at least 0, found a string"));
//! ```
//!
//! The crate knows no protocol and no field by name.

mod printable;
mod reader;
mod schema;
mod unread;

pub use printable::{printable, shown};
pub use reader::{FieldError, Read, read, unsupported, wrong};
pub use schema::{read_schema, written_schema};
pub use unread::{KnownFields, MOST_NAMES, schema_of_object};
