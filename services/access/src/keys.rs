use crate::{Caller, Error, Gate, Policy, RevokedKeys};
use settings::Settings;
use std::net::IpAddr;
use std::sync::Arc;
use store::{Identity, KeyScope, Store};

/// User of all clients if no keys are demanded.
pub const LOCAL_USER: &str = "local";

#[derive(Clone)]
pub struct Access {
    pub gate: Arc<Gate>,
    pub policy: Arc<Policy>,
    pub revoked: RevokedKeys,
    store: Store,
}

impl Access {
    pub fn new(settings: &Settings, policy: Policy, store: Store) -> Access {
        let (gate, policy) = (Arc::new(Gate::new(settings)), Arc::new(policy));
        Access { gate, policy, revoked: RevokedKeys::default(), store }
    }

    pub async fn caller(
        &self,
        key: Option<&str>,
        address: IpAddr,
        scope: KeyScope,
        now_ms: i64,
    ) -> Result<Caller, Error> {
        let known = match key {
            // A right key is let in, whatever was guessed from its address before.
            Some(key) => self.store.identify(key, now_ms).await?,
            None => None,
        };
        let identity = match (known, key) {
            (Some(identity), _) => identity,
            // Stock clients insist on having some key.
            (None, _) if !self.policy.keys_required => local(),
            (None, Some(_)) => {
                self.gate.wrong_key(address)?;
                return Err(Error::WrongKey);
            }
            (None, None) => return Err(Error::NoKey),
        };
        if !identity.may(scope) {
            return Err(Error::Scope { scope });
        }
        let account = identity.key.clone().unwrap_or_else(|| format!("user {}", identity.user));
        if identity.key.is_some() {
            self.gate.request_has_key(address);
        }
        self.gate.request_of_key(&account)?;
        let secret = identity.session.is_some().then(|| key.and_then(|key| key.split('_').nth(1)).unwrap_or_default());
        let secret = secret.map(str::to_owned);
        Ok(Caller { identity, account, secret, address, path: None })
    }
}

fn local() -> Identity {
    Identity {
        user: LOCAL_USER.to_owned(),
        key: None,
        key_name: None,
        scopes: vec![KeyScope::Talk, KeyScope::Sessions, KeyScope::Admin],
        session: None,
    }
}
