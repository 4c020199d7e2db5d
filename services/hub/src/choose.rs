//! Choice of the files of a repository that make a model.

use crate::error::Error;
use crate::listing::{Listed, Listing};
use crate::name::is_part;

/// Chooses one GGUF file, all parts of one in several, or the files of a folder with safetensors. Every name is safe to
/// write to a disk.
pub fn choose<'l>(repo: &str, listing: &'l Listing, file: Option<&str>) -> Result<Vec<&'l Listed>, Error> {
    let files = match file {
        Some(file) => named(repo, listing, file)?,
        None => only_model(repo, listing)?,
    };
    match files.iter().find(|file| !file.path.split('/').all(is_part)) {
        Some(file) => Err(Error::HostileName { repo: repo.to_owned(), file: file.path.clone() }),
        None => Ok(files),
    }
}

fn named<'l>(repo: &str, listing: &'l Listing, file: &str) -> Result<Vec<&'l Listed>, Error> {
    let found: Vec<&Listed> = match split(file) {
        Some(wanted) => {
            listing.files.iter().filter(|listed| split(&listed.path).is_some_and(|s| s.same_set(&wanted))).collect()
        }
        None => listing.files.iter().filter(|listed| listed.path == file).collect(),
    };
    let is_whole = split(file).is_none_or(|wanted| found.len() == wanted.count);
    if found.is_empty() || !is_whole {
        let files = models(listing).map(shown).collect::<Vec<_>>().join(", ");
        let files = if files.is_empty() { "no models".to_owned() } else { files };
        return Err(Error::NoFile { repo: repo.to_owned(), file: file.to_owned(), files });
    }
    Ok(found)
}

fn only_model<'l>(repo: &str, listing: &'l Listing) -> Result<Vec<&'l Listed>, Error> {
    let models: Vec<&Listed> = models(listing).collect();
    match models[..] {
        [one] => named(repo, listing, &one.path),
        [] => folder(repo, listing),
        _ => {
            let files = models.into_iter().map(shown).collect::<Vec<_>>().join(", ");
            Err(Error::Several { repo: repo.to_owned(), files })
        }
    }
}

/// Lists the models; a set by its first part. Encoders of pictures are not models to talk with, nor are blocks for
/// multi-token prediction alone.
fn models(listing: &Listing) -> impl Iterator<Item = &Listed> {
    listing.files.iter().filter(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let is_first = split(&file.path).is_none_or(|part| part.number == 1);
        let is_part = ["mmproj", "mtp-"].iter().any(|part| name.to_lowercase().starts_with(part));
        name.ends_with(".gguf") && !is_part && is_first
    })
}

fn folder<'l>(repo: &str, listing: &'l Listing) -> Result<Vec<&'l Listed>, Error> {
    const BESIDE: [&str; 6] = [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    ];
    let wanted = |path: &str| BESIDE.contains(&path) || (path.ends_with(".safetensors") && !path.contains('/'));
    let files: Vec<&Listed> = listing.files.iter().filter(|file| wanted(&file.path)).collect();
    let has = |end: &str| files.iter().any(|file| file.path.ends_with(end));
    if has("config.json") && has(".safetensors") { Ok(files) } else { Err(Error::NoModel { repo: repo.to_owned() }) }
}

fn shown(file: &Listed) -> String {
    format!("{} ({:.1} GB)", file.path, file.bytes as f64 / 1e9)
}

struct Split<'n> {
    stem: &'n str,
    number: usize,
    count: usize,
}

impl Split<'_> {
    fn same_set(&self, other: &Split) -> bool {
        (self.stem, self.count) == (other.stem, other.count) && (1..=self.count).contains(&self.number)
    }
}

fn split(path: &str) -> Option<Split<'_>> {
    let (rest, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let five = |digits: &str| (digits.len() == 5).then(|| digits.parse().ok()).flatten();
    Some(Split { stem, number: five(number)?, count: five(count)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(paths: &[&str]) -> Listing {
        let listed = |path: &&str| Listed { path: (*path).to_owned(), bytes: 1_500_000_000, sha256: None };
        Listing { commit: "c0ffee".to_owned(), files: paths.iter().map(listed).collect() }
    }

    fn chosen(paths: &[&str], file: Option<&str>) -> Result<Vec<String>, String> {
        let listing = listing(paths);
        let chosen = choose("a/b", &listing, file).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(|file| file.path.clone()).collect())
    }

    #[test]
    fn one_model_needs_no_name() {
        assert_eq!(chosen(&["README.md", "x.gguf", "mmproj-F16.gguf", "mtp-x-Q8_0.gguf"], None).unwrap(), ["x.gguf"]);
        let set = ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"];
        assert_eq!(chosen(&set, None).unwrap(), set);
        assert_eq!(chosen(&[&set[..], &["y.gguf"]].concat(), Some(set[1])).unwrap(), set);
        let folder = ["config.json", "model.safetensors", "tokenizer.json"];
        assert_eq!(chosen(&[&folder[..], &["onnx/model.safetensors", "flax.msgpack"]].concat(), None).unwrap(), folder);
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let several = chosen(&["x.gguf", "y.gguf"], None).unwrap_err();
        assert!(several.contains("a/b/FILE: x.gguf (1.5 GB), y.gguf (1.5 GB)"), "{several}");
        let missing = chosen(&["x.gguf"], Some("z.gguf")).unwrap_err();
        assert!(missing.contains("no file z.gguf; it has x.gguf"), "{missing}");
        assert!(chosen(&["x-00001-of-00002.gguf"], Some("x-00001-of-00002.gguf")).unwrap_err().contains("no file"));
        assert!(chosen(&["README.md"], None).unwrap_err().contains("nothing in it"));
        assert!(chosen(&["config.json"], None).unwrap_err().contains("nothing in it"));
    }

    #[test]
    fn no_name_of_a_hub_leads_out() {
        let hostile = chosen(&["../x.gguf"], None).unwrap_err();
        assert!(hostile.contains("not written to a disk"), "{hostile}");
        assert!(chosen(&["a\\..\\x.gguf"], None).is_err());
        assert!(chosen(&[".fetched.json"], Some(".fetched.json")).is_err());
    }
}
