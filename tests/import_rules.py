"""The import rules of the architecture, read from the source without importing it.

Each rule is a function from a parsed module to its violations. `test_imports.py` runs all rules over the package, and
each rule over a small module that violates it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "atoll"
LINES = 450

# The only modules of `federation` that methods may import.
OPEN_TO_METHODS = {"base", "replies"}
# Unsafe to read from an untrusted source, and not stable between versions.
UNSAFE = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
UNSAFE_CALLS = {"torch.load", "torch.save", "torch.serialization.load", "torch.serialization.save"}
# torch's functions that draw from its global generator, or set it.
TORCH_RANDOM = {
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.seed",
    "torch.random.seed",
    "torch.bernoulli",
    "torch.multinomial",
    "torch.normal",
    "torch.poisson",
    "torch.rand",
    "torch.rand_like",
    "torch.randint",
    "torch.randint_like",
    "torch.randn",
    "torch.randn_like",
    "torch.randperm",
}
# Reading the global random state, to test that it is unchanged. Only `testing` may do so.
READS_STATE = {"random.getstate", "numpy.random.get_state"}
TERMINAL = {"typer", "rich", "click"}
# The modules outside `cli` that write to the terminal: progress and tables.
TERMINAL_MODULES = {f"{PACKAGE}.report.{name}" for name in ("terminal", "tables", "results")}
TERMINAL_MODULES |= {f"{PACKAGE}.preparation.answers"}  # a program of its own beside an exported network


WORKING = {"methods", "clients", "federation", "simulation", "deploy", "algorithms", "spaces", "training"}
WORKING |= {"data", "core", "store"}


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name (`atoll.methods.fedavg`), its syntax tree, and the names that it imports."""

    name: str
    tree: ast.Module
    lines: int
    is_package: bool = False  # an `__init__.py`: its relative imports start one level higher
    names: dict[str, str] = field(default_factory=dict)  # local name -> dotted name it was imported as

    @classmethod
    def parse(cls, name: str, source: str, is_package: bool = False) -> Module:
        module = cls(name, ast.parse(source), len(source.splitlines()), is_package)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    module.names[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module.names[alias.asname or alias.name] = f"{module.source_of(node)}.{alias.name}"
        return module

    @classmethod
    def read(cls, path: Path, root: Path) -> Module:
        parts = list(path.relative_to(root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        return cls.parse(".".join(parts[:-1] if is_package else parts), path.read_text(encoding="utf-8"), is_package)

    @property
    def package(self) -> str:
        """The package directly below `atoll`, or the module if it is in none: `methods`, `config`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    def source_of(self, node: ast.ImportFrom) -> str:
        """The module of a `from` import; relative imports are resolved."""
        if not node.level:
            return node.module or ""
        here = self.name.split(".")
        base = here[: len(here) - node.level + (1 if self.is_package else 0)]
        return ".".join([*base, *([node.module] if node.module else [])])

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and name of every import: `from a import b` is `a.b`, because b may be a module.

        A constant argument of `import_module` or `__import__` counts as an import.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.lineno, f"{self.source_of(node)}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Call) and self.dotted(node.func) in {"importlib.import_module", "__import__"}:
                for argument in node.args[:1]:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield node.lineno, argument.value

    def dotted(self, node: ast.expr) -> str:
        """The full name of an expression: `numpy.random.rand` for `np.random.rand`; "" if it is not a dotted name."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def public_classes(self) -> Iterator[str]:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name

    def private_uses(self) -> Iterator[tuple[int, str]]:
        """Private names of other modules of the package that this one imports or reads."""
        for line, name in self.imports():
            if is_within(name, PACKAGE) and is_private(name.rpartition(".")[2]):
                yield line, name
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and isinstance(node.value, ast.Name):
                name = self.dotted(node)
                if is_within(name, PACKAGE):
                    yield node.lineno, name

    def top_level_imports(self) -> Iterator[str]:
        """Modules that are imported when this one is, those for type checkers left out."""
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{self.source_of(node)}.{alias.name}" for alias in node.names)

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, self.dotted(node.func)


Found = Iterator[tuple[int, str]]  # line and violation
Rule = Callable[[Module], Found]


def is_within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def package_edges(modules: Iterable[Module]) -> dict[str, set[str]]:
    """First-level package (or module) -> those that it imports when it is loaded."""
    edges: dict[str, set[str]] = {}
    for module in modules:
        found = {name.split(".")[1] for name in module.top_level_imports() if name.startswith(f"{PACKAGE}.")}
        edges.setdefault(module.package, set()).update(found - {module.package})
    return edges


def cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """The packages that can reach themselves, sorted; empty if there is no cycle."""
    reach = {name: set(targets) for name, targets in edges.items()}
    while True:
        longer = {name: found.union(*(reach.get(one, set()) for one in found)) for name, found in reach.items()}
        if longer == reach:
            return sorted(name for name, found in reach.items() if name in found)
        reach = longer


def _imports_of(module: Module, *packages: str) -> Found:
    for line, name in module.imports():
        if is_within(name, *packages):
            yield line, f"imports {name}"


def methods_know_no_engine(module: Module) -> Found:
    """`methods` reach clients through the federation handle and its replies, and nothing else of `federation`."""
    if module.package == "methods":
        allowed = [f"{PACKAGE}.federation.{name}" for name in OPEN_TO_METHODS]
        for line, name in module.imports():
            if is_within(name, f"{PACKAGE}.federation") and not is_within(name, *allowed):
                yield line, f"imports {name}"


def engines_know_no_method(module: Module) -> Found:
    if module.package in {"federation", "simulation"}:
        yield from _imports_of(module, f"{PACKAGE}.methods")


def algorithms_and_spaces_are_pure(module: Module) -> Found:
    if module.package in {"algorithms", "spaces"}:
        yield from _imports_of(module, *(f"{PACKAGE}.{package}" for package in ("methods", "federation", "data")))


def only_report_draws(module: Module) -> Found:
    if module.package != "report":
        yield from _imports_of(module, "matplotlib", "mpl_toolkits")


def report_reads_run_directories_only(module: Module) -> Found:
    """Packages that run searches never import `report`, which reads run directories only."""
    if module.package in WORKING:
        yield from _imports_of(module, f"{PACKAGE}.report")


def flower_stays_in_deploy(module: Module) -> Found:
    """Flower is an optional dependency: only `deploy` may import it."""
    if module.package != "deploy":
        yield from _imports_of(module, "flwr")


def the_web_stays_in_dashboard(module: Module) -> Found:
    """The web server is an optional dependency: only `dashboard` may import it."""
    if module.package != "dashboard":
        yield from _imports_of(module, "starlette", "uvicorn", "anyio")


def trackers_stay_in_tracking(module: Module) -> Found:
    """Trackers are optional dependencies: only `tracking` may import them."""
    if module.package != "tracking":
        yield from _imports_of(module, "mlflow", "tensorboard", "torch.utils.tensorboard")


def only_cli_knows_deployments(module: Module) -> Found:
    """An engine of `deploy` is found by its name, as every engine is."""
    if module.package not in {"deploy", "cli"}:
        yield from _imports_of(module, f"{PACKAGE}.deploy")


def only_cli_prints(module: Module) -> Found:
    """Only `cli` and the modules in TERMINAL_MODULES write to the terminal."""
    if module.package == "cli" or module.name in TERMINAL_MODULES:
        return
    yield from _imports_of(module, *TERMINAL)
    for call, name in module.calls():
        if name in {"print", "builtins.print"}:
            yield call.lineno, "prints"


def nothing_is_pickled(module: Module) -> Found:
    yield from _imports_of(module, *UNSAFE, *UNSAFE_CALLS)
    for call, name in module.calls():
        if name in UNSAFE_CALLS:
            yield call.lineno, f"calls {name}"
        if name == "numpy.load" and not _passes(call, "allow_pickle", False):
            yield call.lineno, "calls numpy.load without allow_pickle=False"
        if name in {"numpy.save", "numpy.savez"} and _passes(call, "allow_pickle", True):
            yield call.lineno, f"calls {name} with allow_pickle=True"


def _passes(call: ast.Call, keyword: str, value: bool) -> bool:
    return any(
        given.arg == keyword and isinstance(given.value, ast.Constant) and given.value.value is value
        for given in call.keywords
    )


def randomness_comes_from_rng(module: Module) -> Found:
    """Streams are created in `rng.py` and passed as arguments; elsewhere `np.random.Generator` is only a type."""
    readable = READS_STATE if module.package == "testing" else set()
    for line, name in module.imports():
        if is_within(name, "random", *TORCH_RANDOM) and not (readable and name == "random") and name not in readable:
            yield line, f"imports {name}"
    if module.name == f"{PACKAGE}.rng":
        return
    for line, name in module.imports():
        if name.startswith("numpy.random.") and name not in {"numpy.random.Generator", *readable}:
            yield line, f"imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            name = module.dotted(node)
            if _draws(name) and name not in readable:
                yield node.lineno, f"uses {name}"
    for call, name in module.calls():
        if name == "numpy.random.Generator":
            yield call.lineno, "creates a generator: use rng.stream"


def _draws(name: str) -> bool:
    """Whether this name uses global random state or creates a generator."""
    if name.startswith("numpy.random."):
        return name != "numpy.random.Generator"
    return name in TORCH_RANDOM or name.startswith("random.")


def no_catch_all_modules(module: Module) -> Found:
    if module.name.rpartition(".")[2] in {"utils", "util", "helpers", "misc"}:
        yield 1, "name the module after its purpose"


def files_stay_small(module: Module) -> Found:
    if module.lines > LINES:
        yield LINES + 1, f"{module.lines} lines, at most {LINES}: split it by purpose"


RULES: tuple[Rule, ...] = (
    methods_know_no_engine,
    engines_know_no_method,
    algorithms_and_spaces_are_pure,
    only_report_draws,
    report_reads_run_directories_only,
    flower_stays_in_deploy,
    the_web_stays_in_dashboard,
    trackers_stay_in_tracking,
    only_cli_knows_deployments,
    only_cli_prints,
    nothing_is_pickled,
    randomness_comes_from_rng,
    no_catch_all_modules,
    files_stay_small,
)
