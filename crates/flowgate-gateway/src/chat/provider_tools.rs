//! Runs calls of tools of the provider (web search, fetching a page, running code), which a client may declare if its
//! policy labels their outputs.
//!
//! The client would have the provider run these tools while it generates an answer, without a judgement and without a
//! label. The gateway offers them to the model as functions instead. It judges their calls like those of any tool, and has
//! the provider run a permitted call in a request of its own, which contains the arguments of the call and nothing else of
//! the chat. The output is labelled as the policy says. `clients` asks [`accepted_tools`] which tools a client may declare;
//! `turn` runs them.

use flowgate::monitor::{AuthorizedCall, Monitor};
use flowgate::trace::Tool;
use flowgate_guard::agent::ProviderToolRunner;
use flowgate_guard::conversation::ToolAnswer;
use flowgate_lm::chat::{ProviderTool, ProviderToolUse};
use flowgate_lm::{BoxFuture, ChatModel, Error, ignore_deltas};

use std::sync::Arc;

use crate::config::ClientSettings;

/// Returns the tools of the provider that a client may declare: those whose outputs its policy labels by name and that
/// its upstream runs. A statement that labels the outputs of all tools is not about them. Neither does a client have
/// those whose name belongs to one of its MCP servers, by the prefix of the server's tools: their labels are those of the
/// server. A client without an upstream may declare none.
pub(super) fn accepted_tools(client: &ClientSettings) -> Vec<ProviderTool> {
    let Some(upstream) = &client.upstream else { return Vec::new() };
    // In watch mode, the policy of the client is the one whose verdicts are recorded.
    let policy = client.watch.as_ref().map_or(&client.policy, |watch| &watch.policy);
    let monitor = Monitor::new(Arc::clone(policy));
    let is_accepted = |tool: &ProviderTool| {
        let named = client.tool_of(tool.name());
        upstream.api.runs_provider_tool(*tool)
            && named.server.is_none()
            && monitor.labels_outputs_by_name(&named)
    };
    ProviderTool::ALL.into_iter().filter(is_accepted).collect()
}

/// The tools of the provider that a request declares, each with the model whose server runs it.
pub(super) struct ProviderTools<M> {
    tools: Vec<(Tool, ProviderTool, M)>,
}

impl<M: ChatModel> ProviderTools<M> {
    /// Creates the tools in `wanted`; `models` are the models whose servers run them, in the same order.
    pub(super) fn new(
        client: &ClientSettings,
        wanted: &[ProviderToolUse],
        models: impl Iterator<Item = M>,
    ) -> Self {
        let named =
            |(wanted, model): (&ProviderToolUse, M)| (client.tool_of(wanted.tool.name()), wanted.tool, model);
        Self { tools: wanted.iter().zip(models).map(named).collect() }
    }

    /// Has the provider run a call of `tool`.
    ///
    /// # Errors
    /// If the client has disconnected. Any other failure is an error of the tool.
    async fn run(&self, call: &AuthorizedCall) -> Result<ToolAnswer, Error> {
        let found = self.tools.iter().find(|(tool, ..)| *tool == call.call().tool);
        let (Some((_, tool, model)), Ok(arguments)) = (found, &call.call().arguments) else {
            return Ok(ToolAnswer::error("the call did not run: its arguments are invalid"));
        };
        let request = match tool.request(arguments) {
            Ok(request) => request,
            Err(problem) => return Ok(ToolAnswer::error(format!("the call did not run: {problem}"))),
        };
        match model.complete(&request, &mut ignore_deltas).await {
            Ok(completion) if completion.text.trim().is_empty() => {
                Ok(ToolAnswer::error("the provider ran the tool, but its answer has no text"))
            }
            Ok(completion) => Ok(ToolAnswer::text(completion.text)),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => Ok(ToolAnswer::error(format!("the provider did not run the tool: {error}"))),
        }
    }
}

impl<M: ChatModel> ProviderToolRunner for ProviderTools<M> {
    fn runs(&self, tool: &Tool) -> bool {
        self.tools.iter().any(|(known, ..)| known == tool)
    }

    fn call(&self, call: AuthorizedCall) -> BoxFuture<'_, Result<ToolAnswer, Error>> {
        Box::pin(async move { self.run(&call).await })
    }
}
