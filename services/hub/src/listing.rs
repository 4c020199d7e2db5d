//! Files of a repository, at one commit.

use crate::name::is_part;
use serde::Deserialize;

/// Files at one commit: a repository that changes meanwhile does not mix two models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub commit: String,
    pub files: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub path: String,
    pub bytes: u64,
    pub sha256: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
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

impl Listing {
    /// Parses a hub's answer. It checks the commit, which becomes a part of addresses, and the hashes, which become
    /// parts of file names.
    pub fn parse(answer: &[u8]) -> Result<Listing, String> {
        let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        if !is_part(&answer.sha) {
            return Err(format!("its commit is {:?}", shortened(&answer.sha)));
        }
        let files: Result<Vec<Listed>, String> = answer.siblings.into_iter().map(listed).collect();
        let files = files?;
        if files.iter().try_fold(0_u64, |bytes, file| bytes.checked_add(file.bytes)).is_none() {
            return Err("its files are larger than any disk".to_owned());
        }
        Ok(Listing { commit: answer.sha, files })
    }
}

fn listed(Sibling { rfilename, size, lfs }: Sibling) -> Result<Listed, String> {
    let bytes = lfs.as_ref().map(|lfs| lfs.size).or(size).unwrap_or(0);
    let sha256 = lfs.map(|lfs| lfs.sha256.to_ascii_lowercase());
    if let Some(wrong) = sha256.as_ref().filter(|hash| hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return Err(format!("the SHA-256 of {:?} is {:?}", shortened(&rfilename), shortened(wrong)));
    }
    Ok(Listed { path: rfilename, bytes, sha256 })
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sha: &str, hash: &str, sizes: [u64; 2]) -> Vec<u8> {
        let [first, second] = sizes;
        let lfs = format!(r#"{{"sha256": "{hash}", "size": {first}}}"#);
        format!(
            r#"{{"sha": "{sha}", "siblings": [{{"rfilename": "x.gguf", "size": 3, "lfs": {lfs}}}, {{"rfilename": "README.md", "size": {second}}}]}}"#
        )
        .into_bytes()
    }

    #[test]
    fn a_hub_writes_no_names_of_its_own() {
        let hash = "AB".repeat(32);
        let listing = Listing::parse(&answer("c0ffee", &hash, [7, 2])).unwrap();
        assert_eq!(listing.files[0].sha256, Some(hash.to_lowercase()));
        assert_eq!((listing.files[0].bytes, listing.files[1].bytes), (7, 2));
        // The part of an incomplete file is named by its hash: this one would lie in another folder.
        for wrong in ["./../../../../etc/cron.d/x", "", "ab", &"g".repeat(64)] {
            assert!(Listing::parse(&answer("c0ffee", wrong, [7, 2])).unwrap_err().contains("SHA-256"), "{wrong}");
        }
        for wrong in ["../..", "", "a/b", "a?b"] {
            assert!(Listing::parse(&answer(wrong, &hash, [7, 2])).unwrap_err().contains("commit"), "{wrong}");
        }
        assert!(Listing::parse(&answer("c0ffee", &hash, [u64::MAX, 2])).unwrap_err().contains("any disk"));
        assert!(Listing::parse(b"<html>").is_err());
    }
}
