//! What a repository has, at one commit.

use serde::Deserialize;

/// At one commit: a repository that changes meanwhile does not mix two models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub commit: String,
    pub files: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// In the repository, parts separated by `/`.
    pub path: String,
    pub bytes: u64,
    /// Of large files; small ones are not hashed so.
    pub sha256: Option<String>,
}

/// As the hub answers.
#[derive(Deserialize)]
pub(crate) struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl From<Answer> for Listing {
    fn from(answer: Answer) -> Listing {
        let listed = |Sibling { rfilename, size, lfs }| Listed {
            path: rfilename,
            bytes: lfs.as_ref().map(|lfs| lfs.size).or(size).unwrap_or(0),
            sha256: lfs.map(|lfs| lfs.sha256.to_ascii_lowercase()),
        };
        Listing { commit: answer.sha, files: answer.siblings.into_iter().map(listed).collect() }
    }
}
