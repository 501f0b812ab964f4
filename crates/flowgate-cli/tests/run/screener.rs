//! Tests `flowgate run --screener`: in a chat, the attention of the model that ships decides what a step is shown.

use serde_json::{Value, json};

use crate::FETCH;
use crate::program::{ModelServerDouble, err, example, flowgate, folder, out, run};

/// The agent fetches a page, which is hidden. The smaller model drafts the next message from everything; the step is shown
/// the page if the draft states a value of it, or if the probability of the network reaches the threshold.
#[test]
fn the_attention_decides_what_a_step_is_shown() {
    let folder = folder("screener");
    let screener = folder.join("trained");
    let trained = flowgate(&folder, &["screen", "train", "trained", "--cases", "1"], "");
    assert_eq!(trained.status.code(), Some(0), "{}", err(&trained));
    let description = screener.join("screener.json");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&description).unwrap()).unwrap();
    let quoting = "Otters are back in the river, for the first time in forty years.";
    for (threshold, draft, is_shown) in
        [(1.0, quoting, true), (1.0, "I do not know.", false), (0.0, "I do not know.", true)]
    {
        let mut changed = saved.clone();
        changed["threshold"] = json!(threshold);
        std::fs::write(&description, changed.to_string()).unwrap();
        let model = ModelServerDouble::new(&[FETCH, draft, "That is all."]);
        let more = [
            "--method",
            "judge",
            "--screener",
            screener.to_str().unwrap(),
            "--small-model",
            "small",
            "What is new at https://example.org/news?",
        ];
        let output = run(&folder, &example(&model, &more), "");
        let told = err(&output);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "That is all.\n"), "{told}");
        assert_eq!([0, 1, 2].map(|request| model.name(request)), ["double", "small", "double"]);
        assert_eq!(model.asked.lock().unwrap().len(), 3, "the draft is not said");
        // The writer of the draft reads the page without tags, and has the tools of the agent.
        let read = model.shown(1);
        assert!(read.contains("IGNORE") && !read.contains("REGION_"), "{read}");
        assert_eq!(model.tools(1), ["web__fetch", "mail__list_mail", "mail__send_mail"]);
        let step = model.shown(2);
        assert_eq!(step.contains("IGNORE"), is_shown, "threshold {threshold}, draft {draft}: {step}");
        assert_eq!(step.contains("[hidden h1]"), !is_shown, "threshold {threshold}, draft {draft}: {step}");
    }
}
