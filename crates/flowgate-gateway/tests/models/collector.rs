//! A double of a collector of OpenTelemetry: it receives spans over HTTP in protobuf, and decodes them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Map, Value, json};

/// A request to a collector.
struct ReceivedExport {
    head: String,
    body: Vec<u8>,
}

/// A running double with the requests that it received.
pub(crate) struct CollectorDouble {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<ReceivedExport>>>,
}

/// A received span.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedSpan {
    pub(crate) name: String,
    /// 1 is internal, 2 a server, 3 a client.
    pub(crate) kind: i32,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) attributes: Value,
    /// The name and the attributes of each event.
    pub(crate) events: Vec<(String, Value)>,
    pub(crate) is_failed: bool,
    pub(crate) nanos: (u64, u64),
}

impl CollectorDouble {
    pub(crate) fn new() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    }

    /// Starts a double that answers each request with this text; with an empty one, it never answers.
    pub(crate) fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || serve(stream.unwrap(), &log, answer));
            }
        });
        Self { url, received }
    }

    /// Returns a collector that does not exist.
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), received: Arc::default() }
    }

    /// Returns the heads of the requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.received.lock().unwrap().iter().map(|request| request.head.clone()).collect()
    }

    /// Returns all bytes that it received, as text as far as they are text.
    pub(crate) fn bytes(&self) -> String {
        let received = self.received.lock().unwrap();
        received.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect()
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let received = self.received.lock().unwrap();
        received.iter().map(|request| ExportTraceServiceRequest::decode(&*request.body).unwrap()).collect()
    }

    /// Returns the attributes of the service that sends the spans.
    pub(crate) fn resource(&self) -> Value {
        let requests = self.requests();
        let resource = requests[0].resource_spans[0].resource.clone().unwrap();
        attributes(&resource.attributes)
    }

    /// Returns the received spans, in the order in which they ended.
    pub(crate) fn spans(&self) -> Vec<ReceivedSpan> {
        let requests = self.requests().into_iter().flat_map(|request| request.resource_spans);
        let spans = requests.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        spans.map(received).collect()
    }

    /// Returns the received spans whose names begin so.
    pub(crate) fn named(&self, name: &str) -> Vec<ReceivedSpan> {
        self.spans().into_iter().filter(|span| span.name.starts_with(name)).collect()
    }
}

fn received(span: Span) -> ReceivedSpan {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    ReceivedSpan {
        name: span.name,
        kind: span.kind,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        attributes: attributes(&span.attributes),
        events: span.events.iter().map(|event| (event.name.clone(), attributes(&event.attributes))).collect(),
        is_failed: span.status.is_some_and(|status| {
            assert_eq!(status.message, "");
            status.code == 2
        }),
        nanos: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn attributes(attributes: &[KeyValue]) -> Value {
    let mut map = Map::new();
    for attribute in attributes {
        let value =
            attribute.value.as_ref().and_then(|value| value.value.as_ref()).map_or(Value::Null, plain);
        assert_eq!(map.insert(attribute.key.clone(), value), None, "{} is there twice", attribute.key);
    }
    Value::Object(map)
}

fn plain(value: &any_value::Value) -> Value {
    match value {
        any_value::Value::StringValue(text) => json!(text),
        any_value::Value::BoolValue(is_true) => json!(is_true),
        any_value::Value::IntValue(number) => json!(number),
        any_value::Value::ArrayValue(list) => {
            list.values.iter().map(|value| value.value.as_ref().map_or(Value::Null, plain)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<ReceivedExport>>, answer: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let begin = head.len();
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
            let line = head.get(begin..).unwrap().trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0_u8; length];
        reader.read_exact(&mut body).unwrap();
        log.lock().unwrap().push(ReceivedExport { head, body });
        if answer.is_empty() {
            // Until the gateway gives up.
            let _ = reader.read_line(&mut String::new());
            return;
        }
        stream.write_all(answer.as_bytes()).unwrap();
    }
}
