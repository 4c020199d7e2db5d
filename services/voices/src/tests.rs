use crate::{Ears, Error, SaidPiece, Saying, SpeechHealth, SpeechServers, VOICE_RATE, Voice, WantedVoice};
use proptest::prelude::*;
use settings::{Settings, Sources, SpeechServer as Address, SpeechSettings};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::speech::{CHAR_MS, Fault, ScriptedSpeech, word_times};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn settings(server: &str) -> SpeechSettings {
    let settings = Settings::load(&Sources::default()).unwrap().settings.speech;
    let address = match server.strip_prefix("wyoming://") {
        Some(place) => Address::Wyoming(place.to_owned()),
        None => Address::Http(server.to_owned()),
    };
    SpeechSettings { stt: Some(address.clone()), tts: Some(address), answer_s: 1, connect_ms: 500, ..settings }
}

fn both(server: &str) -> (Arc<Ears>, Arc<Voice>) {
    let SpeechServers { ears, voice } = SpeechServers::new(&settings(server), |_| None).unwrap();
    (ears.unwrap(), voice.unwrap())
}

async fn all(mut saying: Saying) -> Result<Vec<i16>, (usize, Error)> {
    let mut samples = Vec::new();
    while let Some(piece) = saying.next().await {
        match piece {
            Ok(piece) => samples.extend(piece.samples),
            Err(error) => return Err((samples.len(), error)),
        }
    }
    Ok(samples)
}

#[tokio::test]
async fn both_are_asked_over_wyoming() {
    let server = ScriptedSpeech::start().await;
    server.will_hear(&[" Turn on the light. "]);
    let (ears, voice) = both(&server.url());
    ears.probe().await;
    voice.probe().await;
    let up = |program: &str, names: &[&str]| SpeechHealth::Up {
        program: program.into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(ears.state(), up("scripted ears", &["en"]));
    assert_eq!(voice.state(), up("scripted voice", &["anna", "ben"]));
    let heard = ears.hear("ann", &[7; 40_000], Some("en")).await.unwrap();
    assert_eq!(heard.text, "Turn on the light.");
    let speaker = WantedVoice { name: Some("ben".into()), ..WantedVoice::default() };
    let said = all(voice.say("ann", "The light is on.".into(), speaker)).await.unwrap();
    let expected = u64::from(VOICE_RATE) * CHAR_MS * 16 / 1000;
    assert!(said.len().abs_diff(expected as usize) <= 2, "{} of {expected}", said.len());
    let asked = server.asked();
    assert_eq!((asked[0].samples, &asked[0].data["language"]), (40_000, &"en".into()));
    assert_eq!(asked[1].data["voice"]["name"], "ben");
    // A name that the server has not is the configuration's, which is none here.
    let speaker = |name: &str, usual: Option<&str>| {
        let usual = usual.map(str::to_owned);
        voice.speaker(&WantedVoice { name: Some(name.into()), usual, ..WantedVoice::default() })
    };
    assert_eq!((speaker("marin", None), speaker("anna", Some("ben"))), (None, Some("anna".into())));
    assert_eq!(speaker("marin", Some("ben")), Some("ben".into()));
}

#[tokio::test]
async fn ears_may_tell_words_while_they_hear() {
    let server = ScriptedSpeech::start().await;
    let (ears, _) = both(&server.url());
    ears.probe().await;
    assert!(ears.listen(None, 100).is_none());
    server.tell_partials(None);
    ears.probe().await;
    server.will_hear(&["Turn on the light."]);
    let listening = ears.listen(Some("en"), 100).unwrap();
    let mut words = listening.words();
    assert!(listening.hear(vec![0; 7000]));
    let mut so_far = String::new();
    while so_far != "Turn on " {
        so_far = words.next().await;
    }
    assert!(listening.hear(vec![0; 3000]));
    drop(words);
    assert_eq!(listening.finish().await.unwrap().text, "Turn on the light.");
    let asked = server.asked();
    assert_eq!((asked.len(), asked[0].samples, &asked[0].data["language"]), (1, 10_000, &"en".into()));
    // No more turns are heard live than may be, and one that is dropped makes room.
    let many: Vec<_> = (0..4).map(|_| ears.listen(None, 100).unwrap()).collect();
    assert!(ears.listen(None, 100).is_none());
    drop(many);
    let begun = Instant::now();
    while ears.listen(None, 100).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(4));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Ears that hang up, tell too much, or answer too early are given up.
    server.tell_partials(Some(1));
    server.will_hear(&["Turn on the light."]);
    let listening = ears.listen(None, 100).unwrap();
    listening.hear(vec![0; 7000]);
    assert!(matches!(listening.finish().await, Err(Error::BrokeOff { .. })));
    server.tell_partials(None);
    let listening = ears.listen(None, 3).unwrap();
    listening.hear(vec![0; 7000]);
    while listening.hear(vec![0; 16]) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(listening.finish().await, Err(Error::Nonsense { .. })));
    server.set_fault(Fault::Hangs);
    let listening = ears.listen(None, 100).unwrap();
    assert!(matches!(listening.finish().await, Err(Error::Silent { .. })));
}

#[tokio::test]
async fn a_hostile_server_is_given_up_and_named() {
    let server = ScriptedSpeech::start().await;
    let (ears, voice) = both(&server.url());
    let line = |text: &str| Fault::Says(text.as_bytes().to_vec());
    let faults = [
        Fault::Hangs,
        Fault::HangsUp,
        Fault::Refuses("no such language".into()),
        line("this is no event\n"),
        line("{\"type\":\"transcript\",\"data_length\":99999999999}\n"),
        line("{\"type\":\"transcript\",\"data\":{\"text\":7}}\n"),
        line("{\"type\":\"transcript\",\"payload_length\":99999999}\n"),
        line("{\"type\":\"audio-start\",\"data\":{\"rate\":3}}\n"),
        line("{\"type\":\"audio-start\",\"data\":{\"rate\":16000,\"width\":4}}\n"),
        line(&"{\"type\":\"ping\"}\n".repeat(100)),
        Fault::NeverEnds,
    ];
    for fault in faults {
        server.set_fault(fault.clone());
        let begun = Instant::now();
        let heard = ears.hear("ann", &[0; 1600], None).await.unwrap_err();
        if fault != Fault::NeverEnds {
            let (_, said) = all(voice.say("ann", "Hello.".into(), WantedVoice::default())).await.unwrap_err();
            assert!(said.to_string().starts_with(&format!("the voice at {}", server.url())), "{said}");
        }
        assert!(heard.to_string().starts_with(&format!("the ears at {}", server.url())), "{heard}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{fault:?}: {:?}", begun.elapsed());
    }
    server.set_fault(Fault::DiesAfter(3));
    let text = "This is long enough for many pieces.";
    let (samples, died) = all(voice.say("ann", text.into(), WantedVoice::default())).await.unwrap_err();
    assert!(samples > 2500 && matches!(died, Error::BrokeOff { .. }), "{samples} {died}");
    // It is there again.
    server.set_fault(Fault::None);
    server.will_hear(&["Yes."]);
    assert_eq!(ears.hear("ann", &[0; 1600], None).await.unwrap().text, "Yes.");
    assert_eq!(ears.hear("ann", &[0; 1600], None).await.unwrap().text, "");
}

#[tokio::test]
async fn a_voice_may_tell_the_times_of_its_words() {
    let text = "The light is on.";
    let expected: Vec<(String, u64, Option<u64>)> =
        word_times(text).into_iter().map(|(word, start, end)| (word, start, Some(end))).collect();
    let server = ScriptedSpeech::start().await;
    server.tell_words();
    let told = async |mut saying: Saying| {
        let (mut samples, mut words) = (0, Vec::new());
        while let Some(piece) = saying.next().await {
            let SaidPiece { samples: some, words: told } = piece.unwrap();
            samples += some.len();
            words.extend(told.into_iter().map(|word| (word.word, word.start_ms, word.end_ms)));
        }
        (samples, words)
    };
    let (samples, words) = told(both(&server.url()).1.say("ann", text.into(), WantedVoice::default())).await;
    assert_eq!((samples / 24 + 1 > expected[3].2.unwrap() as usize, words), (true, expected));
    // Kokoro's server answers a line of JSON for each piece of audio.
    let lines = concat!(
        r#"{"audio":"AQACAA==","audio_format":"audio/pcm","timestamps":[{"word":"The","start_time":0.0,"end_time":0.2}]}"#,
        "\n",
        r#"{"audio":"AwA=","audio_format":"audio/pcm","timestamps":[{"word":"light","start_time":0.25,"end_time":0.5}]}"#,
    );
    let (base, request) = http(answer("200 OK", "application/json", lines.as_bytes())).await;
    let with_words = |base: &str| {
        let settings = SpeechSettings { tts_word_times: true, ..settings(base) };
        SpeechServers::new(&settings, |_| None).unwrap().voice.unwrap()
    };
    let voice = with_words(&base);
    let words = vec![("The".to_owned(), 0, Some(200)), ("light".to_owned(), 250, Some(500))];
    assert_eq!(told(voice.say("ann", "The light".into(), WantedVoice::default())).await, (3, words));
    let request = request.await.unwrap();
    assert!(
        request.starts_with("POST /dev/captioned_speech") && request.contains(r#""return_timestamps":true"#),
        "{request}"
    );
    for wrong in ["{}", "no", r#"{"audio":"AQACAA=="}"#] {
        let (base, _) = http(answer("200 OK", "application/json", wrong.as_bytes())).await;
        let said = all(with_words(&base).say("ann", "The light".into(), WantedVoice::default())).await;
        assert_eq!(said.is_ok(), wrong.len() > 10, "{wrong}: {said:?}");
    }
}

#[tokio::test]
async fn speech_without_an_end_is_cut() {
    let server = ScriptedSpeech::start().await;
    server.set_fault(Fault::NeverEnds);
    let settings = SpeechSettings { piece_s: 2, ..settings(&server.url()) };
    let voice = SpeechServers::new(&settings, |_| None).unwrap().voice.unwrap();
    let (samples, error) = all(voice.say("ann", "Hello.".into(), WantedVoice::default())).await.unwrap_err();
    assert!((44_000..=48_000).contains(&samples) && matches!(error, Error::Nonsense { .. }), "{samples} {error}");
}

#[tokio::test]
async fn a_server_that_is_down_is_asked_again() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let servers = SpeechServers::new(&settings(&format!("wyoming://{address}")), |_| None).unwrap();
    servers.probe().await;
    let ears = servers.ears.clone().unwrap();
    let SpeechHealth::Down { trouble } = ears.state() else { panic!() };
    assert!(trouble.contains("cannot be reached"), "{trouble}");
    let stop = tokio_util::sync::CancellationToken::new();
    let watching = tokio::spawn(servers.watch(Duration::from_millis(20), stop.clone()));
    let listener = TcpListener::bind(address).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let info = br#"{"type":"info","data":{"asr":[{"name":"w","installed":true,"models":[]}]}}"#;
    stream.write_all(&[info.as_slice(), b"\n"].concat()).await.unwrap();
    while matches!(ears.state(), SpeechHealth::Down { .. }) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    watching.await.unwrap();
}

// Answers one HTTP request with these bytes, and returns the request.
async fn http(answer: Vec<u8>) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut request, mut buffer) = (Vec::new(), vec![0; 65_536]);
        loop {
            let count = stream.read(&mut buffer).await.unwrap();
            request.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let length = text
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
            let head = request.windows(4).position(|four| four == b"\r\n\r\n");
            if count == 0 || head.is_some_and(|head| request.len() >= head + 4 + length.unwrap_or(0)) {
                break;
            }
        }
        stream.write_all(&answer).await.unwrap();
        String::from_utf8_lossy(&request).into_owned()
    });
    (base, serving)
}

fn answer(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn both_are_asked_over_http() {
    let said = br#"{"text":" Yes. ","usage":{"type":"tokens","input_tokens":9,"output_tokens":2}}"#;
    let (base, request) = http(answer("200 OK", "application/json", said)).await;
    let heard = both(&base).0.hear("ann", &[1, 2, 3], Some("de")).await.unwrap();
    assert_eq!((heard.text.as_str(), heard.tokens), ("Yes.", Some((9, 2))));
    let request = request.await.unwrap();
    assert!(
        request.starts_with("POST /v1/audio/transcriptions") && request.contains("name=\"language\"\r\n\r\nde"),
        "{request}"
    );
    assert!(request.contains("RIFF") && request.contains("whisper-1"));
    let (base, request) = http(answer("200 OK", "audio/pcm", &[1, 0, 2, 0, 3, 0])).await;
    let speaker = WantedVoice { speed: 1.5, ..WantedVoice::default() };
    assert_eq!(all(both(&base).1.say("ann", "Hello.".into(), speaker)).await.unwrap(), [1, 2, 3]);
    let request = request.await.unwrap();
    assert!(request.contains(r#""input":"Hello.""#) && request.contains(r#""speed":1.5"#), "{request}");
    for wrong in [
        answer("500 Oh", "application/json", br#"{"error":{"message":"out of memory"}}"#),
        answer("302 Found", "text/html", b""),
        answer("200 OK", "application/json", b"{}"),
        b"HTTP/1.1 200 OK\r\ncontent-type: audio/pcm\r\ncontent-length: 100\r\n\r\n\x01\x00".to_vec(),
        b"no http at all".to_vec(),
    ] {
        let (base, _) = http(wrong.clone()).await;
        assert!(both(&base).0.hear("ann", &[0], None).await.is_err(), "{}", String::from_utf8_lossy(&wrong));
        let (base, _) = http(wrong.clone()).await;
        assert!(all(both(&base).1.say("ann", "Hello.".into(), WantedVoice::default())).await.is_err());
    }
}

#[tokio::test]
async fn a_file_in_place_of_samples_has_its_own_rate() {
    let mut file = speech::wav::file(12_000, &[9000; 1200]);
    let said = async |kind: &str, body: &[u8]| {
        let (base, _request) = http(answer("200 OK", kind, body)).await;
        all(both(&base).1.say("ann", "Hello.".into(), WantedVoice::default())).await
    };
    let as_it_is = said("audio/wav", &file).await.unwrap();
    assert_eq!(as_it_is.len(), 2400);
    // More may stand before the samples.
    file.splice(36..36, *b"LIST\x04\0\0\0info");
    assert_eq!(said("audio/wav", &file).await.unwrap(), as_it_is);
    for (kind, body) in
        [("audio/mpeg", &[0; 64][..]), ("audio/wav", &file[..40]), ("audio/wav", &[b"RIFF", &[0; 5000][..]].concat())]
    {
        assert!(matches!(said(kind, body).await, Err((0, Error::Nonsense { .. }))), "{kind}");
    }
}

#[tokio::test]
async fn no_part_of_the_key_is_told_and_no_other_server_gets_it() {
    let key = "sk-1234567890abcdefghij";
    let servers = |base: &str| SpeechServers::new(&settings_with_key(base), |_| Some(key.to_owned())).unwrap();
    // The server's words are cut somewhere, also within the key.
    for before in 230..=300 {
        let said = format!("{{\"error\":{{\"message\":\"{}Bearer {key}\"}}}}", "x".repeat(before));
        let (base, _) = http(answer("401 No", "application/json", said.as_bytes())).await;
        let told = servers(&base).ears.unwrap().hear("ann", &[0; 16], None).await.unwrap_err().to_string();
        assert!(!told.contains(&key[..6]), "{before}: {told}");
    }
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = other.local_addr().unwrap();
        let moved =
            format!("HTTP/1.1 {status}\r\nlocation: http://{place}/v1/audio/speech\r\ncontent-length: 0\r\n\r\n");
        let (base, _) = http(moved.clone().into_bytes()).await;
        assert!(servers(&base).ears.unwrap().hear("ann", &[0; 16], None).await.is_err());
        let (base, _) = http(moved.into_bytes()).await;
        assert!(all(servers(&base).voice.unwrap().say("ann", "Hello.".into(), WantedVoice::default())).await.is_err());
        let asked = tokio::time::timeout(Duration::from_millis(50), other.accept()).await;
        assert!(asked.is_err(), "{status}");
    }
}

fn settings_with_key(base: &str) -> SpeechSettings {
    let key_env = Some("SPEECH_KEY".to_owned());
    SpeechSettings { stt_key_env: key_env.clone(), tts_key_env: key_env, ..settings(base) }
}

#[tokio::test]
async fn audio_and_languages_of_a_client_write_no_fields_of_a_form() {
    let mut marks = Vec::new();
    for _ in 0..2 {
        let said = br#"{"text":"Yes."}"#;
        let (base, request) = http(answer("200 OK", "application/json", said)).await;
        let field = "en\r\n--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nlarge";
        // Samples that spell the boundary that the form before had.
        let spelled = format!("\r\n--{}\r\n", marks.last().map_or("", String::as_str));
        let samples = speech::pcm::SampleBytes::default().push(spelled.as_bytes());
        both(&base).0.hear("ann", &samples, Some(field)).await.unwrap();
        let request = request.await.unwrap();
        assert!(!request.contains("large"), "{request}");
        let mark = request.split("boundary=").nth(1).and_then(|rest| rest.lines().next()).unwrap().to_owned();
        assert_eq!(request.matches(&format!("--{mark}\r\n")).count(), 3, "{request}");
        marks.push(mark);
    }
    assert_ne!(marks[0], marks[1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    // Sends anything: the request ends, and nothing breaks.
    #[test]
    fn random_answers_break_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200), as_event in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (ears, voice) = both(&format!("wyoming://{}", listener.local_addr().unwrap()));
            let head = format!("{{\"type\":\"audio-chunk\",\"data\":{{\"rate\":8000}},\"payload_length\":{}}}\n", bytes.len());
            let answer = [if as_event { head.as_bytes() } else { b"" }, &bytes].concat();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.write_all(&answer).await;
                }
            });
            assert!(ears.hear("ann", &[0; 160], None).await.is_err());
            ears.claim_streaming();
            let listening = ears.listen(None, 100).unwrap();
            listening.hear(vec![0; 160]);
            assert!(listening.finish().await.is_err());
            assert!(all(voice.say("ann", "Hello.".into(), WantedVoice::default())).await.is_err());
        });
    }
}
