//! Tests of extern predicates, in every command that evaluates them.

use std::io::Write;

use crate::{POLICY, TRACE, check, file, name};

#[test]
fn predicates_are_answered_by_whom_the_operator_names() {
    use std::io::Read;

    let policy = file(
        "extern.flow",
        b"extern is_customer(email: str) -> bool\nraise \"no customer\" if:\n    (c: ToolCall)\n    not is_customer(c.arguments.to)\n",
    );
    let trace = file(
        "extern.json",
        br#"[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"send","arguments":"{\"to\":\"ann@example.org\"}"}},
            {"id":"2","function":{"name":"send","arguments":"{\"to\":\"eve@example.org\"}"}}]}]"#,
    );
    let (policy, trace) = (name(&policy), name(&trace));
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in service.incoming() {
            let mut stream = stream.unwrap();
            let (mut bytes, mut heard) = ([0; 4096], String::new());
            while !heard.ends_with('}') {
                let count = stream.read(&mut bytes).unwrap();
                heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let answer = format!("{{\"answer\": {}}}", heard.contains("ann@example.org"));
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
            stream.write_all((head + &answer).as_bytes()).unwrap();
        }
    });
    let by = format!("is_customer=http://{address}/");
    check(&["analyze", policy, trace, "--predicate", &by], 1, "messages.0.tool_calls.1\n");
    check(&["analyze", policy, trace, "--predicate", &by], 1, "1 run: 1 match");
    check(&["check", policy, trace, "--predicate", &by], 1, "1 call permitted, 0 to be confirmed, 1 denied");
    check(
        &["explain", policy, trace, "--predicate", &by],
        1,
        "a rule stops the call: only a change of the rule would permit it",
    );

    check(
        &["analyze", policy, trace],
        2,
        "no service answers the predicate `is_customer`; add --predicate is_customer=URL",
    );
    let closed = "is_customer=http://127.0.0.1:1/";
    check(&["analyze", policy, trace, "--predicate", closed], 2, "failed: the service cannot be reached");
    check(
        &["check", policy, trace, "--predicate", closed],
        1,
        "0 calls permitted, 0 to be confirmed, 2 denied",
    );
    check(&["check", POLICY, TRACE, "--predicate", closed], 2, "declares no `extern is_customer`");
    check(
        &["check", policy, "--predicate", "is_customer=https://a.b"],
        2,
        "the address does not begin with http://",
    );
    check(&["serve", "--predicate", "a=http://a.b", "--predicate", "a=http://c.d"], 2, "`a` has two sources");
    #[cfg(not(feature = "wasm"))]
    check(
        &["check", policy, trace, "--predicate", "is_customer=a.wasm"],
        2,
        "build it with `--features wasm`",
    );
    #[cfg(feature = "wasm")]
    {
        // The module answers `true` if the arguments end with `n@example.org"]`, and `false` otherwise.
        let module = wat::parse_str(
            r#"(module (memory (export "memory") 1) (data (i32.const 0) "truefalse")
                (func (export "alloc") (param i32) (result i32) i32.const 1024)
                (func (export "is_customer") (param $at i32) (param $length i32) (result i64)
                    local.get $at local.get $length i32.add i32.const 15 i32.sub i32.load8_u i32.const 0x6e i32.eq
                    if (result i64) i64.const 4 else i64.const 0x4_00000005 end))"#,
        );
        let module = format!("is_customer={}", name(&file("checks.wasm", &module.unwrap())));
        check(&["analyze", policy, trace, "--predicate", &module], 1, "messages.0.tool_calls.1\n");
        check(
            &["check", policy, trace, "--predicate", &module],
            1,
            "1 call permitted, 0 to be confirmed, 1 denied",
        );
        let none = format!("is_customer={}", name(&file("none.wasm", b"none")));
        check(
            &["analyze", policy, trace, "--predicate", &none],
            2,
            "none.wasm: the file is not a valid WebAssembly module: ",
        );
    }
}
