//! Errors of fetching and publishing.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{url}: {why}")]
    Address { url: String, why: String },
    #[error("{what}: {why}; what is there is kept, try again")]
    Unreachable { what: String, why: String },
    #[error("{what}: the hub answered {status}{why}")]
    Refused { what: String, status: u16, why: String },
    #[error(
        "{repo} is not on {hub}, or only for some: look for its name there, and set a token ({token}) if it is private"
    )]
    NoRepo { repo: String, hub: String, token: String },
    #[error("{hub} does not take the token that is in {token}: renew it, or unset it for what is public")]
    Token { hub: String, token: String },
    #[error(
        "{url} does not answer as a hub of models does ({why}): is it the right address, and is nobody in between?"
    )]
    NoHub { url: String, why: String },
    #[error("{repo} asks for consent: accept its terms at {hub}/{repo}, and set a token of yours ({token})")]
    Gated { repo: String, hub: String, token: String },
    #[error("{repo} has no revision {revision}")]
    NoRevision { repo: String, revision: String },
    #[error("{repo} has no file {file}; it has {files}")]
    NoFile { repo: String, file: String, files: String },
    #[error("{repo} has several models, name one of them as {repo}/FILE: {files}")]
    Several { repo: String, files: String },
    #[error("{repo} has no GGUF file, and no config.json with safetensors: there is nothing in it to talk with")]
    NoModel { repo: String },
    #[error("the hub lists a file {file:?} for {repo}: such a name is not written to a disk")]
    HostileName { repo: String, file: String },
    #[error("{}: {source}", path.display())]
    Disk { path: PathBuf, source: std::io::Error },
    #[error("{} has room for {free_mib} MiB, and {needed_mib} MiB are still to come: make room, or name another folder", folder.display())]
    DiskRoom { folder: PathBuf, free_mib: u64, needed_mib: u64 },
    #[error("{} is there, and is not the file that the hub has: move or remove it to fetch that one", path.display())]
    Another { path: PathBuf },
    #[error("{} leads out of the folder of models: files of a hub are written only below it", path.display())]
    Outside { path: PathBuf },
    #[error("{} is being fetched by another program", path.display())]
    Busy { path: PathBuf },
    #[error(
        "{file} came with {found} where the hub tells {expected}: the connection or the hub damages it, try another network"
    )]
    Damaged { file: String, found: String, expected: String },
    #[error("{hub} publishes only for people that it knows: set a token that may write ({token})")]
    NoToken { hub: String, token: String },
    #[error("the token in {token} may not write to {repo} on {hub}: take one with that right, or another owner")]
    NotAllowed { repo: String, hub: String, token: String },
    #[error("{repo} has other files of these names: {files}; publish under other names, or say --replace")]
    WouldReplace { repo: String, files: String },
    #[error("{repo} changed while this was sent: look at what is there now, and publish again (what was sent is kept)")]
    Changed { repo: String },
    #[error("{file:?} is no name for a file of a repository: use letters, digits and -_.+")]
    UploadName { file: String },
    #[error("{file} changed while it was sent: publish it again when it is complete")]
    FileChanged { file: String },
}
