//! Asks a WebAssembly module for the answer of an extern predicate. The module is a pure function of the arguments,
//! without access to anything else. `predicates` loads the modules that the operator names.
//!
//! The module imports nothing. It exports
//!
//! * `memory`,
//! * `alloc(length: i32) -> i32`, which returns the address of `length` writable bytes,
//! * a function with the name of the predicate, `(address: i32, length: i32) -> i64`, which receives the address and
//!   the length of the arguments, a JSON list in UTF-8, and returns the address of its answer in the upper 32 bits and
//!   the length in the lower ones.
//!
//! The answer is JSON. Every question runs in a fresh instance, so no state persists between questions.

use std::path::Path;
use std::time::Duration;

use flowgate::json::{self, Numbers};
use serde_json::Value;
use wasmtime::{Config, Engine, ExternType, Instance, Store, StoreLimits, StoreLimitsBuilder, Trap, ValType};

use super::{MAX_ANSWER, PredicateSource};

/// The fuel for one answer, in instructions.
const FUEL: u64 = 100_000_000;
/// The memory for one answer, in bytes.
const MEMORY: usize = 64 << 20;
/// The maximum size of a module, in bytes.
const MAX_MODULE: u64 = 32 << 20;
/// The interval at which the deadline of an answer is checked.
const EPOCH_INTERVAL: Duration = Duration::from_millis(10);

/// A compiled module and the predicate that it answers.
pub(super) struct WasmPredicateSource {
    module: wasmtime::Module,
    name: String,
}

impl std::fmt::Debug for WasmPredicateSource {
    /// Writes the name of the predicate, and leaves out the compiled module.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("name", &self.name).finish_non_exhaustive()
    }
}

impl WasmPredicateSource {
    /// Loads the module for the predicate `name` from a file. The error is a message without the path: the file cannot
    /// be read or is too large, or the module cannot answer the predicate.
    pub(super) fn load(name: &str, path: &Path) -> Result<Self, String> {
        let unreadable = |error: std::io::Error| {
            format!("the file cannot be read: {error}; check its path and its permissions")
        };
        let length = std::fs::metadata(path).map_err(unreadable)?.len();
        if length > MAX_MODULE {
            return Err(format!(
                "the module has {length} bytes, more than the limit of {MAX_MODULE}: build a smaller one"
            ));
        }
        Self::compile(name, &std::fs::read(path).map_err(unreadable)?)
    }

    /// Compiles a module, checks that it imports nothing and has the exports that a predicate needs, and starts the
    /// thread whose ticks stop an answer at its deadline.
    fn compile(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let mut config = Config::new();
        config.consume_fuel(true).epoch_interruption(true);
        let engine = Engine::new(&config).map_err(|error| {
            format!("the WebAssembly engine of this program cannot be started: {error}; name a service in place of the module")
        })?;
        let module = wasmtime::Module::from_binary(&engine, bytes).map_err(|error| {
            format!("the file is not a valid WebAssembly module: {}; build it again", error.root_cause())
        })?;
        if let Some(import) = module.imports().next() {
            return Err(format!(
                "the module imports `{}.{}`, but a module of a predicate may import nothing: build it \
                without WASI",
                import.module(),
                import.name()
            ));
        }
        // Whether the module exports a function of this name that has these parameters and this one result.
        let exports_function = |export: &str, takes: &[ValType], returns: &ValType| {
            let Some(ExternType::Func(function)) = module.get_export(export) else { return false };
            function.params().len() == takes.len()
                && function.params().zip(takes).all(|(parameter, expected)| ValType::eq(&parameter, expected))
                && function.results().len() == 1
                && function.results().all(|result| ValType::eq(&result, returns))
        };
        if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
            return Err(
                "the module exports no `memory`, which the module of a predicate needs: export it".to_owned()
            );
        }
        if !exports_function("alloc", &[ValType::I32], &ValType::I32) {
            return Err(
                "the module exports no `alloc(i32) -> i32`, which the module of a predicate needs: export it"
                    .to_owned(),
            );
        }
        if !exports_function(name, &[ValType::I32, ValType::I32], &ValType::I64) {
            return Err(format!(
                "the module exports no `{name}(i32, i32) -> i64`, which the module of a predicate needs: export it"
            ));
        }
        // Fuel bounds the work; the clock stops an answer at its deadline, which is earlier if other questions have
        // used most of the time. The thread ends with the engine.
        let weak_engine = engine.weak();
        std::thread::Builder::new()
            .name("wasm clock".to_owned())
            .spawn(move || {
                while let Some(engine) = weak_engine.upgrade() {
                    engine.increment_epoch();
                    drop(engine);
                    std::thread::sleep(EPOCH_INTERVAL);
                }
            })
            .map_err(|error| {
                format!("the thread that stops slow calls of the module cannot be started: {error}: raise the limit on threads of the process")
            })?;
        Ok(Self { module, name: name.to_owned() })
    }

    /// Calls the module in a fresh instance with the question (the arguments of the predicate, in JSON), and returns
    /// the bytes of the module's answer. The call is stopped after `time`, or when it exceeds its fuel or memory.
    fn ask(&self, question: &str, time: Duration) -> Result<Vec<u8>, WasmCallError> {
        // Bounds what the host allocates for one answer.
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY)
            .memories(1)
            .tables(4)
            .table_elements(100_000)
            .instances(1);
        let mut store: Store<StoreLimits> = Store::new(self.module.engine(), limits.build());
        // The limits are the only data of the store.
        store.limiter(|limits| limits);
        store.set_fuel(FUEL)?;
        // The deadline counts the ticks of the clock thread.
        let ticks = u64::try_from(time.as_millis() / EPOCH_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        // A deadline of 0 ticks would stop the call at once.
        store.set_epoch_deadline(ticks.max(1));
        let instance = Instance::new(&mut store, &self.module, &[])?;
        let memory = instance.get_memory(&mut store, "memory").ok_or(WasmCallError::Outside)?;
        let alloc = instance.get_typed_func::<u32, u32>(&mut store, "alloc")?;
        let answer = instance.get_typed_func::<(u32, u32), u64>(&mut store, &self.name)?;

        // The module allocates memory for the question, which is copied there; then the predicate is called.
        let length = u32::try_from(question.len()).map_err(|_| WasmCallError::Outside)?;
        let question_address = alloc.call(&mut store, length)?;
        let offset = usize::try_from(question_address).map_err(|_| WasmCallError::Outside)?;
        memory.write(&mut store, offset, question.as_bytes()).map_err(|_| WasmCallError::Outside)?;
        let returned = answer.call(&mut store, (question_address, length))?;
        // The upper 32 bits are the address of the answer in the module's memory, the lower ones its length.
        let (address, length) = (returned >> 32, returned & u64::from(u32::MAX));
        if length > u64::from(MAX_ANSWER) {
            return Err(WasmCallError::Long);
        }
        let to_offset = |address: u64| usize::try_from(address).map_err(|_| WasmCallError::Outside);
        let range = to_offset(address)?..to_offset(address + length)?;
        let bytes = memory.data(&store).get(range).ok_or(WasmCallError::Outside)?;
        Ok(bytes.to_vec())
    }
}

impl PredicateSource for WasmPredicateSource {
    /// Asks the module, and returns its answer, or why there is no valid one within `time`.
    fn answer(&self, arguments: &[Value], time: Duration) -> Result<Value, String> {
        let question = Value::Array(arguments.to_vec()).to_string();
        let answer = self.ask(&question, time).map_err(|failure| failure.to_string())?;
        let text = String::from_utf8(answer).map_err(|_| {
            "the answer of the module is not valid UTF-8: change the module so that it writes JSON in UTF-8".to_owned()
        })?;
        // `Numbers::Any`: numbers that parsers may read differently are accepted too.
        json::parse(&text, Numbers::Any).map_err(|_| {
            "the answer of the module is not valid JSON: change the module so that it writes the answer as one JSON value".to_owned()
        })
    }
}

/// The reason why a module gave no answer.
enum WasmCallError {
    /// An address or a length is outside of the module's memory.
    Outside,
    /// The answer is too long.
    Long,
    /// The module could not be run, or was stopped.
    Run(wasmtime::Error),
}

impl From<wasmtime::Error> for WasmCallError {
    /// Converts an error of the runtime: the module cannot be run, or its call was stopped.
    fn from(error: wasmtime::Error) -> Self {
        Self::Run(error)
    }
}

impl std::fmt::Display for WasmCallError {
    /// Writes the problem for the operator, without content of the question.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outside => f.write_str("the module returned an answer that is outside its memory: correct the address and the length that it returns"),
            Self::Long => write!(f, "the answer of the module is longer than {MAX_ANSWER} bytes: change the module so that it returns less"),
            Self::Run(error) => match error.downcast_ref::<Trap>() {
                Some(Trap::OutOfFuel) => {
                    write!(f, "the module exceeded the limit of {FUEL} instructions for one answer: change the module so that it computes less")
                }
                Some(Trap::Interrupt) => f.write_str("the module did not answer within the time limit: change the module so that it computes less"),
                Some(trap) => write!(f, "the module stopped: {trap}; correct the module"),
                None => write!(f, "the module cannot be run: {}; correct the module", error.root_cause()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::judged;
    use super::*;

    /// Returns a module whose predicate has this function body; the question is at 1024, an answer `true` at 0.
    fn module(body: &str) -> Result<WasmPredicateSource, String> {
        wat(&format!(
            r#"(module
                (memory (export "memory") 1)
                (data (i32.const 0) "true")
                (data (i32.const 16) "false")
                (data (i32.const 32) "yes")
                (data (i32.const 48) "[1")
                (data (i32.const 64) "\"\ff\"")
                (func (export "alloc") (param i32) (result i32) i32.const 1024)
                (func $p (export "is_customer") (param $at i32) (param $length i32) (result i64) {body}))"#
        ))
    }

    fn wat(text: &str) -> Result<WasmPredicateSource, String> {
        WasmPredicateSource::compile("is_customer", &wat::parse_str(text).unwrap())
    }

    fn check(body: &str, expected: &str) {
        assert_eq!(judged(module(body).unwrap(), Duration::from_secs(300)), expected, "{body}");
    }

    #[test]
    fn only_an_answer_is_an_answer() {
        check("i64.const 4", "nothing");
        // `true` is at 0, and `false` at 16 with five bytes.
        check("i64.const 0x10_00000005", "\"no customer\"");
        let no = |why: &str| format!("the extern predicate `is_customer` failed: {why}");
        check(
            "i64.const 0x30_00000002",
            &no(
                "the answer of the module is not valid JSON: change the module so that it writes the answer as one JSON value",
            ),
        );
        check(
            "i64.const 0x20_00000003",
            &no(
                "the answer of the module is not valid JSON: change the module so that it writes the answer as one JSON value",
            ),
        );
        check(
            "i64.const 0x40_00000003",
            &no(
                "the answer of the module is not valid UTF-8: change the module so that it writes JSON in UTF-8",
            ),
        );
        check(
            "i64.const 0xffffffff_00000004",
            &no(
                "the module returned an answer that is outside its memory: correct the address and the length that it returns",
            ),
        );
        check(
            "i64.const 0x0000fffe_00000004",
            &no(
                "the module returned an answer that is outside its memory: correct the address and the length that it returns",
            ),
        );
        check(
            "i64.const 0x00020000",
            &no(
                "the answer of the module is longer than 65536 bytes: change the module so that it returns less",
            ),
        );
        check(
            "unreachable",
            &no("the module stopped: wasm trap: wasm `unreachable` instruction executed; correct the module"),
        );
    }

    #[test]
    fn a_question_is_the_arguments_as_json() {
        // The answer is true if the question ends with `g"]`, as in `["ann@example.org"]`, and has 19 bytes.
        check(
            "local.get $at local.get $length i32.add i32.const 3 i32.sub i32.load16_u i32.const 0x2267 i32.eq \
             local.get $length i32.const 19 i32.eq i32.and \
             if (result i64) i64.const 4 else i64.const 0x10_00000005 end",
            "nothing",
        );
    }

    #[test]
    fn a_module_is_bounded() {
        let no = |why: &str| format!("the extern predicate `is_customer` failed: {why}");
        check(
            "(loop $l br $l) i64.const 4",
            &no(
                "the module exceeded the limit of 100000000 instructions for one answer: change the module so that it computes less",
            ),
        );
        let filling = "(drop (memory.grow (i32.const 900))) \
            (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 58000000)) br $l) i64.const 4";
        check(
            filling,
            &no(
                "the module exceeded the limit of 100000000 instructions for one answer: change the module so that it computes less",
            ),
        );
        let slow = module("(loop $l br $l) i64.const 4").unwrap();
        assert_eq!(
            judged(slow, Duration::from_millis(10)),
            no("the module did not answer within the time limit: change the module so that it computes less")
        );
        check(
            "local.get 0 local.get 1 call $p",
            &no("the module stopped: wasm trap: call stack exhausted; correct the module"),
        );
        // A request for memory beyond the limit fails.
        check(
            "i32.const 2000 memory.grow i32.const -1 i32.eq if (result i64) i64.const 4 else unreachable end",
            "nothing",
        );
    }

    #[test]
    fn nothing_is_remembered() {
        // Answers with true and corrupts its answer for the next time.
        let module = module(
            "(i32.store8 (i32.const 0) (i32.load8_u (i32.const 100))) \
            (i32.store8 (i32.const 100) (i32.const 32)) \
            (i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 116))) i64.const 4",
        );
        let module = module.unwrap();
        for _ in 0..2 {
            assert_eq!(module.answer(&[], Duration::from_secs(2)), Ok(Value::Bool(true)));
        }
    }

    #[test]
    fn modules_that_cannot_answer_are_refused() {
        let check = |text: &str, expected: &str| assert_eq!(wat(text).unwrap_err(), expected, "{text}");
        check("(module)", "the module exports no `memory`, which the module of a predicate needs: export it");
        check(
            "(module (memory (export \"memory\") 1))",
            "the module exports no `alloc(i32) -> i32`, which the module of a predicate needs: export it",
        );
        check(
            "(module (memory (export \"memory\") 1) (func (export \"alloc\") (param i64) (result i32) i32.const 0))",
            "the module exports no `alloc(i32) -> i32`, which the module of a predicate needs: export it",
        );
        check(
            "(module (memory (export \"memory\") 1) (func (export \"alloc\") (param i32) (result i32) i32.const 0)
                (func (export \"is_customer\") (param i32 i32) (result i32) i32.const 0))",
            "the module exports no `is_customer(i32, i32) -> i64`, which the module of a predicate needs: export it",
        );
        check(
            "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)))",
            "the module imports `wasi_snapshot_preview1.fd_write`, but a module of a predicate may import nothing: build it without WASI",
        );
        let error = WasmPredicateSource::compile("p", b"no module").unwrap_err();
        assert!(error.starts_with("the file is not a valid WebAssembly module: "), "{error}");
        let error = WasmPredicateSource::load("p", Path::new("none.wasm")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
