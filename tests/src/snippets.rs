//! Code of the pages in docs/: what stands in fences, and what is taken over from the scripts of tests/clients.

use regex::Regex;

/// Returns the contents of fences of one language.
pub fn fences(page: &str, language: &str) -> Vec<String> {
    // A fence in a list is indented.
    let pattern = format!(r"(?ms)^(?<indent> *)```{language}\n(?<code>.*?)^ *```$");
    let fence = Regex::new(&pattern).expect("a pattern");
    let code = |found: regex::Captures| {
        let lines = found["code"].lines().map(|line| line.strip_prefix(&found["indent"]).unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    };
    fence.captures_iter(page).map(code).collect()
}

/// Puts in the fence behind each `<!-- code: FILE NAME ... -->` the named functions of that file, with the imports that
/// they use. `read` gives a file's text.
pub fn with_code(page: &str, read: impl Fn(&str) -> String) -> String {
    let mark = Regex::new(r"(?ms)^<!-- code: (\S+) ([^>]+) -->\n```(\w+)\n.*?^```$").expect("a pattern");
    let put = |found: &regex::Captures| {
        let (file, names, language) = (&found[1], &found[2], &found[3]);
        let code = excerpt(&read(file), &names.split_whitespace().collect::<Vec<_>>());
        format!("<!-- code: {file} {names} -->\n```{language}\n{code}\n```")
    };
    mark.replace_all(page, put).into_owned()
}

/// Modules of tests/clients themselves: a page says what their names stand for.
const OWN: [&str; 3] = ["common", "pipecat_talk", "livekit_lamp"];

fn excerpt(script: &str, names: &[&str]) -> String {
    let functions: Vec<String> = names.iter().map(|name| function(script, name)).collect();
    let functions = functions.join("\n\n\n");
    let import =
        Regex::new(r"(?m)^(?:from (?<module>[\w.]+) )?import (?<names>\([^)]*\)|[^\n(]+)$").expect("a pattern");
    let is_used = |found: &regex::Captures| {
        let own = found.name("module").is_some_and(|module| OWN.contains(&module.as_str()));
        let mut names = found["names"].split([',', '(', ')', '\n', ' ']).filter(|name| !name.is_empty());
        !own && names
            .any(|name| Regex::new(&format!(r"\b{}\b", regex::escape(name))).expect("a pattern").is_match(&functions))
    };
    let imports: Vec<String> = import.captures_iter(script).filter(is_used).map(|found| found[0].to_owned()).collect();
    format!("{}\n\n\n{functions}", imports.join("\n")).trim_start().to_owned()
}

fn function(script: &str, name: &str) -> String {
    let begin = Regex::new(&format!(r"(?m)^(?:async )?def {name}\(")).expect("a pattern");
    let found = begin.find(script).unwrap_or_else(|| panic!("there is no function {name}"));
    let rest = &script[found.start()..];
    let mut lines = rest.lines();
    let first = lines.next().into_iter();
    let body = lines.take_while(|line| line.is_empty() || line.starts_with([' ', ')']));
    first.chain(body).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "import os\nfrom a.b import (One,\n    Two)\nfrom c import Three\nfrom common import KEY\n\n\n\
        def first(x):\n    return One(KEY)\n\n\ndef second():\n    pass\n\n    return 2\n\n\nrun()\n";

    #[test]
    fn functions_come_with_the_imports_that_they_use() {
        let page = "<!-- code: s.py first second -->\n```python\nold\n```\n";
        let read = |file: &str| if file == "s.py" { SCRIPT.to_owned() } else { panic!("{file}") };
        let expected = "<!-- code: s.py first second -->\n```python\nfrom a.b import (One,\n    Two)\n\n\ndef first(x):\n    \
            return One(KEY)\n\n\ndef second():\n    pass\n\n    return 2\n```\n";
        assert_eq!(with_code(page, read), expected);
        assert_eq!(with_code(expected, read), expected);
    }

    #[test]
    fn fences_are_found_in_lists_too() {
        let page = "```sh\na\n```\n- x\n  ```sh\n  b\n  c\n  ```\n```toml\nd\n```\n";
        assert_eq!(fences(page, "sh"), ["a", "b\nc"]);
        assert_eq!(fences(page, "toml"), ["d"]);
    }
}
