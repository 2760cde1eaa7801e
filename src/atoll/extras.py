"""Optional packages: each belongs to an extra of Atoll, which the message about a missing one names."""

from __future__ import annotations

from importlib.util import find_spec

from atoll.errors import ConfigError

EXTRAS = {
    "dashboard": ("starlette", "uvicorn"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "flower": ("cryptography", "flwr"),
    "mlflow": ("mlflow",),
    "parquet": ("pyarrow",),
    "privacy": ("dp_accounting",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
}


def require(extra: str) -> None:
    """Raise a `ConfigError` if a package of this extra is missing."""
    for package in EXTRAS[extra]:
        if find_spec(package) is None:
            raise _missing(package, extra)


def missing_extra(problem: ImportError) -> ConfigError | None:
    """The error of a user who lacks an optional package; None if another import has failed."""
    package = (problem.name or "").partition(".")[0]
    return next((_missing(package, extra) for extra, packages in EXTRAS.items() if package in packages), None)


def _missing(package: str, extra: str) -> ConfigError:
    return ConfigError(
        f"the package {package} is missing; install it with: pip install 'atoll[{extra}]'", code="extra-missing"
    )
