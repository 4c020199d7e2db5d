//! A body of `multipart/form-data`, which is in memory already: its file and its fields of text.

/// Parts of a form, as far as they mean something here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SpeechForm<'a> {
    pub file: Option<&'a [u8]>,
    texts: Vec<(&'a str, &'a str)>,
}

// Parts that a form may have.
const MOST_PARTS: usize = 32;

impl SpeechForm<'_> {
    pub fn text(&self, name: &str) -> Option<String> {
        let found = self.texts.iter().find(|(known, text)| *known == name && !text.is_empty());
        found.map(|(_, text)| (*text).to_owned())
    }
}

/// Reads a form. `None`: the body is none.
pub fn parse<'a>(content_type: &str, body: &'a [u8]) -> Option<SpeechForm<'a>> {
    let boundary = content_type.strip_prefix("multipart/form-data")?.split(';').find_map(|field| {
        let (name, value) = field.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"'))
    })?;
    if boundary.is_empty() || boundary.len() > 70 {
        return None;
    }
    let mark = format!("--{boundary}");
    let mut rest = &body[find(body, mark.as_bytes())? + mark.len()..];
    let mut form = SpeechForm::default();
    let line_mark = format!("\r\n{mark}");
    for _ in 0..MOST_PARTS {
        if rest.starts_with(b"--") {
            return Some(form);
        }
        let part = rest.strip_prefix(b"\r\n")?;
        let head = find(part, b"\r\n\r\n")?;
        let (head, behind) = (std::str::from_utf8(&part[..head]).ok()?, &part[head + 4..]);
        let end = find(behind, line_mark.as_bytes())?;
        let content = &behind[..end];
        rest = &behind[end + line_mark.len()..];
        match name(head) {
            Some("file") => form.file = Some(content),
            Some(name) => form.texts.extend(std::str::from_utf8(content).ok().map(|text| (name, text))),
            None => {}
        }
    }
    None
}

fn name(head: &str) -> Option<&str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut disposition = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-disposition"));
    let (_, fields) = disposition.next()?;
    fields.split(';').find_map(|field| field.trim().strip_prefix("name=")).map(|name| name.trim_matches('"'))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "multipart/form-data; boundary=x1";

    #[test]
    fn a_form_has_its_file_and_its_fields() {
        let body = b"--x1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x1\r\ncontent-disposition: form-data; \
            name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n\r\n--x\0\r\n--x1--\r\n";
        let form = parse(KIND, body).unwrap();
        assert_eq!((form.file, form.text("model").as_deref()), (Some(b"\r\n--x\0".as_slice()), Some("whisper-1")));
        assert_eq!(form.text("language"), None);
        assert_eq!(parse("multipart/form-data; boundary=\"x1\"", body), Some(form));
    }

    #[test]
    fn what_is_no_form_is_refused_at_any_cut() {
        let body = b"--x1\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nabc\r\n--x1--";
        assert!(parse(KIND, body).is_some());
        for cut in 0..body.len() {
            assert_eq!(parse(KIND, &body[..cut]), None, "{cut}");
        }
        for kind in [
            "",
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=other",
        ] {
            assert_eq!(parse(kind, body), None, "{kind}");
        }
    }
}
