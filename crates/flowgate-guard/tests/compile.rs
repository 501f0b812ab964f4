//! No tool runs without evidence that its call was judged, and no evidence is made outside the monitor: such programs do
//! not compile. `TRYBUILD=overwrite cargo test -p flowgate-guard --test compile` writes the compiler's words anew.

#[test]
fn programs_that_go_round_the_monitor_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile/*.rs");
}
