"""`tools/prose`, on texts with one fault each and on texts without."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

loader = SourceFileLoader("prose", str(Path(__file__).parents[2] / "tools" / "prose"))
spec = spec_from_loader("prose", loader)
assert spec
prose = module_from_spec(spec)
loader.exec_module(prose)

LONG = "is " * 25 + "end."
LONGER = " ".join(["is"] * 15 + ["\n    is"] * 15) + " end."
TABLE, ENTRIES = "one    of a table\n" * 30, "    a: Fine, and fine\n" * 30
WIDE = "a" + " b" * 60
FAULTS = [
    ("a.md", f"Fine.\n\n{LONG}\n", [("sentence", 3)]),
    ("a.md", f"| {LONG} |\n", [("sentence", 1)]),
    ("a.md", f"- Fine. Fine\n  {LONG}\n", [("sentence", 1)]),
    ("a.md", f"Fine.\n{WIDE}\n", [("sentence", 1), ("line", 2)]),
    ("a.md", "Fine.\nIt waits in vain.\n", [("phrase", 2)]),
    ("a.py", '"""Fine."""\n\nfor _ in ():\n    # It waits in vain.\n    pass\n', [("phrase", 4)]),
    ("a.py", '"""Fine.\n\nIt waits in vain.\n"""\n', [("phrase", 3)]),
    ("a.py", 'raise ValueError("a shape that is none that an array can have")\n', [("phrase", 1)]),
    ("a.py", '"""Fine."""\n\n\ndef waits_in_vain() -> None:\n    pass\n', [("phrase", 4)]),
    ("app/a.py", f'"""Fine.\n\n{LONGER}\n"""\n', [("sentence", 3)]),
    (
        "app/a.py",
        f'def f():\n    """Fine.\n\n    Args:\n        a: Fine.\n        b: {LONGER}\n    """\n',
        [("sentence", 6)],
    ),
    ("docs/design/growth.md", f"{WIDE}\n", [("sentence", 1)]),
    ("a.js", "let a = 1;\n// It waits in vain.\n", [("phrase", 2)]),
    ("a.lua", "-- Fine.\n-- It waits in vain.\nreturn 1\n", [("phrase", 2)]),
    ("a.lua", f"-- {WIDE}\n", [("line", 1)]),
]
FINE = [
    ("a.md", f"```python\n{'word ' * 20}\n```\n\n```\n{LONG}\n```\n"),
    ("a.md", "A list:\n\n" + "- one\n" * 30),
    ("a.md", f"# Title\n{'word ' * 20}end.\n{'word ' * 20}end.\n"),
    ("a.md", f"| a | {'word ' * 20}| {'word ' * 20}|\n"),
    ("app/a.py", f'"""Fine.\n\n{TABLE}"""\n'),
    ("app/a.py", f'"""Fine.\n\nArgs:\n{ENTRIES}"""\n'),
    ("tests/a.py", f'"""{LONG[:-4]}\n{LONG}\n"""\n'),
    ("a.lua", 'local text = "in vain"\n'),
]


@pytest.mark.parametrize(("name", "text", "expected"), FAULTS)
def test_a_fault_is_found_with_its_kind_and_line(name: str, text: str, expected: list[tuple[str, int]]) -> None:
    assert [(kind, line) for kind, line, _ in prose.check(name, text)] == expected


@pytest.mark.parametrize(("name", "text"), FINE)
def test_plain_text_has_no_findings(name: str, text: str) -> None:
    assert list(prose.check(name, text)) == []


@pytest.mark.long
@pytest.mark.at_length
def test_no_file_has_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main([]) == 0, capsys.readouterr().out
