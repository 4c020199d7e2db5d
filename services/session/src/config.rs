use crate::vocabulary::{ConfigUpdate, InputItem, MaxTokens, ResponseRequest, SessionConfig, Tool, ToolChoice};

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

impl ResponseRequest {
    pub fn text_bytes(&self) -> usize {
        let item = |item: &InputItem| match item {
            InputItem::Item(item) => item.body.text_bytes(),
            InputItem::Reference(_) => 0,
        };
        let input = self.input.iter().flatten().map(item);
        let metadata = self.metadata.as_ref().map_or(0, |text| text.0.len());
        self.config.text_bytes() + input.sum::<usize>() + metadata
    }
}

fn tools_bytes(tools: &[Tool]) -> usize {
    tools.iter().map(Tool::text_bytes).sum()
}

impl MaxTokens {
    pub fn limit(self) -> Option<u32> {
        match self {
            MaxTokens::Unlimited => None,
            MaxTokens::Tokens(tokens) => Some(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, ItemBody, JsonText, NewItem, NewTurn, Role};

    #[test]
    fn all_that_a_client_writes_into_a_turn_is_counted() {
        let tool = Tool {
            name: "light".into(),
            description: Some("on".into()),
            parameters: Some(JsonText("{}".into())),
            verbatim: None,
        };
        let config =
            ConfigUpdate { instructions: Some("short".into()), tools: Some(vec![tool]), ..ConfigUpdate::default() };
        let item = NewItem { id: None, body: ItemBody::message(Role::User, "Good morning.") };
        let input = Some(vec![InputItem::Item(item.clone()), InputItem::Reference("item_1".into())]);
        let request = ResponseRequest { config, input, ..ResponseRequest::default() };
        assert_eq!(Input::Respond(Box::new(request.clone())).text_bytes(), 5 + 9 + 13);
        let turn = NewTurn { items: vec![item], request, ..NewTurn::default() };
        assert_eq!(Input::TakeTurn(Box::new(turn)).text_bytes(), 13 + 5 + 9 + 13);
    }
}
