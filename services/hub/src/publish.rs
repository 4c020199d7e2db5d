//! Publishing: files become one commit of a repository on the hub. Large ones go to the hub's store of objects first, which knows them
//! by their hash: what it has is not sent again, so a broken run resumes by being started again.

mod commit;
mod objects;
mod source;

use crate::client::{FailedTry, HubClient, Tries};
use crate::error::Error;
use crate::listing::{Listed, Listing};
use crate::name::Name;
use serde_json::{Value, json};
use source::LocalFile;
pub use source::{Content, Upload, sha256_of};

#[derive(Clone, Debug)]
pub struct Publication {
    pub name: Name,
    pub is_private: bool,
    /// True to put files in the place of others that the repository has under these names.
    pub replaces: bool,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub commit: String,
    pub files: Vec<PublishedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
    pub how: Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The repository had the same file.
    Same,
    /// The hub had the bytes, from a run that broke off or from another repository.
    There,
    New,
}

/// Receives a file's path, and how many of its bytes are sent.
pub type SendProgress<'p> = &'p mut (dyn FnMut(&str, u64) + Send);

impl HubClient {
    /// Publishes files as one commit. Nothing is changed on the hub if one of them is refused.
    pub async fn publish(
        &self,
        publication: &Publication,
        uploads: Vec<Upload>,
        progress: SendProgress<'_>,
    ) -> Result<Published, Error> {
        let Publication { name, .. } = publication;
        self.require_token()?;
        let mut files = Vec::new();
        for upload in uploads {
            files.push(LocalFile::read(upload).await?);
        }
        self.create(publication).await?;
        let listing = self.list(name).await?;
        self.mark_known(&mut files, &listing, publication).await?;
        if files.iter().any(|file| file.how != Sent::Same) {
            self.ask_how(name, &mut files).await?;
            self.send_objects(name, &mut files, progress).await?;
        }
        let commit = match files.iter().any(|file| file.how != Sent::Same) {
            true => self.commit(publication, &listing.commit, &files).await?,
            false => listing.commit,
        };
        let told = files.into_iter().map(|LocalFile { path, bytes, sha256, how, .. }| PublishedFile {
            path,
            bytes,
            sha256,
            how,
        });
        Ok(Published { commit, files: told.collect() })
    }

    fn require_token(&self) -> Result<(), Error> {
        match self.options().token {
            Some(_) => Ok(()),
            None => Err(Error::NoToken { hub: self.url().to_owned(), token: self.options().token_env.clone() }),
        }
    }

    async fn create(&self, publication: &Publication) -> Result<(), Error> {
        let (owner, name) = publication.name.repo.split_once('/').unwrap_or_default();
        let wanted = json!({ "type": "model", "organization": owner, "name": name, "private": publication.is_private });
        let url = format!("{}/api/repos/create", self.url());
        let mut tries = Tries::new(self.options());
        loop {
            let failure = match self.post(&url, &publication.name, &wanted).await {
                Ok(_) | Err(FailedTry::Final(Error::Refused { status: 409, .. })) => return Ok(()),
                Err(FailedTry::Final(Error::Refused { status: 403, .. } | Error::NoRepo { .. })) => {
                    return Err(self.not_allowed(&publication.name));
                }
                Err(failure) => failure,
            };
            tries.wait(&publication.name.repo, failure).await?;
        }
    }

    fn not_allowed(&self, name: &Name) -> Error {
        let (repo, token) = (name.repo.clone(), self.options().token_env.clone());
        Error::NotAllowed { repo, hub: self.url().to_owned(), token }
    }

    /// Marks files that the repository has. Others under the same names are an error, unless they are to be replaced.
    async fn mark_known(
        &self,
        files: &mut [LocalFile],
        listing: &Listing,
        publication: &Publication,
    ) -> Result<(), Error> {
        let mut others = Vec::new();
        for file in files {
            let Some(listed) = listing.files.iter().find(|listed| listed.path == file.path) else { continue };
            match self.is_same(&publication.name, &listing.commit, listed, file).await? {
                true => file.how = Sent::Same,
                false => others.push(file.path.clone()),
            }
        }
        match others.is_empty() || publication.replaces {
            true => Ok(()),
            false => Err(Error::WouldReplace { repo: publication.name.repo.clone(), files: others.join(", ") }),
        }
    }

    /// Tells whether the repository's file at a commit is the one that is here.
    async fn is_same(&self, name: &Name, commit: &str, listed: &Listed, file: &LocalFile) -> Result<bool, Error> {
        match &listed.sha256 {
            Some(sha256) => Ok(*sha256 == file.sha256),
            None if listed.bytes != file.bytes => Ok(false),
            None => Ok(self.small_file(name, commit, &file.path).await? == file.sha256),
        }
    }

    async fn ask_how(&self, name: &Name, files: &mut [LocalFile]) -> Result<(), Error> {
        let revision = name.revision.as_deref().unwrap_or("main");
        let url = format!("{}/api/models/{}/preupload/{revision}", self.url(), name.repo);
        let asked: Vec<Value> = files.iter().filter(|file| file.how != Sent::Same).map(LocalFile::sample).collect();
        let answer = self.again_and_again(&url, name, &json!({ "files": asked })).await?;
        let told = answer["files"].as_array().ok_or_else(|| self.no_hub("it does not say how files are sent"))?;
        for file in files.iter_mut().filter(|file| file.how != Sent::Same) {
            let mode = told.iter().find(|told| told["path"] == *file.path).map(|told| &told["uploadMode"]);
            file.is_object = match mode.and_then(Value::as_str) {
                Some("lfs") => true,
                Some("regular") if file.bytes <= LARGEST_TEXT => false,
                _ => return Err(self.no_hub(&format!("it does not say how {} is sent", file.path))),
            };
        }
        Ok(())
    }
}

const LARGEST_TEXT: u64 = 10 << 20;
