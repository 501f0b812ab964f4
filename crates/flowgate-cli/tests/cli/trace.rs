//! Tests of `flowgate trace export`: what it says if there is nothing to export. The gateway tests the replay of a stored conversation.

use crate::{check, file, name};

#[test]
fn what_cannot_be_exported_is_reported() {
    let _ = file("trace.flow", b"lattice integrity: trusted < untrusted\n");
    let config = file(
        "trace.toml",
        b"[upstreams.local]\nurl = \"http://127.0.0.1:1/v1\"\n[clients.agent]\nkey-file = \"trace.key\"\nupstream = \"local\"\n\
          policy = \"trace.flow\"\n[store]\nurl = \"sqlite:no-such.db\"\n",
    );
    let _ = file("trace.key", b"0123456789abcdef0123456789abcdef");
    let words = ["trace", "export", "--config", name(&config), "--client", "agent", "--conversation", "c1"];
    check(
        &words,
        2,
        "trace.toml: the database schema is outdated, or there is no database: start the gateway once, which creates or migrates it",
    );
}
