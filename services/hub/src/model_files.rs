//! All files of one model, in the place where presets look for them.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use crate::client::HubClient;
use crate::error::Error;
use crate::file::{Fetched, FilePlace, Found, check_room, is_unchanged, look};
use crate::listing::{Listed, Listing};
use crate::name::Name;
use crate::record::FetchRecord;

/// Files of a model and their folder: `OWNER/REPO` below the folder of models, so that no repository replaces a file of
/// another one. A GGUF file directly in the folder of models stays there: an earlier version or the operator put it.
pub struct ModelFiles<'l> {
    models_dir: PathBuf,
    folder: PathBuf,
    is_folder: bool,
    files: Vec<&'l Listed>,
}

const INDEX: &str = "model.safetensors.index.json";

impl<'l> ModelFiles<'l> {
    pub fn new(name: &Name, mut files: Vec<&'l Listed>, models_dir: &Path) -> ModelFiles<'l> {
        let is_folder = files.iter().any(|file| file.path.ends_with(".safetensors"));
        // The file that makes a model known comes last, its description or its first part: the model appears when it is
        // complete. Before it comes the index: the model that was fetched before is whole until then.
        files.sort_by_key(|file| (file.path == "config.json", file.path == INDEX, Reverse(file.path.as_str())));
        let lies_flat = !is_folder && files.iter().all(|file| lies_flat(file, models_dir));
        let folder = if lies_flat { models_dir.to_path_buf() } else { models_dir.join(&name.repo) };
        ModelFiles { models_dir: models_dir.to_path_buf(), folder, is_folder, files }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub fn model(&self) -> PathBuf {
        let first = self.files.iter().map(|file| self.folder.join(&file.path)).min();
        first.filter(|_| !self.is_folder).unwrap_or_else(|| self.folder.clone())
    }

    pub fn places(&self) -> impl Iterator<Item = (&'l Listed, PathBuf)> {
        self.files.iter().map(|file| (*file, self.folder.join(&file.path)))
    }

    pub async fn fetch(
        &self,
        hub: &HubClient,
        name: &Name,
        listing: &Listing,
        progress: &mut (dyn FnMut(&Listed, u64) + Send),
    ) -> Result<Vec<(&'l Listed, PathBuf, Fetched)>, Error> {
        check_room(&self.folder, self.places())?;
        let mut record = FetchRecord::read(&self.folder, &name.repo);
        let old_index = self.old_index(&record)?;
        // All places before the first byte: a refused file must not leave a model that is half another one.
        let mut there = Vec::new();
        for (file, to) in self.places() {
            self.check_inside(&to)?;
            let place = FilePlace { to: &to, recorded: record.sha256(&file.path) };
            there.push(look(file, &place, &mut |bytes, _| progress(file, bytes))? == Found::There);
        }
        let mut fetched = Vec::new();
        for ((file, to), is_there) in self.places().zip(there) {
            if is_there {
                fetched.push((file, to, Fetched::There));
                continue;
            }
            let place = FilePlace { to: &to, recorded: record.sha256(&file.path) };
            let (became, sha256) = hub.fetch(name, listing, file, place, &mut |bytes, _| progress(file, bytes)).await?;
            if let Some(sha256) = sha256 {
                let added = record.add(&self.folder, &file.path, &listing.commit, sha256);
                added.map_err(|source| Error::Disk { path: self.folder.clone(), source })?;
            }
            fetched.push((file, to, became));
        }
        if let Some(path) = old_index {
            std::fs::remove_file(&path).map_err(|source| Error::Disk { path, source })?;
        }
        Ok(fetched)
    }

    // Returns the index of a model that was fetched before, if this one has none: it names other files.
    fn old_index(&self, record: &FetchRecord) -> Result<Option<PathBuf>, Error> {
        let path = self.folder.join(INDEX);
        if !self.is_folder || self.files.iter().any(|file| file.path == INDEX) || path.symlink_metadata().is_err() {
            return Ok(None);
        }
        match is_unchanged(&path, record.sha256(INDEX)) {
            true => Ok(Some(path)),
            false => Err(Error::Another { path }),
        }
    }

    /// Refuses a place behind a link: the folders down to a file are real ones below the folder of models.
    fn check_inside(&self, to: &Path) -> Result<(), Error> {
        let below = to.parent().and_then(|parent| parent.strip_prefix(&self.models_dir).ok());
        let outside = |path: &Path| Error::Outside { path: path.to_path_buf() };
        let mut folder = self.models_dir.clone();
        for part in below.ok_or_else(|| outside(to))? {
            folder.push(part);
            if folder.is_symlink() {
                return Err(outside(&folder));
            }
        }
        Ok(())
    }
}

fn lies_flat(file: &Listed, models_dir: &Path) -> bool {
    let about = std::fs::metadata(models_dir.join(&file.path));
    // A deeper folder has files of another repository.
    let is_near = file.path.split('/').count() <= 2;
    is_near && file.sha256.is_some() && about.is_ok_and(|about| about.is_file() && about.len() == file.bytes)
}
