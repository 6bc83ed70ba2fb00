"""Adapters: a thin file for each agent framework, imported only where it is used.

The spans stay the only source of truth: an adapter detects nothing. It does what the framework
allows at its own supported hook, before a model call and before a tool call. Where no span
processor feeds a guard, it shows what it knows to the default guard of the process.

A new adapter is one file here, beside one line for its extra in `pyproject.toml`. All of it::

    adapter = Adapter("framework", **options)
    adapter.begin(session)                           # a run begins
    hint = await adapter.before_model_async(session)  # put it into the request
    adapter.after_model(Answer(text), session)

    call = adapter.tool_call(name, args, call_id=id, session=session)
    refusal = await call.refusal_async()              # tell the model in place of the result
    if refusal is None:
        with call:
            call.set_result(await tool(**args))
"""
