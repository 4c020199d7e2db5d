//! The commit: lines of JSON, with small files in them and large ones by their hash.

use super::source::LocalFile;
use super::{Publication, Sent};
use crate::client::{FailedTry, HubClient, Tries};
use crate::error::Error;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

impl HubClient {
    pub(super) async fn commit(
        &self,
        publication: &Publication,
        parent: &str,
        files: &[LocalFile],
    ) -> Result<String, Error> {
        let name = &publication.name;
        let revision = name.revision.as_deref().unwrap_or("main");
        let url = format!("{}/api/models/{}/commit/{revision}", self.url(), name.repo);
        let lines = lines(publication, parent, files)?;
        let mut tries = Tries::new(self.options());
        loop {
            let request = self.client().post(&url).header(CONTENT_TYPE, "application/x-ndjson").body(lines.clone());
            let answer = match self.send(request, name, revision).await {
                Ok(response) => self.read_json(response).await,
                Err(failure) => Err(failure),
            };
            let failure = match answer {
                Ok(answer) => {
                    let commit = answer["commitOid"].as_str().map(str::to_owned);
                    return commit.ok_or_else(|| self.no_hub("it names no commit"));
                }
                // Another commit was first, or an earlier try whose answer was lost.
                Err(FailedTry::Final(Error::Refused { status: 409 | 412, .. })) => {
                    return match self.has_all(publication, files).await? {
                        Some(commit) => Ok(commit),
                        None => Err(Error::Changed { repo: name.repo.clone() }),
                    };
                }
                Err(FailedTry::Final(Error::Refused { status: 403, .. } | Error::NoRepo { .. })) => {
                    return Err(self.not_allowed(name));
                }
                Err(failure) => failure,
            };
            tries.wait(&name.repo, failure).await?;
        }
    }

    /// Returns the newest commit, if it has all files as they are here.
    async fn has_all(&self, publication: &Publication, files: &[LocalFile]) -> Result<Option<String>, Error> {
        let listing = self.list(&publication.name).await?;
        for file in files {
            let listed = listing.files.iter().find(|listed| listed.path == file.path);
            let is_there = match listed {
                None => false,
                Some(listed) => self.is_same(&publication.name, &listing.commit, listed, file).await?,
            };
            if !is_there {
                return Ok(None);
            }
        }
        Ok(Some(listing.commit))
    }

    pub(super) async fn small_file(&self, name: &crate::Name, commit: &str, path: &str) -> Result<String, Error> {
        let mut tries = Tries::new(self.options());
        loop {
            let read = match self.get(name, commit, path, 0).await {
                Ok(response) => self.read(response).await,
                Err(failure) => Err(failure),
            };
            match read {
                Ok(bytes) => return Ok(hex::encode(Sha256::digest(&bytes))),
                Err(failure) => tries.wait(path, failure).await?,
            }
        }
    }
}

fn lines(publication: &Publication, parent: &str, files: &[LocalFile]) -> Result<String, Error> {
    let header = json!({ "summary": publication.message, "description": "", "parentCommit": parent });
    let mut lines = vec![json!({ "key": "header", "value": header })];
    for file in files.iter().filter(|file| file.how != Sent::Same) {
        lines.push(match file.is_object {
            true => json!({ "key": "lfsFile", "value": {
                "path": file.path, "algo": "sha256", "oid": file.sha256, "size": file.bytes } }),
            false => json!({ "key": "file", "value": {
                "path": file.path, "encoding": "base64", "content": file.text()? } }),
        });
    }
    Ok(lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"))
}
