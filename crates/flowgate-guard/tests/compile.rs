//! Tests that programs that bypass the monitor do not compile: no tool runs without evidence that its call was judged,
//! and only the monitor creates evidence. `TRYBUILD=overwrite cargo test -p flowgate-guard --test compile`
//! rewrites the expected compiler messages.

#[test]
fn programs_that_go_round_the_monitor_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile/*.rs");
}
