//! Runs calls of tools of the provider (web search, fetching a page, running code, calling an MCP server), which a
//! client may declare if its policy labels their outputs.
//!
//! Without the gateway, the provider would run these tools while it generates an answer, so the calls would not be
//! judged and their outputs not be labelled. The gateway offers the tools to the model as functions instead, and judges
//! their calls like those of any tool. The provider runs a permitted call in a separate request, which contains the
//! arguments of the call and nothing else of the chat. The output is labelled as the policy says. `clients` asks
//! [`accepted_tools`] which tools a client may declare; `turn` creates [`ProviderTools`], by which the guard runs the
//! calls.
//!
//! A turn that continues after a person's decision has the tools of the request that began it. The request that
//! continues the turn may leave out a tool of the provider, declare it with other restrictions, or declare a function
//! of the client with the same name. A call of the tool then does not run: the client never receives a call of a tool
//! of the provider, and the provider never runs a call with restrictions that differ from those at the beginning of the
//! turn.

use flowgate::monitor::{AuthorizedCall, Monitor};
use flowgate::trace::{Event, EventBody, Tool};
use flowgate_guard::agent::ProviderToolRunner;
use flowgate_guard::conversation::{Conversation, ToolAnswer};
use flowgate_lm::chat::{McpLabel, ProviderTool, ProviderToolUse};
use flowgate_lm::{BoxFuture, ChatModel, Error, ignore_deltas};

use std::sync::Arc;

use crate::config::ClientSettings;

/// Returns the tools of the provider that a client may declare; none for a client without an upstream. Each of them
/// meets these conditions:
///
/// * The client's upstream runs it.
/// * The client's policy labels its outputs by name: a statement about all tools does not suffice. An MCP server that
///   the provider calls has to be named exactly, since a pattern such as `mcp__*` may have been written for functions
///   of the client.
/// * Its name does not begin with the prefix of the tools of one of the client's own MCP servers. Otherwise it would
///   have the labels of that server's tool.
pub(super) fn accepted_tools(client: &ClientSettings) -> Vec<ProviderTool> {
    let Some(upstream) = &client.upstream else { return Vec::new() };
    // In watch mode, the client's own policy decides, since its verdicts are recorded.
    let monitor = Monitor::new(Arc::clone(client.own_policy()));
    let is_accepted = |tool: &ProviderTool| {
        let named = client.tool_of(tool.name());
        upstream.api.runs_provider_tool(tool)
            && named.server.is_none()
            && monitor.labels_outputs_by_name(&named)
    };
    possible_tools(client).filter(is_accepted).collect()
}

/// Returns all tools of the provider that a client can declare under its own policy: those with fixed names, and the
/// MCP servers that the policy names exactly.
fn possible_tools(client: &ClientSettings) -> impl Iterator<Item = ProviderTool> {
    let named = client.own_policy().named_tools().into_iter().filter(|tool| tool.server.is_none());
    let servers = named.filter_map(|tool| McpLabel::of_tool(&tool.name)).map(ProviderTool::McpServer);
    ProviderTool::BUILT_IN.into_iter().chain(servers)
}

/// Checks that each MCP server in `wanted`, the tools that a request declares, has the address that it had earlier in
/// the conversation. Otherwise the outputs of two servers would have the label of one: what the earlier server returned
/// stays in the conversation.
///
/// # Errors
/// If a server has another address now. The message tells the client what to do.
pub(super) fn check_servers(
    client: &ClientSettings,
    wanted: &[ProviderToolUse],
    conversation: &Conversation,
) -> Result<(), String> {
    for wanted in wanted.iter().filter(|wanted| wanted.server.is_some()) {
        let tool = client.tool_of(wanted.tool.name());
        // The address of a server is part of the description by which its tool was offered.
        let is_elsewhere = |event: &Event| match &event.body {
            EventBody::Tool(described) if described.tool == tool => {
                wanted.is_at_other_address(&described.description, &described.input_schema)
            }
            _ => false,
        };
        if conversation.monitor().trace().events().iter().any(is_elsewhere) {
            return Err(format!(
                "the MCP server of `{tool}` had another address earlier in this conversation: declare the earlier \
                 address, give the server at the new address another `server_label` (`name` in the Messages API), or \
                 begin a new conversation"
            ));
        }
    }
    Ok(())
}

/// The most calls that the provider runs in one turn: each is a request with its own price and its own time limit.
pub(crate) const MAX_PROVIDER_CALLS: usize = 16;

/// How many calls the provider may still run in a turn: of all tools together, and of each tool for which the client
/// has a limit.
pub(super) struct ProviderCallLimits {
    /// The number of calls that have run.
    runs: usize,
    /// The most calls that may run: what the client permits, and at most [`MAX_PROVIDER_CALLS`].
    most: usize,
    /// The tools whose number of calls the client limits, each with the number of calls that may still run.
    of_tools: Vec<(Tool, u64)>,
}

impl ProviderCallLimits {
    /// Creates the limits for a turn. `most` is the request's own limit on the calls of all tools together, if it has
    /// one. `wanted` are the tools that the request declares, each with its limit, if it has one.
    pub(super) fn new(client: &ClientSettings, wanted: &[ProviderToolUse], most: Option<u64>) -> Self {
        let of_tool =
            |wanted: &ProviderToolUse| Some((client.tool_of(wanted.tool.name()), wanted.max_calls?));
        Self {
            runs: 0,
            most: most
                .and_then(|most| usize::try_from(most).ok())
                .map_or(MAX_PROVIDER_CALLS, |most| most.min(MAX_PROVIDER_CALLS)),
            of_tools: wanted.iter().filter_map(of_tool).collect(),
        }
    }

    /// Counts a call of `tool`, which is about to run.
    ///
    /// # Errors
    /// If the call is beyond one of the limits. It must not run; the text tells the model why.
    pub(super) fn take(&mut self, tool: &Tool) -> Result<(), String> {
        // The gateway's own limit, with its own message; the limits of the request are checked below.
        if self.runs >= MAX_PROVIDER_CALLS {
            return Err(format!(
                "the provider has run {MAX_PROVIDER_CALLS} calls in this turn, the most that one turn may have: end the \
                 turn, and continue in the next one"
            ));
        }
        // How many calls of this tool may still run; `None` if the request does not limit them.
        let of_tool = self.of_tools.iter_mut().find(|(limited, _)| limited == tool).map(|(_, rest)| rest);
        if self.runs >= self.most || of_tool.as_deref() == Some(&0) {
            return Err(format!(
                "the request permits no further calls of `{tool}` in this turn: continue with what you have"
            ));
        }
        self.runs += 1;
        if let Some(rest) = of_tool {
            *rest -= 1;
        }
        Ok(())
    }
}

/// The tools of the provider that a request declares, each with the model whose server runs it.
pub(super) struct ProviderTools<M> {
    tools: Vec<(Tool, ProviderToolUse, M)>,
    /// The tools of the provider that the turn has, and that the request does not declare.
    undeclared: Vec<Tool>,
    /// The tools of the provider that the request declares with other restrictions (such as `allowed_domains`) than the
    /// request that began the turn.
    with_other_restrictions: Vec<Tool>,
}

impl<M: ChatModel> ProviderTools<M> {
    /// Creates the tools in `wanted`; `models` are the models whose servers run them, in the same order.
    pub(super) fn new(
        client: &ClientSettings,
        wanted: &[ProviderToolUse],
        models: impl Iterator<Item = M>,
    ) -> Self {
        let named = |(wanted, model): (&ProviderToolUse, M)| {
            (client.tool_of(wanted.tool.name()), wanted.clone(), model)
        };
        let tools = wanted.iter().zip(models).map(named).collect();
        // Filled by `compare_with_offer`.
        Self { tools, undeclared: Vec::new(), with_other_restrictions: Vec::new() }
    }

    /// Compares the tools that this request declares with those that the model was offered in `conversation`, which an
    /// earlier request may have declared. A tool that was offered as a function of the client stays a function of the
    /// client, whatever this request declares. A tool that was offered as a tool of the provider does not run if this
    /// request does not declare it, or declares it with other restrictions.
    pub(super) fn compare_with_offer(&mut self, client: &ClientSettings, conversation: &Conversation) {
        // A tool that is not on offer counts as a tool of the provider, so that its calls do not reach the client.
        let is_of_client = |identity: &Tool, tool: &ProviderTool| {
            conversation.offered_tool(identity).is_some_and(|offered| {
                !ProviderToolUse::is_offer_of(tool, &offered.description, &offered.parameters)
            })
        };
        // Removes the declared tools that the model has as functions of the client.
        self.tools.retain(|(identity, wanted, _)| !is_of_client(identity, &wanted.tool));
        // Removes the declared tools whose restrictions have changed. An offered description contains the restrictions.
        let differs = |(identity, wanted, _): &mut (Tool, ProviderToolUse, M)| {
            let offered = conversation.offered_tool(identity);
            offered.is_some_and(|offered| offered.description != wanted.spec().description)
        };
        self.with_other_restrictions =
            self.tools.extract_if(.., differs).map(|(identity, ..)| identity).collect();
        // All other tools that the provider may run are undeclared.
        let identified = possible_tools(client).map(|tool| (client.tool_of(tool.name()), tool));
        let is_declared = |identity: &Tool| {
            self.tools.iter().any(|(known, ..)| known == identity)
                || self.with_other_restrictions.contains(identity)
        };
        self.undeclared = identified
            .filter(|(identity, tool)| !is_declared(identity) && !is_of_client(identity, tool))
            .map(|(identity, _)| identity)
            .collect();
    }

    /// Returns why calls of `tool` do not run: it is a tool of the provider, and the request does not declare it, or
    /// declares it with restrictions that differ from those at the beginning of the turn. `None` if they may run.
    pub(super) fn refusal(&self, tool: &Tool) -> Option<String> {
        let fault = if self.undeclared.contains(tool) {
            "does not declare it: declare it in every request of the chat"
        } else if self.with_other_restrictions.contains(tool) {
            "declares it with restrictions that differ from those of the request that began the turn: declare it in the same way in every \
             request of the chat"
        } else {
            return None;
        };
        Some(format!("the provider runs `{tool}`, and the request that continues the turn {fault}"))
    }

    /// Has the provider run a call, and returns the text of its answer as the output of the tool. Any failure except
    /// the one below becomes an error of the tool, which the model reads.
    ///
    /// # Errors
    /// If the client has disconnected.
    async fn run(&self, call: &AuthorizedCall) -> Result<ToolAnswer, Error> {
        if let Some(why) = self.refusal(&call.call().tool) {
            return Ok(ToolAnswer::error(format!("the call did not run: {why}")));
        }
        let found = self.tools.iter().find(|(tool, ..)| *tool == call.call().tool);
        // `found` is set: `refusal` has returned for every other tool that `runs` accepts.
        let (Some((_, wanted, model)), Ok(arguments)) = (found, &call.call().arguments) else {
            return Ok(ToolAnswer::error(
                "the call did not run: its arguments are not one valid JSON object; write one, such as `{}`",
            ));
        };
        let request = match wanted.tool.request(arguments) {
            Ok(request) => request,
            Err(problem) => return Ok(ToolAnswer::error(format!("the call did not run: {problem}"))),
        };
        match model.complete(&request, &mut ignore_deltas).await {
            Ok(completion) if completion.text.trim().is_empty() => Ok(ToolAnswer::error(
                "the provider ran the tool, but its answer has no text: continue with what you have",
            )),
            Ok(completion) => Ok(ToolAnswer::text(completion.text)),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            // The provider may have lost the report of a call that ran. A model that reads that it did not run would
            // call again.
            Err(error) if !wanted.tool.is_repeatable() => Ok(ToolAnswer::error(format!(
                "the call may have run and had effects, but its report was not received ({error}); do not repeat the \
                call before you know that it had none"
            ))),
            Err(error) => Ok(ToolAnswer::error(format!("the provider did not run the tool: {error}"))),
        }
    }
}

impl<M: ChatModel> ProviderToolRunner for ProviderTools<M> {
    /// Returns whether calls of this tool are handled here, so that they do not reach the client. This includes the
    /// tools whose calls do not run ([`Self::refusal`]): the observer of the turn answers each of their calls with the
    /// reason, and [`Self::run`] checks it again.
    fn runs(&self, tool: &Tool) -> bool {
        self.tools.iter().any(|(known, ..)| known == tool)
            || self.undeclared.contains(tool)
            || self.with_other_restrictions.contains(tool)
    }

    /// Has the provider run the call, and returns its output.
    fn call(&self, call: AuthorizedCall) -> BoxFuture<'_, Result<ToolAnswer, Error>> {
        Box::pin(async move { self.run(&call).await })
    }
}
