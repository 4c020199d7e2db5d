//! A model's folder that appears only when it is whole.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use weights::free_bytes;
use weights::hf::{self, Folder};

use crate::Error;
use crate::planned;
use crate::streaming::{TAKEN, is_taken};

/// Folder with the name `OUT.part`, which gets its final name in `finish` and goes away without it. Its lock keeps others out.
#[derive(Debug)]
pub struct NewFolder {
    part: PathBuf,
    out: PathBuf,
    lock: Option<File>,
}

impl NewFolder {
    /// Makes the folder, if its final name is free and the disk has room for `bytes`. A folder `OUT.part` of an interrupted
    /// run is removed.
    pub fn create(out: &Path, bytes: u64) -> Result<NewFolder, Error> {
        // Without a slash at its end, behind which `.part` would be a name of its own.
        let out = &out.components().collect::<PathBuf>();
        planned::check_free(out)?;
        let mut part = out.as_os_str().to_owned();
        part.push(".part");
        NewFolder::beside(out, PathBuf::from(part), bytes)
    }

    /// Makes a folder beside a file that will be made of it.
    pub fn scratch(file: &Path, bytes: u64) -> Result<NewFolder, Error> {
        NewFolder::beside(file, file.with_extension("merged.part"), bytes)
    }

    fn beside(out: &Path, part: PathBuf, bytes: u64) -> Result<NewFolder, Error> {
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Io { path, source }
        };
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if !parent.is_dir() {
            return Err(Error::file(out, "lies in a folder that is not there"));
        }
        let free = free_bytes(parent).unwrap_or(u64::MAX);
        if free < bytes {
            let what = format!("takes {} MiB, and its disk has {} MiB", bytes.div_ceil(1 << 20), free >> 20);
            return Err(Error::file(out, what));
        }
        match std::fs::create_dir(&part) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(io(&part))?,
        }
        // Emptied only when it is ours: another program may be writing it. Not every system opens folders.
        let lock = File::open(&part).ok();
        if lock.as_ref().is_some_and(|folder| is_taken(&part, folder)) {
            return Err(Error::file(&part, TAKEN));
        }
        for left in std::fs::read_dir(&part).map_err(io(&part))? {
            let left = left.map_err(io(&part))?.path();
            let removed = if left.is_dir() { std::fs::remove_dir_all(&left) } else { std::fs::remove_file(&left) };
            removed.map_err(io(&left))?;
        }
        Ok(NewFolder { part, out: out.to_path_buf(), lock })
    }

    pub fn path(&self) -> &Path {
        &self.part
    }

    /// Copies a model's files but its weights: configuration, tokenizer, template. `from`: a folder or an APR file.
    pub fn copy_texts(&self, from: &Path) -> Result<(), Error> {
        if from.is_file() {
            return self.write_texts(hf::read(from, true)?);
        }
        let io = |source| Error::Io { path: from.to_path_buf(), source };
        for entry in std::fs::read_dir(from).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let is_text = [".json", ".jinja", ".txt", ".model"].iter().any(|end| name.ends_with(end));
            let is_of_weights = name.ends_with(".index.json") || name.starts_with("adapter_");
            if is_text && !is_of_weights && path.is_file() {
                std::fs::copy(&path, self.part.join(name)).map_err(io)?;
            }
        }
        Ok(())
    }

    fn write_texts(
        &self,
        Folder { config, tokenizer, tokenizer_config, generation_config, chat_template, .. }: Folder,
    ) -> Result<(), Error> {
        let texts = [
            ("config.json", Some(config)),
            ("tokenizer.json", Some(tokenizer)),
            ("tokenizer_config.json", tokenizer_config),
            ("generation_config.json", generation_config),
            ("chat_template.jinja", chat_template.map(String::into_bytes)),
        ];
        for (name, text) in texts {
            let path = self.part.join(name);
            text.map_or(Ok(()), |text| std::fs::write(&path, text)).map_err(|source| Error::Io { path, source })?;
        }
        Ok(())
    }

    pub fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.part.join(name);
        std::fs::write(&path, text).map_err(|source| Error::Io { path, source })
    }

    pub fn finish(mut self) -> Result<(), Error> {
        std::fs::rename(&self.part, &self.out).map_err(|source| Error::Io { path: self.out.clone(), source })?;
        // From here on a folder of the unfinished name is another program's.
        self.part.clear();
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.part.as_os_str().is_empty() {
            // Nothing more can be done about a folder that cannot be removed.
            let _ = std::fs::remove_dir_all(&self.part);
        }
        drop(self.lock.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_its_name_when_it_is_whole_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        std::fs::create_dir(folder.path().join("out.part")).unwrap();
        std::fs::write(folder.path().join("out.part/left"), "").unwrap();
        drop(NewFolder::create(&out, 0).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let new = NewFolder::create(&folder.path().join("out/"), 0).unwrap();
        new.write("config.json", "{}").unwrap();
        assert!(!out.exists());
        new.finish().unwrap();
        assert!(out.join("config.json").is_file() && !folder.path().join("out.part").exists());
        let error = NewFolder::create(&out, 0).unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
    }

    #[test]
    fn a_folder_that_another_program_writes_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let first = NewFolder::create(&out, 0).unwrap();
        first.write("config.json", "first").unwrap();
        let error = NewFolder::create(&out, 0).unwrap_err().to_string();
        assert!(error.contains("another program writes it now"), "{error}");
        first.finish().unwrap();
        assert_eq!(std::fs::read_to_string(out.join("config.json")).unwrap(), "first");
        // What comes under the unfinished name later belongs to another run.
        let first = NewFolder::create(&folder.path().join("next"), 0).unwrap();
        drop(first);
        assert!(NewFolder::create(&folder.path().join("next"), 0).is_ok());
    }

    #[test]
    fn a_disk_without_room_is_an_error_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let error = NewFolder::create(&folder.path().join("out"), u64::MAX - 1).unwrap_err().to_string();
        assert!(error.contains("MiB, and its disk has"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
