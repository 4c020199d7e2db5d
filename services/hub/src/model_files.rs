//! All files of one model, to where presets look for them.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use crate::client::HubClient;
use crate::error::Error;
use crate::file::{Fetched, check_room};
use crate::listing::{Listed, Listing};
use crate::name::Name;

/// Where files go: GGUF files under their path in the repository, the files of a folder into one of the repository's name.
pub struct ModelFiles<'l> {
    folder: PathBuf,
    is_folder: bool,
    files: Vec<&'l Listed>,
}

/// Names the parts of a folder's weights, where there are several.
const INDEX: &str = "model.safetensors.index.json";

impl<'l> ModelFiles<'l> {
    /// `files` as [`crate::choose`] chose them.
    pub fn new(name: &Name, mut files: Vec<&'l Listed>, models_dir: &Path) -> ModelFiles<'l> {
        let is_folder = files.iter().any(|file| file.path.ends_with(".safetensors"));
        // What a model is known by comes last, its description or its first part: it is one when all of it is there.
        files.sort_by_key(|file| (file.path == "config.json", Reverse(file.path.as_str())));
        let folder = if is_folder { models_dir.join(&name.repo) } else { models_dir.to_path_buf() };
        ModelFiles { folder, is_folder, files }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// A GGUF file, its first part, or a folder.
    pub fn model(&self) -> PathBuf {
        let first = self.files.iter().map(|file| self.folder.join(&file.path)).min();
        first.filter(|_| !self.is_folder).unwrap_or_else(|| self.folder.clone())
    }

    /// Where each file goes.
    pub fn places(&self) -> impl Iterator<Item = (&'l Listed, PathBuf)> {
        self.files.iter().map(|file| (*file, self.folder.join(&file.path)))
    }

    /// One file after the other. `progress` hears how much of a file is there.
    pub async fn fetch(
        &self,
        hub: &HubClient,
        name: &Name,
        listing: &Listing,
        progress: &mut (dyn FnMut(&Listed, u64) + Send),
    ) -> Result<Vec<(&'l Listed, PathBuf, Fetched)>, Error> {
        check_room(&self.folder, self.places())?;
        if self.is_folder && !self.files.iter().any(|file| file.path == INDEX) {
            // Of what lay there before: it names other files.
            let _ = std::fs::remove_file(self.folder.join(INDEX));
        }
        let mut fetched = Vec::new();
        for (file, to) in self.places() {
            let became = hub.fetch(name, listing, file, &to, &mut |there, _| progress(file, there)).await?;
            fetched.push((file, to, became));
        }
        Ok(fetched)
    }
}
