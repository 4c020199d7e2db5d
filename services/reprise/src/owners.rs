//! User of a command, and the question before it deletes.

use anyhow::{Result, bail};
use std::io::IsTerminal;
use store::{Error, Store};

pub async fn users(store: &Store, user: Option<&str>) -> Result<Vec<String>> {
    let all: Vec<String> = store.users().await?.into_iter().map(|user| user.id).collect();
    match user {
        None => Ok(all),
        Some(user) if all.iter().any(|known| known == user) => Ok(vec![user.to_owned()]),
        Some(user) => Err(Error::NoUser { user: user.to_owned() }.into()),
    }
}

/// Asks for confirmation; a script has to pass --yes.
pub fn confirm(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("to {what} without a question, add --yes");
    }
    eprint!("{what}? type yes: ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { bail!("nothing was deleted") }
}
