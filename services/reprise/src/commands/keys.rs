//! `reprise keys`: the clients that the service lets in.

use anyhow::{Context, Result, anyhow};
use runtime::wall_ms;
use serde_json::json;
use settings::Settings;
use store::{KeyScope, Store};
use terminal::flags::wrong_use;
use terminal::output::{clean, print_json, print_rows};
use terminal::store::with_store;
use terminal::{note, say};

/// Creates, lists and revokes the keys of clients
#[derive(Debug, clap::Subcommand)]
pub enum KeysAction {
    /// Creates a key and shows it, this once
    Create {
        /// User whose conversations the key opens; created if unknown
        #[arg(long)]
        user: String,
        /// Purpose of the key, to recognise it in the list
        #[arg(long, default_value = "")]
        name: String,
        #[arg(
            help = "Rights of the key: talk, sessions (to list, read, export, search and delete), admin (what looks across users)"
        )]
        #[arg(long = "scope", value_name = "SCOPE", value_parser = scope, default_values = ["talk", "sessions"])]
        scopes: Vec<KeyScope>,
        #[arg(help = "Prints one JSON object for programs")]
        #[arg(long)]
        json: bool,
    },
    /// Lists the keys, without their secrets
    List {
        #[arg(help = "Only this user's")]
        #[arg(long)]
        user: Option<String>,
        #[arg(help = "Prints a JSON array for programs")]
        #[arg(long)]
        json: bool,
    },
    /// Revokes a key, and every short-lived secret made with it
    Revoke {
        /// Id from the list, or the whole key
        key: String,
        #[arg(help = "Prints one JSON object for programs")]
        #[arg(long)]
        json: bool,
    },
}

pub fn run(action: KeysAction, settings: &Settings) -> Result<()> {
    // The first key comes before the first start: a service that is open to the network wants one.
    let create = matches!(action, KeysAction::Create { .. });
    with_store(settings, create, async |store| match action {
        KeysAction::Create { user, name, scopes, json } => make(store, user, name, scopes, json).await,
        KeysAction::List { user, json } => list(store, user.as_deref(), json).await,
        KeysAction::Revoke { key, json } => revoke(store, &key, json).await,
    })
}

async fn make(store: &Store, user: String, name: String, scopes: Vec<KeyScope>, json: bool) -> Result<()> {
    if user.trim().is_empty() {
        return Err(wrong_use(anyhow!("--user must not be empty")));
    }
    if !store.users().await?.iter().any(|known| known.id == user) {
        store.put_user(&user, &user, wall_ms()).await?;
    }
    let (key, shown) = store.create_key(&user, &name, &scopes, wall_ms()).await?;
    if json {
        let mut value = serde_json::to_value(&key)?;
        value.as_object_mut().context("a key is an object")?.insert("key".into(), shown.into());
        return print_json(&value);
    }
    say!("{shown}")?;
    note!("keep it: only a hash of it is stored, and it is not shown again");
    Ok(())
}

async fn list(store: &Store, user: Option<&str>, json: bool) -> Result<()> {
    let keys = store.keys(user).await?;
    if json {
        return print_json(&keys);
    }
    let columns = [
        ("key", "id"),
        ("user", "user"),
        ("may", "scopes"),
        ("made (UTC)", "created_at_ms"),
        ("last used", "last_used_at_ms"),
        ("revoked", "revoked_at_ms"),
        ("name", "name"),
    ];
    print_rows(&keys, &columns)
}

async fn revoke(store: &Store, key: &str, json: bool) -> Result<()> {
    // People paste what they have: of a whole key, the middle part is the id.
    let id = match key.split('_').collect::<Vec<_>>().as_slice() {
        ["rk", id, _] => id,
        _ => key,
    };
    store.revoke_key(id, wall_ms()).await?;
    if json {
        return print_json(&json!({ "id": id, "revoked": true }));
    }
    say!("{} is revoked", clean(id))?;
    Ok(())
}

fn scope(word: &str) -> Result<KeyScope, store::Error> {
    word.parse().map_err(|_| store::Error::UnknownScope { scope: word.to_owned() })
}
