"""Measure the shape of a source tree: files, imports, cycles, and how many files one round of each method runs through.

    python tools/measure_architecture.py [ROOT] [--python P] [--side old|new] [--json] [--no-rounds]

ROOT is a checkout with src/atoll (default: this one), `--python` the interpreter of its environment, `--side` the names
that `run_case.py` uses for it (`old` for e7bad84). Rules:

- A code line is a line that is not blank, not only a comment, and not part of a docstring.
- A module's importers are the other modules of the package that import it anywhere, under TYPE_CHECKING too.
- A file runs in `step` if a function in it is called, by the server or by a client, during any `step` of the method's
  small run in `run_case.py`, without worker processes. Code that runs because a module is imported is left out.
- Files of the algorithm alone are those of them under methods/, search/, algorithms/ and spaces/.
- Cycles are between first-level packages and modules, by module-level imports outside of TYPE_CHECKING.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import run_case

PACKAGE = "atoll"
SHORT = 40  # code lines
ALGORITHM = {"methods", "search", "algorithms", "spaces"}
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str  # dotted
    path: Path
    tree: ast.Module
    code: frozenset[int]  # numbers of its code lines
    is_package: bool

    @property
    def first(self) -> str:
        """The first-level package or module that it belongs to; `__init__` for the package's own file."""
        return self.name.split(".")[1] if "." in self.name else "__init__"


def read(path: Path, source: Path) -> Module:
    parts = list(path.relative_to(source).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return Module(".".join(parts[:-1] if is_package else parts), path, tree, frozenset(lines), is_package)


def imports(module: Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """All imports of a module, and whether each happens when the module is loaded."""

    def visit(node: ast.AST, loading: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
        for child in ast.iter_child_nodes(node):
            inner = loading and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                inner = False
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child, loading
            else:
                yield from visit(child, inner)

    yield from visit(module.tree, True)


def targets(module: Module, node: ast.Import | ast.ImportFrom, known: Mapping[str, Module]) -> set[str]:
    """The modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    else:
        base = node.module or ""
        if node.level:
            parts = module.name.split(".")
            kept = len(parts) - node.level + (1 if module.is_package else 0)
            base = ".".join([*parts[:kept], *([node.module] if node.module else [])])
        full = {alias.name: f"{base}.{alias.name}" for alias in node.names}
        names = {path if path in known else base for path in full.values()}
    return {name for name in names if name in known and name != module.name}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that all reach each other."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for node in graph.get(waiting.pop(), set()) - found:
                found.add(node)
                waiting.append(node)
        return found

    closure = {node: reached(node) for node in graph}
    groups = {frozenset(other for other in closure[node] if node in closure.get(other, ())) for node in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def static_figures(root: Path) -> dict[str, Any]:
    """What can be read from the source."""
    source = root / "src"
    modules = {module.name: module for module in (read(path, source) for path in sorted(source.rglob("*.py")))}
    importers: dict[str, set[str]] = defaultdict(set)
    direct: dict[str, set[str]] = defaultdict(set)
    graph: dict[str, set[str]] = defaultdict(set)
    because: dict[tuple[str, str], list[str]] = defaultdict(list)
    import_lines = 0
    for module in modules.values():
        for node, loading in imports(module):
            import_lines += len(module.code & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            for target in targets(module, node, modules):
                importers[target].add(module.name)
                direct[module.name].add(target)
                edge = module.first, modules[target].first
                if loading and edge[0] != edge[1]:
                    graph[edge[0]].add(edge[1])
                    because[edge].append(f"{module.name} -> {target}")
    code = sum(len(module.code) for module in modules.values())
    classes: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        for statement in module.tree.body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                classes[statement.name].append(module.name)
    pairs = sorted({tuple(sorted(edge)) for edge in because if (edge[1], edge[0]) in because})
    return {
        "files": len(modules),
        "code_lines": code,
        "short_files": sum(len(module.code) < SHORT for module in modules.values()),
        "one_importer": sum(len(importers[name]) == 1 for name in modules),
        "import_lines": import_lines,
        "import_share": import_lines / code,
        "duplicate_classes": {name: where for name, where in sorted(classes.items()) if len(where) > 1},
        "cycles": cycles(graph),
        "mutual": {f"{a} <-> {b}": [sorted(because[a, b]), sorted(because[b, a])] for a, b in pairs},
        "files_per_package": dict(sorted(Counter(module.first for module in modules.values()).items())),
        "direct_imports": {name: sorted(direct[name]) for name in modules if modules[name].first == "methods"},
    }


# -- traced rounds -----------------------------------------------------------------------------------------------------


def trace(side: str, root: Path, method: str, out: Path) -> dict[str, Any]:
    """The files whose functions are called during `step`, and the module of the method. In this process."""
    names = run_case.NAMES[side]
    own = names["methods"].get(method, {"method": method})["method"]
    method_class = run_case.named(names["find_method"])(own)
    step, package = method_class.step, str(root / "src" / PACKAGE) + os.sep
    files: set[str] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function, no module and no class body
            files.add(frame.f_code.co_filename)

    def traced(*given: Any) -> Any:
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            return step(*given)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    method_class.step = traced
    run_case.run_case(
        {"side": side, "root": root, "method": method, "engine": "serial", "seed": 3, "out": out / method},
    )
    ran = sorted(file.removeprefix(package) for file in files if file.startswith(package))
    return {"files": ran, "module": method_class.__module__}


def traced_rounds(side: str, root: Path, python: Path) -> dict[str, Any]:
    """Method -> what `trace` finds. One process each, so that nothing is cached from another method."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in run_case.EXPERIMENTS:
            file = Path(folder) / f"{method}.json"
            command = [str(python), str(Path(__file__).resolve()), str(root), "--side", side, "--trace", str(file)]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            found[method] = json.loads(file.read_bytes()) if file.exists() else {"failed": why}
    return found


# -- the tables --------------------------------------------------------------------------------------------------------


def method_rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for method, found in figures["methods"].items():
        if "failed" in found:
            yield method, found["failed"], "", ""
            continue
        alone = [file for file in found["files"] if file.split(os.sep)[0] in ALGORITHM]
        direct = figures["direct_imports"].get(found["module"], [])
        yield method, str(len(found["files"])), str(len(alone)), str(len(direct))


def markdown(figures: Mapping[str, Any]) -> str:
    rows = [
        ("files", figures["files"]),
        ("code lines (not blank, no comment, no docstring)", figures["code_lines"]),
        (f"files under {SHORT} code lines", figures["short_files"]),
        ("modules with exactly one importer", figures["one_importer"]),
        ("import lines among code lines", f"{figures['import_lines']} ({figures['import_share']:.1%})"),
        ("public class names used more than once", len(figures["duplicate_classes"])),
        ("package cycles (groups)", len(figures["cycles"])),
        ("packages that import each other directly (pairs)", len(figures["mutual"])),
    ]
    lines = ["| measure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    if figures["methods"]:
        lines += ["", "| method | files run in `step` | of the algorithm alone | direct Atoll imports |"]
        lines += ["|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in method_rows(figures))]
    lines += ["", "Duplicate public class names:", ""]
    lines += [f"- `{name}`: {', '.join(where)}" for name, where in figures["duplicate_classes"].items()] or ["- none"]
    lines += ["", "Package cycles:", ""]
    lines += [f"- {', '.join(group)}" for group in figures["cycles"]] or ["- none"]
    for pair, (there, back) in figures["mutual"].items():
        lines.append(f"- {pair}: {there[0]} ({len(there)} imports), {back[0]} ({len(back)})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="for the traced rounds")
    parser.add_argument("--side", choices=list(run_case.NAMES), default="new", help="the names in run_case.py")
    parser.add_argument("--json", action="store_true", help="all figures, with the lists behind them")
    parser.add_argument("--no-rounds", action="store_true", help="only what can be read from the source")
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    root = options.root.resolve()
    if options.trace:
        options.trace.write_text(json.dumps(trace(options.side, root, options.trace.stem, options.trace.parent)))
        return
    rounds = {} if options.no_rounds else traced_rounds(options.side, root, options.python.absolute())
    figures = {**static_figures(root), "methods": rounds}
    print(json.dumps(figures, indent=1) if options.json else markdown(figures))


if __name__ == "__main__":
    main()
