//! Formats of single tensors by their names.

use kernels::format::{Format, is_weighted};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRule {
    /// A part of a name, or with `*` a whole name.
    pub pattern: String,
    pub format: Format,
}

impl TypeRule {
    pub fn parse(text: &str) -> Result<TypeRule, String> {
        let (pattern, name) = text.split_once('=').ok_or("give PATTERN=TYPE, such as ffn_down=q6_k")?;
        let format = Format::from_name(name).filter(|&format| is_weighted(format).is_some());
        let format = format.ok_or_else(|| {
            let known = Format::ALL.iter().filter(|&&format| is_weighted(format).is_some());
            format!(
                "no type '{name}'; give one of {}",
                known.map(|format| format.name()).collect::<Vec<_>>().join(", ")
            )
        })?;
        if pattern.is_empty() {
            return Err("the pattern before '=' is empty".to_string());
        }
        Ok(TypeRule { pattern: pattern.to_string(), format })
    }

    pub fn holds_for(&self, name: &str) -> bool {
        if !self.pattern.contains('*') {
            return name.contains(&self.pattern);
        }
        let mut parts = self.pattern.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parts_of_names_or_whole_names() {
        let holds =
            |pattern: &str, name: &str| TypeRule { pattern: pattern.into(), format: Format::F16 }.holds_for(name);
        assert!(holds("ffn_down", "blk.0.ffn_down.weight"));
        assert!(holds("blk.*.ffn_*.weight", "blk.11.ffn_up.weight"));
        assert!(holds("*", "output.weight"));
        assert!(!holds("blk.1.*", "blk.11.ffn_up.weight"));
        assert!(!holds("ffn*", "blk.1.ffn_up.weight"));
        assert!(!holds("blk.*.attn_*.weight", "blk.1.ffn_up.weight"));
        assert_eq!(TypeRule::parse("a=q6_k"), Ok(TypeRule { pattern: "a".into(), format: Format::Q6_K }));
        assert!(TypeRule::parse("a=q2_k").unwrap_err().starts_with("no type 'q2_k'; give one of f32, f16"));
        assert!(TypeRule::parse("=q6_k").is_err() && TypeRule::parse("q6_k").is_err());
    }
}
