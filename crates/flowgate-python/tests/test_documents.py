"""Executes the code in the documentation, block after block."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = {"docs/python.md": 4, "crates/flowgate-python/README.md": 1, "README.md": 1}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_code_of_a_document_runs(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = [block.partition("\n```")[0] for block in text.split("```py\n")[1:]]
    assert len(blocks) >= DOCUMENTS[document]
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, document, "exec"), names)
