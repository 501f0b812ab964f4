//! Trains a small model on generated texts: `train FOLDER [STEPS]`, which continues what the folder has.
//!
//! Prints the step, the loss of the step, and every hundredth step the loss of examples that are not learned from. Saves at each of them.

#![expect(clippy::print_stdout, reason = "this is a program")]

use std::error::Error;
use std::path::Path;

use flowgate_lm::local::train::{Corpus, Example, Trainer, TrainingSettings};

/// The numbers of the examples that are not learned from.
const HELD_OUT: std::ops::Range<usize> = 1_000_000_000..1_000_000_032;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: train FOLDER [STEPS]")?;
    let folder = Path::new(&folder);
    let corpus = Corpus::new(1);
    let mut trainer = if folder.join("training.json").exists() {
        Trainer::resume(folder)?
    } else {
        let mut settings = TrainingSettings::default();
        if let Some(steps) = arguments.next() {
            settings.steps = steps.parse()?;
        }
        Trainer::new(settings, &corpus)?
    };
    println!("{} weights, {} steps done", trainer.weight_count(), trainer.steps_done());
    let held_out: Vec<Example> = HELD_OUT.map(|index| corpus.example(index)).collect();
    while !trainer.is_done() {
        let loss = trainer.step(&corpus)?;
        if trainer.steps_done().is_multiple_of(10) {
            println!("{} {loss:.4}", trainer.steps_done());
        }
        if trainer.steps_done().is_multiple_of(100) || trainer.is_done() {
            println!("{} held out {:.4}", trainer.steps_done(), trainer.evaluate(&held_out)?);
            trainer.save(folder)?;
        }
    }
    Ok(())
}
