//! Names that people write for a model on a hub.

/// Name `owner/repo`, optionally with a file and a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub repo: String,
    pub file: Option<String>,
    pub revision: Option<String>,
    /// Hub of an address, such as `hub.example:8080`; `None` for a plain name.
    pub hub: Option<String>,
}

impl Name {
    /// Parses `owner/repo`, `owner/repo/file.gguf`, either with `@revision`, or an address of the hub's pages.
    pub fn parse(text: &str) -> Option<Name> {
        let text = text.trim();
        let (hub, path) = match text.split_once("://") {
            Some((_, rest)) => rest.split_once('/').map(|(hub, path)| (Some(hub), path))?,
            None => (None, text.strip_prefix("hf:").unwrap_or(text)),
        };
        let path = path.split(['?', '#']).next()?.trim_end_matches('/');
        let (path, mut revision) = match path.split_once('@') {
            Some((path, revision)) => (path, Some(revision)),
            None => (path, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (repo, mut file) = parts.split_at_checked(2)?;
        // Pages and downloads have the revision between repository and file.
        if let ["resolve" | "blob" | "tree", of_page, rest @ ..] = file {
            revision = revision.or(Some(of_page));
            file = rest;
        }
        let is_right = repo.iter().chain(file).chain(&revision).all(|part| is_part(part));
        is_right.then(|| Name {
            repo: repo.join("/"),
            file: (!file.is_empty()).then(|| file.join("/")),
            revision: revision.map(str::to_owned),
            hub: hub.map(str::to_owned),
        })
    }
}

/// True if a part of a name leads out of no folder and changes no address. Names that begin with a point are refused
/// too: the record of fetched files has such a name.
pub(crate) fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '=' | ',' | ' ');
    !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(repo: &str, file: Option<&str>, revision: Option<&str>) -> Option<Name> {
        let [file, revision] = [file, revision].map(|part| part.map(str::to_owned));
        Some(Name { repo: repo.to_owned(), file, revision, hub: None })
    }

    #[test]
    fn names_as_people_write_them() {
        let file = Some("Qwen3.5-4B-Q4_K_M.gguf");
        let repo = "unsloth/Qwen3.5-4B-GGUF";
        for (text, expected) in [
            ("unsloth/Qwen3.5-4B-GGUF", name(repo, None, None)),
            ("hf:unsloth/Qwen3.5-4B-GGUF/", name(repo, None, None)),
            ("unsloth/Qwen3.5-4B-GGUF/Qwen3.5-4B-Q4_K_M.gguf", name(repo, file, None)),
            ("unsloth/Qwen3.5-4B-GGUF/Qwen3.5-4B-Q4_K_M.gguf@v1", name(repo, file, Some("v1"))),
            ("unsloth/Qwen3.5-4B-GGUF@0123abcd", name(repo, None, Some("0123abcd"))),
            ("https://huggingface.co/unsloth/Qwen3.5-4B-GGUF", name(repo, None, None)),
            (
                "https://huggingface.co/unsloth/Qwen3.5-4B-GGUF/resolve/main/Qwen3.5-4B-Q4_K_M.gguf?download=true",
                name(repo, file, Some("main")),
            ),
            ("https://hub.home/a/b/blob/main/BF16/x.gguf", name("a/b", Some("BF16/x.gguf"), Some("main"))),
            ("https://huggingface.co/a/b/tree/main", name("a/b", None, Some("main"))),
        ] {
            let found = Name::parse(text).map(|name| Name { hub: None, ..name });
            assert_eq!(found, expected, "{text}");
        }
        for text in [
            "",
            "qwen3.5-9b",
            "a/../b",
            "a/b/../../c.gguf",
            "/a/b",
            "a//b",
            "a/b/%2e%2e/x",
            "https://huggingface.co",
            "a/b@",
            ".a/b",
            "a/.b",
            "a/b/.fetched.json",
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_name_leads_out(text in "[a-z./@:?# %\\\\-]{0,40}") {
            if let Some(name) = Name::parse(&text) {
                let parts = name.repo.split('/').chain(name.file.iter().flat_map(|file| file.split('/'))).chain(name.revision.as_deref());
                for part in parts {
                    prop_assert!(!part.is_empty() && !part.starts_with('.') && !part.contains(['%', '\\', '?', '#', ':']), "{part}");
                }
                prop_assert_eq!(name.repo.split('/').count(), 2);
            }
        }
    }
}
