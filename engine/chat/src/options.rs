use crate::JsonText;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateOptions {
    pub enable_thinking: Option<bool>,
    pub reasoning_effort: Option<String>,
    /// JSON object with any other values that the template knows.
    pub more: Option<JsonText>,
}

impl TemplateOptions {
    /// Returns the client's choice of thinking. `None`: the preset decides.
    pub fn thinks(&self) -> Option<bool> {
        let by_effort = |effort: &str| !matches!(effort, "none" | "minimal");
        self.enable_thinking.or_else(|| self.reasoning_effort.as_deref().map(by_effort))
    }
}

/// Urgency of a request, most urgent first. Its word is the metrics' label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Priority {
    Talk,
    Speculate, // a user may soon wait for it
    Background,
}
