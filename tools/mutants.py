"""Break the rules and the scripts on purpose, one place at a time, and list what no test notices.

`make mutants ARGS="--sample 30 --seed 1 app/core/batches"`. Works on a copy of the tree. A mutant first meets the
tests of its module, then those of its folder, and at last all tests of its part of the tree; `TESTS` names them.

No library fits: mutmut and cosmic-ray do not mutate Lua, choose tests by module, or sample with a seed.
"""

import argparse
import ast
import difflib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ["app/core", "app/store/lua", "clients/lachesis"]
TESTS = {
    "app/core": ["tests/core"],
    "app/store/lua": ["tests/store", "tests/services"],
    "clients/lachesis": ["tests/clients"],
}
NOUNS = {
    "_cli": "command_line", "_transport": "transport", "_prefetch": "batches", "errors.py": "transport",
    "__main__.py": "transport", "atropos.py": "groups", "rank.py": "ranks", "_torch.py": "loader",
}  # fmt: skip
"""Parts of the SDK whose tests are in a folder of another name."""
IGNORED = ["tests/clients/test_typing.py"]
"""Tests that compare source with source: they would notice every change, also one that changes nothing."""
LEFT_OUT = ("clients/lachesis/sync", "clients/lachesis/wire")
"""What `make sync` writes, and definitions, which mostly tests of the service cover. Name them to break them."""
COPIED = ["app", "clients", "tests", "examples", "docs", "pyproject.toml", "README.md"]
LEAST_TIMEOUT_S = 300  # and three times what sound code takes: a mutant that takes longer counts as killed

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LUA_SWAPS = [
    ("<(?!=)", "<="), ("<=", "<"), (">(?!=)", ">="), (">=", ">"), ("==", "~="), ("~=", "=="),
    (r"\band\b", "or"), (r"\bor\b", "and"), (r"\bnot ", ""), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"math\.min\b", "math.max"), (r"math\.max\b", "math.min"),
]  # fmt: skip
LUA_NUMBER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
LUA_COMMENT = re.compile(r"\s*--.*")  # no string in a script holds two dashes
LUA_STATEMENT = re.compile(r"\s*(redis\.call\(.*\)|[\w.\[\]]+\(.*\)|[\w.\[\]]+ = .*[^,({])")


@dataclass(frozen=True)
class Mutant:
    """One change of one file: its path, its line, and the whole file with the change."""

    path: Path
    line: int
    source: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, in order."""
    source = path.read_text()
    changes = python_changes(source) if path.suffix == ".py" else lua_changes(source)
    for start, end, text in changes:
        if source[start:end] != text:
            yield Mutant(path.relative_to(ROOT), source.count("\n", 0, start) + 1, source[:start] + text + source[end:])


def python_changes(source: str) -> Iterator[tuple[int, int, str]]:
    """Yield what to replace, from where to where, and by what."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]

    def place(row: int, column_bytes: int) -> int:
        return starts[row - 1] + len(lines[row - 1].encode()[:column_bytes].decode())

    tree = ast.parse(source)
    skipped = {id(part) for node in ast.walk(tree) for without in unchanged(node) for part in ast.walk(without)}
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.expr | ast.stmt):
            continue
        start, end = place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)
        for changed in changed_nodes(node):
            text = ast.unparse(changed)
            yield start, end, f"({text})" if isinstance(node, ast.expr) else text


def unchanged(node: ast.AST) -> list[ast.AST]:
    """Return the type hints and decorators of a node: a change of them changes nothing that a test could notice."""
    found = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [part for part in (*found, *getattr(node, "decorator_list", [])) if isinstance(part, ast.AST)]


def changed_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node as it should not be."""
    match node:
        case ast.Compare(ops=ops):
            for n, operator in enumerate(ops):
                yield with_fields(node, ops=[*ops[:n], COMPARISONS[type(operator)](), *ops[n + 1 :]])
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            yield with_fields(node, op=OPERATORS[type(operator)]())
        case ast.BoolOp(op=op):
            yield with_fields(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield with_fields(node, body=orelse, orelse=body)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield with_fields(node, func=ast.Name(NAMES[name]))
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            yield ast.Pass()


def with_fields(node: ast.AST, **fields: object) -> ast.AST:
    """Copy a node with other fields."""
    return type(node)(**{**vars(node), **fields})


def lua_changes(source: str) -> Iterator[tuple[int, int, str]]:
    """Yield what to replace in a script, line by line."""
    start = 0
    for line in source.splitlines(keepends=True):
        code = LUA_COMMENT.sub("", line.rstrip("\n"))
        if code and not code.startswith("#!"):
            for pattern, swap in LUA_SWAPS:
                for found in re.finditer(pattern, code):
                    yield start + found.start(), start + found.end(), swap
            for found in LUA_NUMBER.finditer(code):
                yield start + found.start(), start + found.end(), str(int(found[0]) + 1)
            if LUA_STATEMENT.fullmatch(code):
                yield start, start + len(code), "-- deleted"
        start += len(line)


def place_of(path: Path) -> str:
    """Return the part of the tree that a file belongs to."""
    return next(place for place in PLACES if path.is_relative_to(place))


def tests_of(path: Path) -> list[str]:
    """Return the tests of a file, the nearest first."""
    place = place_of(path)
    noun = path.relative_to(place).parts[0]
    noun = NOUNS.get(noun, noun)
    folders = [f"{tests}/{noun}" for tests in TESTS[place] if (ROOT / tests / noun).is_dir()] or TESTS[place]
    own = [f"{folder}/test_{path.stem}.py" for folder in folders if (ROOT / folder / f"test_{path.stem}.py").is_file()]
    return list(dict.fromkeys([*own, *folders, *TESTS[place]]))


def passes(tree: Path, tests: Iterable[str], within_s: float | None = None) -> bool:
    """Return whether tests pass in a tree, and in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not at_length", "-n", "2"]
    command += ["--hypothesis-profile", "unshrunk", *(f"--ignore={test}" for test in IGNORED), *tests]
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=within_s)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def survives(tree: Path, mutant: Mutant, within_s: float) -> bool:
    """Return whether all tests of a mutant pass."""
    file = tree / mutant.path
    sound = file.read_text()
    file.write_text(mutant.source)
    try:
        return all(passes(tree, [tests], within_s) for tests in tests_of(mutant.path))
    finally:
        file.write_text(sound)


def main() -> int:
    """Try a sample, print the survivors with place and diff; the exit code is 0 unless sound code fails its tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=PLACES, help=f"files or folders below {' or '.join(PLACES)}")
    parser.add_argument("--sample", type=int, default=30, help="how many mutants to try (30)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    asked = parser.parse_args()
    below = [path for place in asked.paths for path in (ROOT / place, *sorted((ROOT / place).rglob("*")))]
    left_out = [ROOT / place for place in LEFT_OUT if not any(Path(one).is_relative_to(place) for one in asked.paths)]
    files = [path for path in below if path.suffix in (".py", ".lua") and not any(map(path.is_relative_to, left_out))]
    every = [mutant for path in files for mutant in mutants_of(path)]
    sample = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
    print(f"{len(every)} mutants of {len(files)} files; a sample of {len(sample)} with seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree, begun, survivors = Path(folder), time.monotonic(), 0
        for name in COPIED:
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copied(ROOT / name, tree / name)
        if not passes(tree, sorted({test for mutant in sample for test in TESTS[place_of(mutant.path)]})):
            print("the tests fail on sound code: mend that first")
            return 1
        within_s = LEAST_TIMEOUT_S + 3 * (time.monotonic() - begun)
        for number, mutant in enumerate(sample, start=1):
            survived = survives(tree, mutant, within_s)
            survivors += survived
            verdict = "SURVIVED" if survived else "killed"
            print(f"{number:3} {verdict} {mutant.path}:{mutant.line} at {time.monotonic() - begun:.0f} s", flush=True)
            if survived:
                sound = (ROOT / mutant.path).read_text().splitlines()
                changes = difflib.unified_diff(sound, mutant.source.splitlines(), n=1, lineterm="")
                print("\n".join(f"      {line}" for line in list(changes)[2:]), flush=True)
    print(f"killed {len(sample) - survivors} of {len(sample)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
