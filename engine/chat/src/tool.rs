use crate::JsonText;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub parameters: Option<JsonText>,
    /// Tool as the client wrote it, if the fields above do not say all of it: templates print this instead.
    pub verbatim: Option<JsonText>,
}

impl Tool {
    pub fn text_bytes(&self) -> usize {
        let json = |text: &Option<JsonText>| text.as_ref().map_or(0, |text| text.0.len());
        let words = self.name.len() + self.description.as_ref().map_or(0, String::len);
        words + json(&self.parameters) + json(&self.verbatim)
    }
}
