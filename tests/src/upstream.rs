//! A stand-in for a model server: the test decides what it replies, and when.

use crate::client::PATIENCE;
use crate::http::Head;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub struct StandIn {
    /// Value for `upstream.url`.
    pub url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
}

/// A reply that the service asked for. Its stream ends when this is dropped.
pub struct Asked {
    pub request: Value,
    pub trace_parent: Option<String>,
    stream: BufReader<TcpStream>,
}

impl StandIn {
    pub async fn start() -> StandIn {
        StandIn::at("127.0.0.1:0").await
    }

    pub async fn at(address: &str) -> StandIn {
        let listener = TcpListener::bind(address).await.expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let (sender, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(BufReader::new(stream), sender.clone()));
            }
        });
        StandIn { url, asked }
    }

    pub async fn next(&mut self) -> Asked {
        timeout(PATIENCE, self.asked.recv()).await.expect("something is asked").expect("it listens")
    }
}

impl Asked {
    pub async fn say(&mut self, text: &str) {
        self.chunk(json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})).await;
    }

    /// Calls a tool, after whatever was said, and is done.
    pub async fn call(mut self, name: &str, arguments: &Value) {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        let call = json!([{"index": 0, "id": "call_1", "type": "function", "function": function}]);
        self.chunk(json!({"choices": [{"index": 0, "delta": {"tool_calls": call}, "finish_reason": null}]})).await;
        self.chunk(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})).await;
        self.stream.write_all(b"data: [DONE]\n\n").await.expect("the service reads");
    }

    pub async fn done(mut self) {
        self.chunk(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})).await;
        self.stream.write_all(b"data: [DONE]\n\n").await.expect("the service reads");
    }

    pub async fn hung_up(mut self) {
        let mut byte = [0];
        // A connection that is reset is over too.
        let read = timeout(PATIENCE, self.stream.read(&mut byte)).await.expect("the service hangs up");
        assert!(matches!(read, Ok(0) | Err(_)), "the service sends something instead");
    }

    async fn chunk(&mut self, chunk: Value) {
        self.stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await.expect("the service reads");
    }
}

async fn serve(mut stream: BufReader<TcpStream>, asked: mpsc::UnboundedSender<Asked>) -> std::io::Result<()> {
    let mut head = Head::default();
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 && head.take(&line) {
        line.clear();
    }
    let length = head.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let answer = |status: &str, kind: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n").into_bytes()
    };
    if head.path.contains("/chat/completions") {
        stream.write_all(&answer("200 OK", "text/event-stream")).await?;
        let trace_parent = head.header("traceparent").map(str::to_owned);
        let request = serde_json::from_slice(&body).expect("JSON");
        let _ = asked.send(Asked { request, trace_parent, stream });
        return Ok(());
    }
    let (status, body) = if head.path.contains("/v1/models") {
        ("200 OK", json!({"data": [{"id": "stand-in"}]}))
    } else {
        ("404 Not Found", json!({"error": {"message": "there is no such path"}}))
    };
    stream.write_all(&answer(status, "application/json")).await?;
    stream.write_all(body.to_string().as_bytes()).await?;
    stream.shutdown().await
}
