//! Declares the option `--device`, which chooses the processor that evaluates or trains a local model. The commands with
//! a local model share it; `clap` parses it.

use flowgate_lm::local::Processor;

/// The processor of a local model.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct DeviceArgs {
    /// The processor of the local model: `cpu`, or `cuda` or `cuda:NUMBER` for an Nvidia GPU, which needs a program that
    /// was built with `--features cuda`.
    #[arg(id = "device", long = "device", default_value = "cpu", value_name = "DEVICE", value_parser = processor)]
    pub(crate) processor: Processor,
}

/// The number of GPUs that can be named, from `cuda:0` to `cuda:63`.
const MAX_GPUS: usize = 64;

/// Parses the name of a processor: `cpu`, `cuda` (the first GPU) or `cuda:NUMBER`. Returns an error for a GPU if this
/// program was built without support for GPUs.
fn processor(text: &str) -> Result<Processor, String> {
    let number = match text {
        "cpu" => return Ok(Processor::Cpu),
        "cuda" => Some(0),
        other => other.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    let Some(number) = number.filter(|number| *number < MAX_GPUS) else {
        return Err("use `cpu`, `cuda`, or `cuda:` with the number of a GPU, such as `cuda:1`".to_owned());
    };
    if !cfg!(feature = "cuda") {
        return Err(
            "this program was built without support for GPUs; build it with `cargo build --release -p flowgate-cli \
            --features cuda` where the CUDA toolkit is installed, or leave `--device` out"
                .to_owned(),
        );
    }
    Ok(Processor::Cuda(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_names() {
        assert_eq!(processor("cpu"), Ok(Processor::Cpu));
        for text in ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda:64", "cuda:99999999999999999999"] {
            assert!(processor(text).unwrap_err().starts_with("use `cpu`, `cuda`, or"), "{text}");
        }
        for (text, number) in [("cuda", 0), ("cuda:0", 0), ("cuda:7", 7)] {
            match processor(text) {
                Ok(found) => assert_eq!((found, cfg!(feature = "cuda")), (Processor::Cuda(number), true)),
                Err(problem) => {
                    assert!(problem.contains("--features cuda") && !cfg!(feature = "cuda"), "{problem}");
                }
            }
        }
    }
}
