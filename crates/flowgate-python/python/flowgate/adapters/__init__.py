"""Adapters to agent frameworks, one in each module. A module imports its framework; this package needs none of them.

| module | agents of | what it does |
|---|---|---|
| `transport` | clients with an `httpx` transport: OpenAI's and Anthropic's, and frameworks on them | guards whole conversations |
| `openai_agents` | the OpenAI Agents SDK | judges calls by tool guardrails, and asks by its approvals |
| `langgraph` | LangGraph | a node that judges and runs calls, and asks by an interrupt |
| `pydantic_ai` | Pydantic AI | a toolset that judges and runs calls, and asks by its approvals |
| `agent_framework` | the Microsoft Agent Framework | middleware that judges calls, and asks a function |
| `agent_hooks` | hosts of AGENT-HOOKS-0.1 (Microsoft Agent Framework) | an interceptor that judges inputs, calls, outputs and answers |
| `agentdojo` | AgentDojo's pipelines | a pipeline element that judges and runs calls |

An adapter that judges calls only takes every call to depend on everything that the agent has seen; `transport` hides from the model what
the call may not depend on, so that fewer calls need a person.
"""
