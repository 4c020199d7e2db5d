use super::{every_event, read};
use crate::openai_realtime::frames::{Body, ContentPart, TranscriptionError, TranscriptionUsage};
use crate::openai_realtime::{AudioConfig, Renderer};
use serde_json::json;
use session::Event;

/// Frames of a connection that hears and speaks.
pub fn frames(renderer: &mut Renderer, frames: &mut Vec<String>) {
    renderer.audio = AudioConfig::new(true, true);
    ["item_1", "item_2", "resp_1"].iter().for_each(|id| renderer.spoken.add(id, 9));
    every_event().iter().filter(|event| event.is_about("item_1")).for_each(|event| renderer.render(event, frames));
    let configured = every_event().into_iter().find(|event| matches!(event, Event::Configured(_)));
    configured.iter().for_each(|event| renderer.render(event, frames));
    let (response_id, item_id, output_index, content_index) = ("resp_1", "item_2", 0, 0);
    let tokens = TranscriptionUsage::Tokens { input_tokens: 9, output_tokens: 2, total_tokens: 11 };
    let error = TranscriptionError { kind: "server_error", code: "speech_server_failed", message: "no", param: None };
    let transcript = "Hello.";
    let completed =
        |usage| Body::TranscriptionCompleted { item_id: "item_1", content_index: 0, transcript: "Hi.", usage };
    for body in [
        Body::SpeechStarted { audio_start_ms: 700, item_id: "item_1" },
        Body::SpeechStopped { audio_end_ms: 2000, item_id: "item_1" },
        Body::TimeoutTriggered { audio_start_ms: 700, audio_end_ms: 5700, item_id: "item_1" },
        Body::InputAudioBufferCommitted { item_id: "item_1", previous_item_id: None },
        Body::TranscriptionDelta { item_id: "item_1", content_index, delta: "H" },
        completed(TranscriptionUsage::Duration { seconds: 1.3 }),
        completed(tokens),
        Body::TranscriptionFailed { item_id: "item_1", content_index, error },
        Body::AudioTranscriptDelta {
            response_id,
            item_id,
            output_index,
            content_index,
            delta: "Hel",
            start_time: Some(1.25),
        },
        Body::AudioDelta { response_id, item_id, output_index, content_index, delta: "AAAA" },
        Body::AudioDone { response_id, item_id, output_index, content_index },
        Body::AudioTranscriptDone { response_id, item_id, output_index, content_index, transcript },
        Body::ContentPartDone {
            response_id,
            item_id,
            output_index,
            content_index,
            part: ContentPart::Audio { transcript },
        },
    ] {
        frames.push(renderer.frame(body));
    }
}

#[test]
fn the_audio_error_names_the_text_way() {
    let error = read(json!({"type": "output_audio_buffer.clear"})).unwrap_err();
    insta::assert_snapshot!(error.message, @"this server takes no audio: send what the user said as text with conversation.item.create and response.create, or with the extension events input_text_buffer.update and input_text_buffer.commit");
}
