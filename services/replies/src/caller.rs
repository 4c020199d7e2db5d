//! The caller of a request.

use std::net::IpAddr;
use store::Identity;

/// The client of a request, as the handlers of protected routes find it.
#[derive(Clone, Debug)]
pub struct Caller {
    pub identity: Identity,
    /// Under which limits are counted.
    pub account: String,
    /// The id of the client secret that was presented, where it is one.
    pub secret: Option<String>,
    pub address: IpAddr,
    /// What stands in the URL before the route's path: a rule of `[remember]` names it.
    pub path: Option<String>,
}
