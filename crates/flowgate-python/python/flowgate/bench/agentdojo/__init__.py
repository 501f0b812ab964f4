"""AgentDojo, judged by AgentDojo: its tasks, attacks, tools, harness and checks, with defences around a model.

* `cases`: the cases, the rows of the measurement, and the key under which a result is cached.
* `plans`: what an attacker's calls are where AgentDojo states none.
* `texts`: whether a text is in what a model was shown.
* `doubles`: two test doubles in place of a model; `remote`: a model behind a base URL.
* `gateway`: the gateway in front of a model, for AgentDojo's own client.
* `elements`: the elements of AgentDojo's pipelines, among them the guarded agent; `defences`: a pipeline for each row.
* `judging`: what a run's calls did, beside AgentDojo's own check.
* `running`: runs cases in processes, and keeps every result.
* `recorded`: recorded runs of real models; `record_double`, `replaying`, `replay_figures`: their calls, repeated with a defence.
* `cli`, `replay_cli`: the command.
* `figures`, `page`: the tables, as text and as a page.

Nothing here changes AgentDojo: the package is imported and asked.
"""
