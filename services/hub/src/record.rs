//! Record of the files that were fetched into a repository's folder: a file may be renewed only if a fetch wrote it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the record. It begins with a point, which no file of a repository may: no hub can write it.
const FILE: &str = ".fetched.json";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FetchRecord {
    repo: String,
    files: BTreeMap<String, RecordedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordedFile {
    commit: String,
    sha256: String,
}

impl FetchRecord {
    /// Reads the record of a folder. A record that is missing, damaged or of another repository allows no file to be
    /// replaced.
    pub fn read(folder: &Path, repo: &str) -> FetchRecord {
        let found =
            std::fs::read(place(folder)).ok().and_then(|text| serde_json::from_slice::<FetchRecord>(&text).ok());
        let empty = || FetchRecord { repo: repo.to_owned(), files: BTreeMap::new() };
        found.filter(|record| record.repo == repo).unwrap_or_else(empty)
    }

    pub fn sha256(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|file| file.sha256.as_str())
    }

    pub fn add(&mut self, folder: &Path, path: &str, commit: &str, sha256: String) -> io::Result<()> {
        self.files.insert(path.to_owned(), RecordedFile { commit: commit.to_owned(), sha256 });
        let text = serde_json::to_vec_pretty(self)?;
        let whole = folder.join(format!("{FILE}.{}.new", std::process::id()));
        std::fs::write(&whole, text)?;
        std::fs::rename(&whole, place(folder))
    }
}

fn place(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_repository_or_a_damaged_one_allows_nothing() {
        let folder = std::env::temp_dir().join(format!("reprise-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut record = FetchRecord::read(&folder, "a/b");
        record.add(&folder, "config.json", "c0ffee", "ab".to_owned()).unwrap();
        assert_eq!(FetchRecord::read(&folder, "a/b").sha256("config.json"), Some("ab"));
        assert_eq!(FetchRecord::read(&folder, "a/b").sha256("other.json"), None);
        assert_eq!(FetchRecord::read(&folder, "a/B").sha256("config.json"), None);
        std::fs::write(place(&folder), b"{\"repo\": 3").unwrap();
        assert_eq!(FetchRecord::read(&folder, "a/b").sha256("config.json"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
