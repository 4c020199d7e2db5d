use crate::JsonText;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub parameters: Option<JsonText>,
    /// Tool as the client wrote it, if the fields above do not say all of it: templates print this instead.
    pub verbatim: Option<JsonText>,
}
