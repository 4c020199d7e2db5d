use super::frames::{BINARY, CLOSE, CONTINUATION, ClientFrame, LengthForm, PING, PONG, TEXT, close, frame, part};

pub struct Case {
    pub name: String,
    pub sent: Vec<Vec<u8>>,
    pub expected: Vec<Expect>,
}

#[derive(Clone, Debug)]
pub enum Expect {
    Answer(String),
    Pong(Vec<u8>),
    /// A close with one of these codes, and then the end.
    Close(&'static [u16]),
    /// The end, with no answer before it. A close with one of these codes may come before.
    NoAnswer(&'static [u16]),
}

/// A message whose answer repeats this word.
pub type Asking = fn(&str) -> String;

const PROTOCOL: &[u16] = &[1002];
const NO_TEXT: &[u16] = &[1007];
const TOO_LARGE: &[u16] = &[1009];
const NORMAL: &[u16] = &[1000];

/// `most_frame` and `most_message` are limits of the service, in bytes.
pub fn cases(asking: Asking, most_frame: usize, most_message: usize) -> Vec<Case> {
    let mut cases = Table { asking, cases: Vec::new() };
    messages(&mut cases);
    control_frames(&mut cases);
    reserved(&mut cases);
    fragments(&mut cases);
    utf8(&mut cases);
    closes(&mut cases);
    limits(&mut cases, most_frame, most_message);
    cases.cases
}

struct Table {
    asking: Asking,
    cases: Vec<Case>,
}

impl Table {
    fn add(&mut self, name: impl Into<String>, frames: Vec<ClientFrame>, expected: Vec<Expect>) {
        let sent = frames.iter().map(ClientFrame::bytes).collect();
        self.cases.push(Case { name: name.into(), sent, expected });
    }

    /// The same bytes, one by one.
    fn chopped(&mut self, name: &str, frames: Vec<ClientFrame>, expected: Vec<Expect>) {
        let bytes: Vec<u8> = frames.iter().flat_map(ClientFrame::bytes).collect();
        self.cases.push(Case { name: name.to_owned(), sent: bytes.chunks(1).map(<[u8]>::to_vec).collect(), expected });
    }

    fn ask(&self, word: &str) -> Vec<u8> {
        (self.asking)(word).into_bytes()
    }

    /// Returns a request of this size, filled with spaces, which JSON allows.
    fn ask_of_size(&self, word: &str, bytes: usize) -> Vec<u8> {
        let mut message = self.ask(word);
        message.resize(bytes.max(message.len()), b' ');
        message
    }
}

fn answer(word: &str) -> Vec<Expect> {
    vec![Expect::Answer(word.to_owned())]
}

fn closed(codes: &'static [u16]) -> Vec<Expect> {
    vec![Expect::Close(codes)]
}

fn messages(table: &mut Table) {
    for bytes in [125, 126, 127, 128, 255, 65_535, 65_536, 65_537] {
        let message = table.ask_of_size("sized", bytes);
        table.add(format!("a text of {bytes} bytes"), vec![frame(TEXT, message.clone())], answer("sized"));
        table.add(format!("a text of {bytes} bytes, chopped"), vec![frame(TEXT, message)], answer("sized"));
        if let Some(case) = table.cases.last_mut() {
            case.sent = case.sent.concat().chunks(997).map(<[u8]>::to_vec).collect();
        }
    }
    let [first, second] = [table.ask("first"), table.ask("second")];
    let both = [frame(TEXT, first).bytes(), frame(TEXT, second).bytes()].concat();
    let expected = [answer("first"), answer("second")].concat();
    table.cases.push(Case { name: "two messages in one write".to_owned(), sent: vec![both], expected });
    for (name, length) in [("two", LengthForm::TwoBytes), ("eight", LengthForm::EightBytes)] {
        let message = ClientFrame { length, ..frame(TEXT, table.ask("short")) };
        // RFC 6455 wants the shortest form of a sender, and nothing of a reader.
        table.add(format!("a short length in {name} bytes"), vec![message], answer("short"));
    }
    let message = table.ask("bytewise");
    table.chopped("a text byte by byte", vec![frame(TEXT, message)], answer("bytewise"));
    let message = table.ask("after");
    table.add("an empty text", vec![frame(TEXT, ""), frame(TEXT, message)], answer("after"));
    table.add("bytes in the place of text", vec![frame(BINARY, [0, 1, 254, 255])], answer("this one is binary"));
}

fn control_frames(table: &mut Table) {
    let after = table.ask("after");
    let payloads: [(&str, Vec<u8>); 4] = [
        ("nothing", vec![]),
        ("text", b"hello".to_vec()),
        ("bytes", vec![0, 255, 254, 128]),
        ("125 bytes", vec![254; 125]),
    ];
    for (name, payload) in payloads {
        let pong = vec![Expect::Pong(payload.clone())];
        table.add(format!("a ping with {name}"), vec![frame(PING, payload.clone())], pong.clone());
        table.chopped(&format!("a ping with {name}, byte by byte"), vec![frame(PING, payload)], pong);
    }
    table.add("a ping of 126 bytes", vec![frame(PING, vec![254; 126])], closed(PROTOCOL));
    table.add("a pong of 126 bytes", vec![frame(PONG, vec![254; 126])], closed(PROTOCOL));
    table.add("a pong that nothing asked for", vec![frame(PONG, "x"), frame(TEXT, after.clone())], answer("after"));
    let pongs = vec![frame(PONG, "x"), frame(PING, "y"), frame(PONG, "z"), frame(TEXT, after)];
    let expected = [vec![Expect::Pong(b"y".to_vec())], answer("after")].concat();
    table.add("a ping between pongs", pongs, expected);
    let pings: Vec<ClientFrame> = (0..10_u8).map(|number| frame(PING, [number])).collect();
    let pongs: Vec<Expect> = (0..10_u8).map(|number| Expect::Pong(vec![number])).collect();
    table.add("ten pings", pings.clone(), pongs.clone());
    table.chopped("ten pings, byte by byte", pings, pongs);
}

fn reserved(table: &mut Table) {
    let after = table.ask("after");
    for reserved in 1..8 {
        for (name, opcode) in [("text", TEXT), ("ping", PING), ("close", CLOSE)] {
            let payload = if opcode == TEXT { after.clone() } else { Vec::new() };
            let wrong = ClientFrame { reserved, ..frame(opcode, payload) };
            table.add(
                format!("reserved bits {reserved:03b} in a {name}"),
                vec![wrong, frame(PING, "")],
                closed(PROTOCOL),
            );
        }
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        table.add(format!("the opcode {opcode}"), vec![frame(opcode, "")], closed(PROTOCOL));
        let wrong = vec![frame(opcode, "some words"), frame(TEXT, after.clone())];
        table.add(format!("the opcode {opcode} with words"), wrong, closed(PROTOCOL));
    }
    let unmasked = ClientFrame { is_masked: false, ..frame(TEXT, after.clone()) };
    table.add("a text without a mask", vec![unmasked], closed(PROTOCOL));
    let unmasked = ClientFrame { is_masked: false, ..frame(PING, "") };
    table.add("a ping without a mask", vec![unmasked], closed(PROTOCOL));
}

fn fragments(table: &mut Table) {
    let message = table.ask("fragmented");
    let (head, tail) = message.split_at(message.len() / 2);
    let expected = answer("fragmented");
    table.add("two fragments", vec![part(TEXT, head), frame(CONTINUATION, tail)], expected.clone());
    let mut bytes: Vec<ClientFrame> = message.chunks(1).map(|byte| part(CONTINUATION, byte)).collect();
    bytes[0].opcode = TEXT;
    bytes.push(frame(CONTINUATION, ""));
    table.add("fragments of one byte", bytes.clone(), expected.clone());
    let with_pings: Vec<ClientFrame> = bytes.into_iter().flat_map(|part| [frame(PING, "p"), part]).collect();
    let pongs = vec![Expect::Pong(b"p".to_vec()); message.len() + 1];
    table.add("fragments of one byte with pings between", with_pings, [pongs, expected.clone()].concat());
    let empty = vec![part(TEXT, ""), part(CONTINUATION, message.clone()), frame(CONTINUATION, "")];
    table.add("empty fragments around the words", empty, expected.clone());
    let with_ping = vec![part(TEXT, head), frame(PING, "between"), frame(CONTINUATION, tail)];
    let pong = Expect::Pong(b"between".to_vec());
    table.add("a ping between fragments", with_ping.clone(), [vec![pong.clone()], expected.clone()].concat());
    table.chopped("a ping between fragments, byte by byte", with_ping, [vec![pong], expected.clone()].concat());
    let with_pong = vec![part(TEXT, head), frame(PONG, "between"), frame(CONTINUATION, tail)];
    table.add("a pong between fragments", with_pong, expected);

    table.add("a ping in fragments", vec![part(PING, "a"), frame(CONTINUATION, "b")], closed(PROTOCOL));
    table.add("a pong in fragments", vec![part(PONG, "a"), frame(CONTINUATION, "b")], closed(PROTOCOL));
    table.add("a close in fragments", vec![part(CLOSE, [3, 232]), frame(CONTINUATION, "b")], closed(PROTOCOL));
    let lonely = vec![frame(CONTINUATION, message.clone())];
    table.add("the end of nothing", lonely, closed(PROTOCOL));
    table.add("a part of nothing", vec![part(CONTINUATION, message.clone())], closed(PROTOCOL));
    let unended = vec![part(TEXT, head), frame(TEXT, message.clone())];
    table.add("a text before the last one's end", unended, closed(PROTOCOL));
    let unended = vec![part(TEXT, head), part(TEXT, tail)];
    table.add("a text's begin before the last one's end", unended, closed(PROTOCOL));
    let after_end = vec![part(TEXT, head), frame(CONTINUATION, tail), frame(CONTINUATION, tail)];
    // What was asked may be answered before.
    table.add("more after the end", after_end, closed(PROTOCOL));
}

fn utf8(table: &mut Table) {
    let word = "Grüße 水 🍉 κόσμε";
    let message = table.ask(word);
    let expected = answer(word);
    table.add("letters of two, three and four bytes", vec![frame(TEXT, message.clone())], expected.clone());
    for at in (1..message.len()).filter(|at| message[*at] & 0xc0 == 0x80) {
        let (head, tail) = message.split_at(at);
        let name = format!("a letter in two fragments, at byte {at}");
        table.add(name, vec![part(TEXT, head), frame(CONTINUATION, tail)], expected.clone());
    }
    let mut bytes: Vec<ClientFrame> = message.chunks(1).map(|byte| part(CONTINUATION, byte)).collect();
    bytes[0].opcode = TEXT;
    bytes.push(frame(CONTINUATION, ""));
    table.add("letters in fragments of one byte", bytes, expected);

    let broken: [(&str, &[u8]); 17] = [
        ("a byte that follows nothing", b"\x80"),
        ("two of them", b"\x80\xbf"),
        ("254", b"\xfe"),
        ("255", b"\xff"),
        ("two bytes cut short", b"\xc3"),
        ("three bytes cut short", b"\xe6\xb0"),
        ("four bytes cut short", b"\xf0\x9f\x8d"),
        ("a slash in two bytes", b"\xc0\xaf"),
        ("a slash in three bytes", b"\xe0\x80\xaf"),
        ("a slash in four bytes", b"\xf0\x80\x80\xaf"),
        ("the largest of two bytes in three", b"\xe0\x9f\xbf"),
        ("the largest of three bytes in four", b"\xf0\x8f\xbf\xbf"),
        ("half a surrogate", b"\xed\xa0\x80"),
        ("a pair of surrogates", b"\xed\xa0\x80\xed\xb0\x80"),
        ("beyond the last letter", b"\xf4\x90\x80\x80"),
        ("five bytes", b"\xf8\x88\x80\x80\x80"),
        ("six bytes", b"\xfc\x84\x80\x80\x80\x80"),
    ];
    for (name, broken) in broken {
        let message = [b"{\"type\":\"", broken, b"\"}"].concat();
        table.add(format!("no text: {name}"), vec![frame(TEXT, message)], closed(NO_TEXT));
        table.add(format!("no text alone: {name}"), vec![frame(TEXT, broken)], closed(NO_TEXT));
        let parts = vec![part(TEXT, "{\"type\":\""), part(CONTINUATION, broken), frame(CONTINUATION, "\"}")];
        table.add(format!("no text in fragments: {name}"), parts, closed(NO_TEXT));
        let mut bytes: Vec<ClientFrame> = broken.chunks(1).map(|byte| part(CONTINUATION, byte)).collect();
        bytes[0].opcode = TEXT;
        bytes.push(frame(CONTINUATION, "x"));
        table.add(format!("no text byte by byte: {name}"), bytes, closed(NO_TEXT));
    }
}

fn closes(table: &mut Table) {
    let after = table.ask("after");
    table.add("a close without a code", vec![frame(CLOSE, "")], vec![Expect::NoAnswer(&[1000, 1005])]);
    table.add("a close of one byte", vec![frame(CLOSE, [3])], closed(PROTOCOL));
    table.add("a close with a reason", vec![close(1000, "that is all")], closed(NORMAL));
    table.add("a close with the longest reason", vec![close(1000, [b'x'; 123])], closed(NORMAL));
    table.add("a close with a longer one", vec![close(1000, [b'x'; 124])], closed(PROTOCOL));
    table.add(
        "a close whose reason is no text",
        vec![close(1000, b"\xce\xba\xe1\xbd\xb9\xcf\xed\xa0\x80")],
        closed(&[1007, 1002]),
    );
    table.add("a text after a close", vec![close(1000, ""), frame(TEXT, after.clone())], closed(NORMAL));
    table.add("a ping after a close", vec![close(1000, ""), frame(PING, "x")], closed(NORMAL));
    table.add("two closes", vec![close(1000, ""), close(1000, "")], closed(NORMAL));
    let (head, tail) = after.split_at(4);
    let fragments = vec![part(TEXT, head), close(1000, ""), frame(CONTINUATION, tail)];
    table.add("a close between fragments", fragments, closed(NORMAL));
    table.chopped("a close byte by byte", vec![close(1000, "bye")], closed(NORMAL));
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        table.add(format!("a close with {code}"), vec![close(code, "")], vec![Expect::NoAnswer(ANY_GOOD)]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        table.add(format!("a close with {code}, which is none"), vec![close(code, "")], closed(PROTOCOL));
    }
}

/// The code is given back.
const ANY_GOOD: &[u16] = &[1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999];

fn limits(table: &mut Table, most_frame: usize, most_message: usize) {
    let large = table.ask_of_size("large", most_frame);
    table.add("the largest frame", vec![frame(TEXT, large)], answer("large"));
    table.add("a frame that is larger", vec![frame(TEXT, vec![b' '; most_frame + 1])], closed(TOO_LARGE));
    let most = table.ask_of_size("most", most_message);
    let mut parts: Vec<ClientFrame> = most.chunks(most_frame / 2).map(|bytes| part(CONTINUATION, bytes)).collect();
    parts[0].opcode = TEXT;
    let last = parts.len() - 1;
    parts[last].is_final = true;
    table.add("the largest message", parts.clone(), answer("most"));
    parts[last].is_final = false;
    parts.push(frame(CONTINUATION, " "));
    table.add("a message that is larger", parts, closed(TOO_LARGE));
    for (name, claimed) in [("2^20 and one", (1 << 20) + 1), ("2^32", 1 << 32), ("2^62", 1 << 62)] {
        let claims = ClientFrame { length: LengthForm::Claimed(claimed), ..frame(TEXT, "x") };
        table.add(format!("a frame that claims {name} bytes"), vec![claims], closed(TOO_LARGE));
    }
    let claims = ClientFrame { length: LengthForm::Claimed(u64::MAX), ..frame(TEXT, "x") };
    table.add("a frame whose length has the highest bit", vec![claims], closed(&[1002, 1009]));
}
