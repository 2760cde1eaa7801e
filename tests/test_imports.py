"""The walls between rooms hold, and each check of a wall can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import walls
from walls import Module, Rule

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FILES = sorted((SOURCE / "atoll").rglob("*.py"))


@pytest.mark.parametrize("rule", walls.RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Rule) -> None:
    assert len(FILES) >= 3, f"no package found under {SOURCE}"
    broken = []
    for path in FILES:
        module = Module.read(path, SOURCE)
        broken += [f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in rule(module)]
    assert not broken, f"{rule.__name__}: {rule.__doc__ or ''}\n" + "\n".join(broken)


def test_tests_and_benchmarks_stay_small_too() -> None:
    paths = [path for room in ("tests", "benchmarks", "examples") for path in sorted((ROOT / room).rglob("*.py"))]
    assert Path(__file__) in paths
    assert [str(path) for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > walls.LINES] == []


BREAKS = [
    (walls.methods_know_no_engine, "atoll.methods.fedavg", "from atoll.federation.local import Local"),
    (walls.methods_know_no_engine, "atoll.methods.fedavg", "from atoll.federation import local"),
    (walls.methods_know_no_engine, "atoll.methods.fedavg", "from atoll import federation"),
    (walls.methods_know_no_engine, "atoll.methods.fedavg", "from ..federation import ray"),
    (walls.methods_know_no_engine, "atoll.methods.fedavg", "def f():\n    import atoll.federation.network"),
    (walls.engines_know_no_method, "atoll.federation.local", "from atoll.methods import fedavg"),
    (walls.engines_know_no_method, "atoll.federation.local", "from ..methods.fedavg import JOBS"),
    (
        walls.engines_know_no_method,
        "atoll.federation.local",
        "import importlib\nimportlib.import_module('atoll.methods.fedavg')",
    ),
    (walls.search_and_spaces_are_pure, "atoll.search.pareto", "import atoll.federation.base"),
    (walls.search_and_spaces_are_pure, "atoll.spaces.fixed", "from atoll.data import Federated"),
    (walls.search_and_spaces_are_pure, "atoll.spaces.fixed", "from ..methods import fedavg"),
    (walls.only_report_draws, "atoll.data.partition", "def draw():\n    import matplotlib.pyplot as plt"),
    (walls.report_reads_run_directories_only, "atoll.learning.train", "from atoll import report"),
    (walls.flower_stays_in_its_modules, "atoll.launch", "from flwr.serverapp import Grid"),
    (walls.only_cli_prints, "atoll.run", "print('round 1')"),
    (walls.only_cli_prints, "atoll.report.html", "from rich.console import Console"),
    (walls.only_cli_prints, "atoll.config", "import typer"),
    (walls.nothing_is_pickled, "atoll.store", "import pickle"),
    (walls.nothing_is_pickled, "atoll.store", "def f():\n    from cloudpickle import dumps"),
    (walls.nothing_is_pickled, "atoll.store", "from joblib import load"),
    (walls.nothing_is_pickled, "atoll.store", "import torch as t\nt.load('weights')"),
    (walls.nothing_is_pickled, "atoll.store", "from torch import save"),
    (walls.nothing_is_pickled, "atoll.store", "import numpy as np\nnp.load('x.npy')"),
    (walls.nothing_is_pickled, "atoll.store", "import numpy as np\nnp.load('x.npy', allow_pickle=True)"),
    (walls.nothing_is_pickled, "atoll.store", "from numpy import load\nload('x.npy', 'r')"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "import random"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "from random import shuffle"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nnp.random.shuffle([1])"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nrng = np.random.default_rng(1)"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "from numpy.random import default_rng"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "from numpy import random\nrandom.rand()"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nbits = np.random.PCG64(1)"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "import numpy as np\nnp.random.Generator(bits)"),
    (walls.randomness_comes_from_rng, "atoll.learning.train", "import torch\ntorch.manual_seed(1)"),
    (walls.randomness_comes_from_rng, "atoll.learning.train", "import torch\norder = torch.randperm(3)"),
    (walls.randomness_comes_from_rng, "atoll.testing.contract", "import random\nrandom.random()"),
    (walls.randomness_comes_from_rng, "atoll.testing.contract", "import numpy as np\nnp.random.set_state(s)"),
    (walls.randomness_comes_from_rng, "atoll.data.split", "import random\nrandom.getstate()"),
    (walls.no_drawer_for_odds_and_ends, "atoll.data.utils", ""),
    (walls.files_stay_small, "atoll.data.partition", "x = 1\n" * 401),
]


@pytest.mark.parametrize(("rule", "name", "source"), BREAKS)
def test_a_broken_wall_is_found(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module.parse(name, source)))


def test_every_rule_was_seen_to_fail() -> None:
    assert {rule for rule, _, _ in BREAKS} == set(walls.RULES)


KEEPS = [
    ("atoll.methods.fedavg", "from atoll.federation.base import Federation\nfrom atoll.federation import guard"),
    ("atoll.methods.fedavg", "from ..search.averaging import mean\nfrom atoll.spaces import build"),
    ("atoll.federation.local", "from atoll.federation.base import Federation\nimport importlib"),
    ("atoll.federation.local", "import importlib\n\ndef jobs(name):\n    return importlib.import_module(name)"),
    ("atoll.report.figures", "import matplotlib.pyplot as plt"),
    ("atoll.report.terminal", "from rich.progress import Progress"),
    ("atoll.cli", "import typer\nprint('done')"),
    ("atoll.commands.site", "import typer\nfrom rich.console import Console"),
    ("atoll.store", "import numpy as np\nnp.load('x.npy', mmap_mode='r', allow_pickle=False)"),
    ("atoll.store", "from safetensors.numpy import load\nload(b'')"),
    ("atoll.data.split", "import numpy as np\n\ndef f(rng: np.random.Generator) -> None: rng.random()"),
    ("atoll.rng", "import numpy as np\nnp.random.Generator(np.random.PCG64(1))"),
    ("atoll.testing.contract", "import random\nimport numpy as np\nrandom.getstate(), np.random.get_state()"),
    ("atoll.data.partition", "x = 1\n" * 400),
]


@pytest.mark.parametrize(("name", "source"), KEEPS)
def test_what_is_allowed_is_let_through(name: str, source: str) -> None:
    module = Module.parse(name, source)
    assert [(rule.__name__, found) for rule in walls.RULES for found in rule(module)] == []


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


LIGHT = {"", "cli", "commands", "config", "data", "errors", "sites"}


def test_the_command_line_starts_without_torch() -> None:
    """Torch takes 2 s to import: `atoll --help` and a mistyped setting must not wait for it."""
    assert loads(["atoll.errors", "torch"], "torch"), "the check itself cannot see an import"
    light = [path for path in FILES if Module.read(path, SOURCE).room in LIGHT]
    assert not loads([Module.read(path, SOURCE).name for path in light], "torch")
