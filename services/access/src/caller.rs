use std::net::IpAddr;
use store::Identity;

/// Client of a request, as the handlers of protected routes find it.
#[derive(Clone, Debug)]
pub struct Caller {
    pub identity: Identity,
    /// Name under which limits count.
    pub account: String,
    /// Id of the client secret that the client presented, if it is one.
    pub secret: Option<String>,
    pub address: IpAddr,
    /// Part of the URL before the route's path: a rule of `[remember]` names it.
    pub path: Option<String>,
}
