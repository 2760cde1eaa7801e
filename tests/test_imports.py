"""The import rules hold, and each rule detects a violation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import import_rules
from import_rules import Module, Rule, is_within

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FILES = sorted((SOURCE / "atoll").rglob("*.py"))
MODULES = [Module.read(path, SOURCE) for path in FILES]


@pytest.mark.parametrize("rule", import_rules.RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Rule) -> None:
    assert len(FILES) >= 3, f"no package found under {SOURCE}"
    broken = []
    for path, module in zip(FILES, MODULES, strict=True):
        broken += [f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in rule(module)]
    assert not broken, f"{rule.__name__}: {rule.__doc__ or ''}\n" + "\n".join(broken)


def test_tests_and_benchmarks_stay_small_too() -> None:
    paths = [path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    assert Path(__file__) in paths
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert [str(path) for path in sorted(paths) if lines[path] > import_rules.LINES] == []


BREAKS = [
    (import_rules.methods_know_no_engine, "atoll.methods.fedavg", "from atoll.federation.local import Local"),
    (import_rules.methods_know_no_engine, "atoll.methods.fedavg", "from atoll.federation import local"),
    (import_rules.methods_know_no_engine, "atoll.methods.fedavg", "from atoll import federation"),
    (import_rules.methods_know_no_engine, "atoll.methods.fedavg", "from ..federation import ray"),
    (import_rules.methods_know_no_engine, "atoll.methods.fedavg", "def f():\n    import atoll.federation.ray"),
    (import_rules.engines_know_no_method, "atoll.federation.local", "from atoll.methods import fedavg"),
    (import_rules.engines_know_no_method, "atoll.federation.local", "from ..methods.fedavg import JOBS"),
    (
        import_rules.engines_know_no_method,
        "atoll.federation.local",
        "import importlib\nimportlib.import_module('atoll.methods.fedavg')",
    ),
    (import_rules.algorithms_and_spaces_are_pure, "atoll.algorithms.nsga2", "import atoll.federation.base"),
    (import_rules.algorithms_and_spaces_are_pure, "atoll.spaces.fixed", "from atoll.data import Federated"),
    (import_rules.algorithms_and_spaces_are_pure, "atoll.spaces.fixed", "from ..methods import fedavg"),
    (import_rules.only_report_draws, "atoll.data.partition", "def draw():\n    import matplotlib.pyplot as plt"),
    (import_rules.report_reads_run_directories_only, "atoll.training.train", "from atoll import report"),
    (import_rules.flower_stays_in_deploy, "atoll.run.launch", "from flwr.serverapp import Grid"),
    (import_rules.the_web_stays_in_dashboard, "atoll.report.html.page", "from starlette.responses import Response"),
    (import_rules.trackers_stay_in_tracking, "atoll.run.loop", "from torch.utils.tensorboard import SummaryWriter"),
    (import_rules.only_cli_knows_deployments, "atoll.run.launch", "from atoll.deploy.flower import superlink"),
    (import_rules.only_cli_prints, "atoll.run.loop", "print('round 1')"),
    (import_rules.only_cli_prints, "atoll.report.html", "from rich.console import Console"),
    (import_rules.only_cli_prints, "atoll.config", "import typer"),
    (import_rules.nothing_is_pickled, "atoll.store", "import pickle"),
    (import_rules.nothing_is_pickled, "atoll.store", "def f():\n    from cloudpickle import dumps"),
    (import_rules.nothing_is_pickled, "atoll.store", "from joblib import load"),
    (import_rules.nothing_is_pickled, "atoll.store", "import torch as t\nt.load('weights')"),
    (import_rules.nothing_is_pickled, "atoll.store", "from torch import save"),
    (import_rules.nothing_is_pickled, "atoll.store", "import numpy as np\nnp.load('x.npy')"),
    (import_rules.nothing_is_pickled, "atoll.store", "import numpy as np\nnp.load('x.npy', allow_pickle=True)"),
    (import_rules.nothing_is_pickled, "atoll.store", "from numpy import load\nload('x.npy', 'r')"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "import random"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "from random import shuffle"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nnp.random.shuffle([1])"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nrng = np.random.default_rng(1)"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "from numpy.random import default_rng"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "from numpy import random\nrandom.rand()"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nbits = np.random.PCG64(1)"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nnp.random.Generator(bits)"),
    (import_rules.randomness_comes_from_rng, "atoll.training.train", "import torch\ntorch.manual_seed(1)"),
    (import_rules.randomness_comes_from_rng, "atoll.training.train", "import torch\norder = torch.randperm(3)"),
    (import_rules.randomness_comes_from_rng, "atoll.testing.contract", "import random\nrandom.random()"),
    (import_rules.randomness_comes_from_rng, "atoll.testing.contract", "import numpy as np\nnp.random.set_state(s)"),
    (import_rules.randomness_comes_from_rng, "atoll.data.split", "import random\nrandom.getstate()"),
    (import_rules.no_catch_all_modules, "atoll.data.utils", ""),
    (import_rules.files_stay_small, "atoll.data.partition", "x = 1\n" * 451),
]


@pytest.mark.parametrize(("rule", "name", "source"), BREAKS)
def test_a_broken_rule_is_found(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module.parse(name, source)))


def test_every_rule_has_a_violation() -> None:
    assert {rule for rule, _, _ in BREAKS} == set(import_rules.RULES)


KEEPS = [
    ("atoll.methods.fedavg", "from atoll.federation.base import Federation\nfrom atoll.core import checks"),
    ("atoll.methods.fedavg", "from ..algorithms.aggregation import mean\nfrom atoll.spaces import build"),
    ("atoll.federation.local", "from atoll.federation.base import Federation\nimport importlib"),
    ("atoll.federation.local", "import importlib\n\ndef jobs(name):\n    return importlib.import_module(name)"),
    ("atoll.report.figures.catalogue", "import matplotlib.pyplot as plt"),
    ("atoll.report.terminal", "from rich.progress import Progress"),
    ("atoll.cli.app", "import typer\nprint('done')"),
    ("atoll.cli.federation", "import typer\nfrom rich.console import Console"),
    ("atoll.dashboard.app", "from starlette.applications import Starlette\nimport uvicorn"),
    ("atoll.tracking.mlflow_tracker", "import mlflow"),
    ("atoll.store", "import numpy as np\nnp.load('x.npy', mmap_mode='r', allow_pickle=False)"),
    ("atoll.store", "from safetensors.numpy import load\nload(b'')"),
    ("atoll.data.split", "import numpy as np\n\ndef f(rng: np.random.Generator) -> None: rng.random()"),
    ("atoll.rng", "import numpy as np\nnp.random.Generator(np.random.PCG64(1))"),
    ("atoll.testing.contract", "import random\nimport numpy as np\nrandom.getstate(), np.random.get_state()"),
    ("atoll.data.partition", "x = 1\n" * 450),
]


@pytest.mark.parametrize(("name", "source"), KEEPS)
def test_allowed_code_breaks_no_rule(name: str, source: str) -> None:
    module = Module.parse(name, source)
    assert [(rule.__name__, found) for rule in import_rules.RULES for found in rule(module)] == []


def test_relative_imports_of_a_package_start_in_the_package() -> None:
    module = Module.parse("atoll.federation", "from .local import Local\nfrom ..methods import x", is_package=True)
    assert [name for _, name in module.imports()] == ["atoll.federation.local.Local", "atoll.methods.x"]


def loads(modules: list[str], heavy: str) -> bool:
    """Does importing these modules, in a new process, import `heavy` too?"""
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "print(sys.argv[1] in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, heavy, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1] == "True"


LIGHT = {"", "cli", "config", "data", "errors", "deploy"}
HEAVY = ("atoll.deploy.flower", "atoll.deploy.site")  # these run client jobs


def test_the_command_line_starts_without_torch() -> None:
    """Torch takes 2 s to import: `atoll --help` and a mistyped setting must not wait for it."""
    assert loads(["atoll.errors", "torch"], "torch"), "the check does not detect an import"
    light = [module.name for module in MODULES if module.package in LIGHT and not is_within(module.name, *HEAVY)]
    assert not loads(light, "torch")


def test_packages_import_each_other_in_one_direction_only() -> None:
    """Imports at the top of a module, outside `TYPE_CHECKING`: what Python needs to load it."""
    edges = import_rules.package_edges(MODULES)
    assert {"run", "methods"} <= edges.keys() and "run" in edges["api"], "the check itself sees no imports"
    assert import_rules.cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
    assert import_rules.cycle(edges) == []


def test_no_public_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = {}
    for module in MODULES:
        for name in module.public_classes():
            places.setdefault(name, []).append(module.name)
    assert "Federation" in places
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_three_modules_with_a_common_prefix_are_a_package() -> None:
    families: dict[tuple[str, str], list[str]] = {}
    for module in MODULES:
        package, _, name = module.name.rpartition(".")
        families.setdefault((package, name.partition("_")[0]), []).append(name)
    assert {family: names for family, names in families.items() if len(names) > 2} == {}


def test_private_names_stay_in_their_module() -> None:
    """Nothing imports `_name` from another module of the package, nor reads it from an imported module or class."""
    used = [f"{module.name}:{line} {name}" for module in MODULES for line, name in module.private_uses()]
    broken = Module.parse("atoll.run.loop", "from atoll.store import _json\nfrom atoll.store import files\nfiles._x")
    assert len(list(broken.private_uses())) == 2
    assert used == []
