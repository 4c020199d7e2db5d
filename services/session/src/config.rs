use crate::vocabulary::{ConfigUpdate, JsonText, MaxTokens, SessionConfig, Tool, ToolChoice};

impl SessionConfig {
    pub fn new(instructions: impl Into<String>) -> SessionConfig {
        SessionConfig {
            persona: String::new(),
            instructions: instructions.into(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: MaxTokens::Unlimited,
            temperature: None,
            reasoning_effort: None,
            parallel_tool_calls: true,
        }
    }

    pub fn apply(&mut self, update: &ConfigUpdate) {
        fn set<T: Clone>(field: &mut T, given: &Option<T>) {
            if let Some(value) = given {
                *field = value.clone();
            }
        }
        set(&mut self.instructions, &update.instructions);
        set(&mut self.tools, &update.tools);
        set(&mut self.tool_choice, &update.tool_choice);
        set(&mut self.max_output_tokens, &update.max_output_tokens);
        set(&mut self.temperature, &update.temperature);
        set(&mut self.reasoning_effort, &update.reasoning_effort);
        set(&mut self.parallel_tool_calls, &update.parallel_tool_calls);
    }

    pub fn text_bytes(&self) -> usize {
        self.persona.len() + self.instructions.len() + tools_bytes(&self.tools)
    }
}

impl ConfigUpdate {
    pub fn text_bytes(&self) -> usize {
        self.instructions.as_ref().map_or(0, String::len) + self.tools.as_deref().map_or(0, tools_bytes)
    }
}

fn tools_bytes(tools: &[Tool]) -> usize {
    let json = |text: &Option<JsonText>| text.as_ref().map_or(0, |text| text.0.len());
    let bytes = |tool: &Tool| {
        let words = tool.name.len() + tool.description.as_ref().map_or(0, String::len);
        words + json(&tool.parameters) + json(&tool.verbatim)
    };
    tools.iter().map(bytes).sum()
}

impl MaxTokens {
    pub fn limit(self) -> Option<u32> {
        match self {
            MaxTokens::Unlimited => None,
            MaxTokens::Tokens(tokens) => Some(tokens),
        }
    }
}
