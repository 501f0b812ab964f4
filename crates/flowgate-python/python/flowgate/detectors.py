"""Detectors: what a text contains, judged by its form. Policies call the same detectors."""

from ._flowgate import (
    Match,
    PythonCode,
    fuzzy_find,
    hidden_characters,
    images,
    licences,
    links,
    moderated,
    personal_data,
    prompt_injection,
    python_code,
    secrets,
    unsafe_commands,
)

__all__ = [
    "Match",
    "PythonCode",
    "fuzzy_find",
    "hidden_characters",
    "images",
    "licences",
    "links",
    "moderated",
    "personal_data",
    "prompt_injection",
    "python_code",
    "secrets",
    "unsafe_commands",
]
