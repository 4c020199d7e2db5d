//! The heaviest inputs that the limits allow, at every route and with every event, four at a time, while another user talks. The
//! routes come from the service's `/openapi.json` and the events from its schema, so that a new one is attacked, too.

mod args;
mod attack;
mod house;
mod inputs;
mod routes;
mod talk;

pub use args::{Args, MOST_MS, prove};
pub use house::Sizes;
pub use inputs::{HeavyField, InputLimits, heavy_fields};
