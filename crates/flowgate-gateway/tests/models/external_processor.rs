//! Tests of the stream on which Envoy asks: no failure ends it with the status 0, after which Envoy would continue without
//! the gateway. `compat/behind/run` tests the judgements with Envoy itself.

use flowgate_gateway::limits::ServerLimits;
use h2::client::Builder;
use hyper::body::Bytes;
use hyper::{Method, Request};
use tokio::net::TcpStream;

use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestGateway};

const ROUTE: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// What a stream has received: the status of HTTP, the answers, and the status of gRPC at its end.
#[derive(Debug)]
struct StreamEnd {
    status: u16,
    answers: Vec<u8>,
    grpc: Option<String>,
    /// The text next to the status of gRPC.
    message: Option<String>,
}

/// Sends these pieces on a stream with a key, and ends it if `ends`.
async fn send(
    gateway: &TestGateway,
    key: &str,
    content_type: &str,
    pieces: Vec<Vec<u8>>,
    ends: bool,
) -> StreamEnd {
    let socket = TcpStream::connect(gateway.address).await.unwrap();
    let (mut client, connection) = Builder::new().handshake::<_, Bytes>(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{}{ROUTE}", gateway.address))
        .header("content-type", content_type)
        .header("authorization", format!("Bearer {key}"))
        .body(())
        .unwrap();
    let (response, mut stream) = client.send_request(request, false).unwrap();
    for piece in pieces {
        // The gateway may have ended the stream.
        let _ = stream.send_data(piece.into(), false);
    }
    if ends {
        let _ = stream.send_data(Bytes::new(), true);
    }
    let response = response.await.unwrap();
    let (status, mut body, mut answers) = (response.status().as_u16(), response.into_body(), Vec::new());
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        answers.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.ok().flatten();
    let trailer =
        |name: &str| trailers.as_ref().and_then(|all| Some(all.get(name)?.to_str().unwrap().to_owned()));
    let (grpc, message) = (trailer("grpc-status"), trailer("grpc-message"));
    connection.abort();
    StreamEnd { status, answers, grpc, message }
}

/// Frames a message of gRPC.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

/// A field of a message, with its length.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128);
    [&[tag << 3 | 2, length], content].concat()
}

/// The head of a request for a chat at this path, as Envoy sends it.
fn head_to(path: &str) -> Vec<u8> {
    let header =
        |name: &str, value: &str| field(1, &[field(1, name.as_bytes()), field(3, value.as_bytes())].concat());
    let headers = [header(":method", "POST"), header(":path", path)].concat();
    field(2, &field(1, &headers))
}

/// The head of a request for chat completions.
fn head() -> Vec<u8> {
    head_to("/v1/chat/completions")
}

/// A whole body of a request.
fn body(text: &str) -> Vec<u8> {
    // `end_of_stream` is true.
    field(4, &[field(1, text.as_bytes()), vec![2 << 3, 1]].concat())
}

/// Behind Envoy, the model's server would run a tool of the provider without a judgement, so the request is refused even
/// if the policy labels the outputs of the tool.
#[test]
fn a_tool_of_the_provider_is_refused() {
    let text = "[clients.agent]\nkey-from = \"KEY\"\nupstream = \"double\"\npolicy = \"policy.flow\"\nguardrail = true\n\
        user-messages = \"trust-unmarked-even-if-pasted\"\n\
        [upstreams.double]\nurl = \"http://127.0.0.1:1/v1\"\napi = \"messages\"\n";
    let search = "label out.content as untrusted if:\n    (out: ToolOutput) is tool:web_search\n\
        require top if:\n    (call: ToolCall) is tool:web_search\n";
    let home = GatewayHome::new(text, &format!("{POLICY}{search}"));
    let gateway = home.start();
    let run = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (tools, is_refused) in
        [("", false), (r#","tools":[{"type":"web_search_20250305","name":"web_search"}]"#, true)]
    {
        let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[]{tools}}}"#);
        let pieces = vec![framed(&head_to("/v1/messages")), framed(&body(&text))];
        let ended = run.block_on(send(&gateway, KEY, "application/grpc", pieces, true));
        let answers = String::from_utf8_lossy(&ended.answers).into_owned();
        let why = "the request declares a tool that the provider runs";
        assert_eq!(answers.contains(why), is_refused, "{tools}: {answers}");
    }
}

/// A message that is too large is refused for good, and one for which there is no room now may be sent again. Envoy and
/// the log learn which it was.
#[test]
fn a_message_without_room_is_not_one_that_is_too_large() {
    let text = "[clients.agent]\nkey-from = \"KEY\"\npolicy = \"policy.flow\"\nguardrail = true\n\
        [upstreams.double]\nurl = \"http://127.0.0.1:1/v1\"\n";
    let run = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let large = vec![0, 0x7f, 0xff, 0xff, 0xff];
    for (limits, piece, grpc, message, limit) in [
        (ServerLimits::default(), large, "8", "a larger --max-body", "bytes of one body"),
        (
            ServerLimits { bodies: 8, ..ServerLimits::default() },
            framed(&head()),
            "14",
            "no room for the message now",
            "bytes of all bodies that are read or evaluated",
        ),
    ] {
        let (gateway, mut log) = GatewayHome::new(text, POLICY).start_within(limits);
        let ended = run.block_on(send(&gateway, KEY, "application/grpc", vec![piece], false));
        assert_eq!((ended.status, ended.grpc.as_deref()), (200, Some(grpc)), "{ended:?}");
        assert!(ended.answers.is_empty() && ended.message.unwrap().contains(message), "{limit}");
        assert_eq!(log.next("limit")["limit"], limit);
    }
}

/// Behind Envoy, the gateway keeps no answers, so what refers to one is refused: nothing of it was judged.
#[test]
fn what_refers_to_an_earlier_answer_is_refused() {
    let text = "[clients.agent]\nkey-from = \"KEY\"\nupstream = \"double\"\npolicy = \"policy.flow\"\nguardrail = true\n\
        [upstreams.double]\nurl = \"http://127.0.0.1:1/v1\"\napi = \"responses\"\n";
    let home = GatewayHome::new(text, POLICY);
    let gateway = home.start();
    let run = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let earlier =
        "refers to a chat at the provider, which this gateway cannot read and judge: send the whole chat";
    let item = "refers to items at the provider, which this gateway cannot read and judge: send the items themselves";
    for (fields, why) in [
        (r#""input":"hi","previous_response_id":"resp_1_1_0123456789abcdef_c""#, earlier),
        (r#""input":[{"type":"item_reference","id":"msg_resp_1_1_0123456789abcdef_c"}]"#, item),
        (r#""input":[{"type":"item_reference","id":"rs_resp_1_1_0123456789abcdef_c_0"}]"#, item),
        (r#""input":[{"type":"item_reference","id":"msg_1"}]"#, "has no label"),
    ] {
        let text = format!(r#"{{"model":"m",{fields}}}"#);
        let pieces = vec![framed(&head_to("/v1/responses")), framed(&body(&text))];
        let ended = run.block_on(send(&gateway, KEY, "application/grpc", pieces, true));
        let answers = String::from_utf8_lossy(&ended.answers).into_owned();
        assert!(answers.contains(why), "{fields}: {answers}");
    }
}

#[test]
fn no_failure_ends_a_stream_cleanly() {
    let text = "[clients.agent]\nkey-from = \"KEY\"\npolicy = \"policy.flow\"\nguardrail = true\n\
        [upstreams.double]\nurl = \"http://127.0.0.1:1/v1\"\n\
        [clients.other]\nkey-from = \"OTHER\"\nupstream = \"double\"\npolicy = \"policy.flow\"\n";
    let home = GatewayHome::new(text, POLICY);
    let (gateway, _) = home.start_within(ServerLimits { body: 4096, ..ServerLimits::default() });
    let run = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let check =
        |key: &str, pieces: Vec<Vec<u8>>, ends: bool, status: u16, grpc: Option<&str>, has_answer: bool| {
            let shown = format!("{pieces:?}");
            let ended = run.block_on(send(&gateway, key, "application/grpc", pieces, ends));
            let found = (ended.status, ended.grpc.as_deref(), !ended.answers.is_empty());
            assert_eq!(found, (status, grpc, has_answer), "{shown}: {ended:?}");
            ended.answers
        };
    // Only Envoy's own end is clean.
    check(KEY, vec![], true, 200, Some("0"), false);
    let answer = check(KEY, vec![framed(&head())], true, 200, Some("0"), true);
    // `request_headers`, and not `immediate_response`.
    assert_eq!(answer[5], 1 << 3 | 2, "{answer:?}");
    // The head in two pieces, and two messages in one.
    let head_again = framed(&head());
    let (first, second) = head_again.split_at(7);
    check(KEY, vec![first.to_vec(), second.to_vec()], true, 200, Some("0"), true);
    let both = [framed(&head()), framed(&head())].concat();
    let answers = check(KEY, vec![both], true, 200, Some("0"), true);
    // A second head is refused, at `immediate_response`.
    let second_answer =
        5 + usize::try_from(u32::from_be_bytes([answers[1], answers[2], answers[3], answers[4]])).unwrap();
    assert_eq!(answers[second_answer + 5], 7 << 3 | 2, "{answers:?}");
    // Malformed: no message, a compressed one, a part of one, one that is too large.
    check(KEY, vec![framed(&[0xff, 0xff])], false, 200, Some("3"), false);
    check(KEY, vec![[&[1], &framed(&head())[1..]].concat()], false, 200, Some("3"), false);
    check(KEY, vec![vec![0, 0, 0]], true, 200, Some("3"), false);
    check(KEY, vec![head_again[..9].to_vec()], true, 200, Some("3"), false);
    check(KEY, vec![vec![0, 0x7f, 0xff, 0xff, 0xff]], false, 200, Some("8"), false);
    // An empty message fits no stage, and is refused.
    let refused = check(KEY, vec![framed(&[])], true, 200, Some("0"), true);
    assert_eq!(refused[5], 7 << 3 | 2, "{refused:?}");
    check("no-key-of-any-client", vec![], true, 401, None, true);
    check(OTHER_KEY, vec![], true, 403, None, true);
    let ended = run.block_on(send(&gateway, KEY, "application/json", vec![], true));
    assert_eq!((ended.status, ended.grpc), (415, None));
}
