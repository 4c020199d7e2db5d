//! Replies that are begun before the user has finished, over a real socket and with a store on disk.

use crate::scripted::Asked;
use crate::support::Server;
use serde_json::json;
use session::{Finish, GenerationPurpose, Priority};

async fn begun_or_asked(server: &mut Server) -> Asked {
    loop {
        let mut asked = server.script.next().await;
        match asked.request.purpose {
            GenerationPurpose::Reply | GenerationPurpose::EarlyReply => return asked,
            GenerationPurpose::WarmPartial | GenerationPurpose::WarmHistory => asked.done(Finish::Warm),
        }
    }
}

#[tokio::test]
async fn the_reply_to_a_partial_transcript_is_asked_for_as_the_final_one_is() {
    let mut server = Server::start().await;
    let mut client = server.connect("?extensions=reprise").await;
    client.session_id().await;
    client.say(json!({"type": "input_text_buffer.update", "text": "Turn on the"})).await;
    client.say(json!({"type": "input_text_buffer.update", "text": "Turn on the light"})).await;
    let mut early = begun_or_asked(&mut server).await;
    assert_eq!((early.request.purpose, early.request.priority), (GenerationPurpose::EarlyReply, Priority::Speculate));
    assert_eq!(early.request.prompt.messages.last().unwrap().text(), "Turn on the light");
    assert!(early.request.keep_as.is_none());
    // A model that told its words would not be heard.
    early.say("Done.");
    early.call("light", "{}");
    client.say(json!({"type": "input_text_buffer.commit", "text": "Turn on the light"})).await;
    let mut asked = begun_or_asked(&mut server).await;
    early.cancelled().await;
    assert_eq!((asked.request.purpose, asked.request.priority), (GenerationPurpose::Reply, Priority::Talk));
    let (wanted, begun) = (&asked.request, &early.request);
    assert_eq!((&wanted.prompt, &wanted.options), (&begun.prompt, &begun.options));
    assert_eq!((wanted.max_tokens, wanted.past_owner, wanted.user), (begun.max_tokens, begun.past_owner, begun.user));
    assert_eq!((wanted.prompt_limit_tokens, &wanted.tool_choice), (begun.prompt_limit_tokens, &begun.tool_choice));
    early.done(Finish::Warm);
    asked.say("It is on.");
    asked.done(Finish::Stop);
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["output"].as_array().unwrap().len(), 1, "{done:#}");
    assert_eq!(done["response"]["output"][0]["content"][0]["text"], "It is on.");
    let line = server.store.list_sessions("local", None, 10).await.unwrap().remove(0);
    let session = server.store.open_session("local", &line.session.id).await.unwrap();
    let items = server.store.items(&session, None, 100).await.unwrap();
    assert_eq!(items.iter().map(|item| item.said()).collect::<Vec<_>>(), ["Turn on the light", "It is on."]);
    server.stop().await;
}

#[tokio::test]
async fn one_key_turns_it_off() {
    for (tokens, purpose) in [(24, GenerationPurpose::EarlyReply), (0, GenerationPurpose::Reply)] {
        let change = |settings: &mut settings::Settings| {
            for preset in settings.presets.values_mut() {
                (preset.speculation.after_ms, preset.speculation.tokens) = (0, tokens);
            }
        };
        let mut server = Server::with(change).await;
        let mut client = server.connect("?extensions=reprise").await;
        client.session_id().await;
        client.say(json!({"type": "input_text_buffer.update", "text": "Turn on the light"})).await;
        if purpose == GenerationPurpose::Reply {
            client.say(json!({"type": "input_text_buffer.commit"})).await;
        }
        assert_eq!(begun_or_asked(&mut server).await.request.purpose, purpose);
        server.stop().await;
    }
}
