//! Defines [`block_on`], by which a caller that is not asynchronous, such as a command-line program, waits for the
//! future of a model. With the feature `remote`, this module owns the tokio runtime that the HTTP client needs.

/// Waits for a future and returns its output. Blocks the calling thread, which must therefore not be one that drives
/// other futures.
///
/// With the feature `remote`, the future runs in the context of a tokio runtime, which this crate starts at the first
/// call and never stops, so that open connections survive between two calls. The calling thread does not become a
/// worker of that runtime, so a tool that the future calls may itself block on a future of another runtime.
///
/// ```
/// use flowgate_lm::chat::{Completion, Request};
/// use flowgate_lm::{ChatModel, ScriptedModel, block_on, ignore_deltas};
///
/// let model = ScriptedModel::from_answers([Completion { text: "Hello".to_owned(), ..Completion::default() }]);
/// assert_eq!(block_on(model.complete(&Request::default(), &mut ignore_deltas))?.text, "Hello");
/// # Ok::<(), flowgate_lm::Error>(())
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    // The runtime is the current one until the end of this function.
    #[cfg(feature = "remote")]
    let _entered = runtime::enter();
    pollster::block_on(future)
}

/// The tokio runtime that futures of remote models need.
#[cfg(feature = "remote")]
mod runtime {
    use std::sync::OnceLock;

    use tokio::runtime::{Builder, EnterGuard, Runtime};

    /// The runtime of this process; `None` if the system lacks the resources to start one.
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

    /// Sets the runtime as the current one of the calling thread, until the returned guard is dropped. `None` if there
    /// is no runtime: requests of remote models then fail.
    pub(super) fn enter() -> Option<EnterGuard<'static>> {
        let start = || {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("flowgate-lm").enable_all().build().ok()
        };
        RUNTIME.get_or_init(start).as_ref().map(Runtime::enter)
    }
}

#[cfg(all(test, feature = "remote"))]
mod tests {
    use std::time::Duration;

    use tokio::runtime::{Builder, Handle};

    use super::*;

    #[test]
    fn threads_share_one_runtime() {
        let find_runtime = || block_on(async { Handle::current().id() });
        let first = find_runtime();
        let other = std::thread::spawn(find_runtime);
        assert_eq!(other.join().unwrap(), first);
    }

    #[test]
    fn spawned_tasks_continue_between_calls() {
        let (send, receive) = tokio::sync::oneshot::channel();
        block_on(async {
            tokio::spawn(async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                send.send("done")
            });
        });
        assert_eq!(receive.blocking_recv(), Ok("done"));
    }

    #[test]
    fn a_future_may_block_on_another_runtime() {
        let other = Builder::new_current_thread().build().unwrap();
        assert_eq!(block_on(async { other.block_on(async { 1 }) }), 1);
    }
}
