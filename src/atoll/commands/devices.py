"""`atoll devices`: the device profiles there are, and measuring one of the present machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atoll.commands.console import out_console, tell
from atoll.devices import SHIPPED, DeviceProfile, LayerWork, device_profile
from atoll.errors import ConfigError

devices_app = typer.Typer(
    help="Device profiles: what there is, and measuring the present machine.", invoke_without_command=True
)


@devices_app.callback()
def devices(
    context: typer.Context,
    file: Annotated[list[str] | None, typer.Option("--device", help="Also an own one: a file (.toml).")] = None,
) -> None:
    """The profiles there are, with their figures."""
    if context.invoked_subcommand is not None:
        return
    from atoll.report.tables import devices_table

    names = [*SHIPPED, *(file or [])]
    out_console.print(devices_table({name: device_profile(name) for name in names}))


@devices_app.command()
def measure(
    out: Annotated[Path, typer.Option(help="The profile's file (.toml).")],
    model: Annotated[
        list[str] | None, typer.Option(help="Time the layers of: convnet, mobilenet, ... (repeat)")
    ] = None,
    shape: Annotated[str, typer.Option("--input", help="Of one sample: channels x height x width.")] = "3x32x32",
    classes: Annotated[int, typer.Option(help="How many classes the models tell apart.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Forward passes of a layer; their median counts.")] = 15,
    watts: Annotated[float | None, typer.Option(help="What this machine draws while it computes.")] = None,
    links: Annotated[str, typer.Option(help="The profile to take the speeds of sending from.")] = "phone",
) -> None:
    """Time single layers on this machine and write a profile of it. Links are not measured: edit the file."""
    import platform

    from atoll.devices.measuring import measure_profile, profile_text
    from atoll.spaces import canonical
    from atoll.spaces.tracing import trace_of

    if out.suffix != ".toml":
        raise ConfigError(
            f"--out {str(out)!r}: a profile is a .toml file; end the name with .toml", code="profile-name-not-toml"
        )
    if watts is not None and not watts > 0:
        raise ConfigError(
            f"--watts {watts}: give what the machine draws, a number above 0, or leave it out",
            code="watts-not-positive",
        )
    base, sides = device_profile(links), _sides(shape)
    layers: list[LayerWork] = []
    for name in model or ["convnet"]:
        arch = {"space": "fixed", "model": name, "input": sides, "classes": classes}
        layers += trace_of(canonical(arch)).layers
    words = f"{platform.machine()}, one thread; layers of {', '.join(model or ['convnet'])} at {shape}"
    with out_console.status("timing layers") as status:

        def watch(done: int, whole: int) -> None:
            status.update(f"timing layers: {done} of {whole}")

        profile = measure_profile(layers, repeats, base, words, watts, watch)
    remark = (
        f"Measured by `atoll devices measure`, median of {repeats}. Links as of the profile {links!r}: set your own."
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(profile_text(profile, remark), encoding="utf-8")
    _report(profile, out)


def _report(profile: DeviceProfile, out: Path) -> None:
    rows = len(profile.layers.root)
    text = f"{rows} layers timed, {profile.macs_per_second / 1e9:.2f} GMAC/s; written: {out}"
    tell(text)


def _sides(text: str) -> list[int]:
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(
            f"--input {text!r}: give channels x height x width, such as 3x32x32, or a number of features",
            code="bad-input-shape",
        )
    return [int(part) for part in parts]
