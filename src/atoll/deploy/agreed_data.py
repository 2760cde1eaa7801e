"""A site's own rows: described for the server, prepared in the agreed form, and read by settings that the site allows.

Under `[privacy]` the site decides what is private, not the server: every row is prepared by itself, the digest of the
rows is keyed, and a site with a `[data]` table in its file answers questions about its files by these settings only.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.deploy.private import secret_digest
from atoll.deploy.site_file import PINNED
from atoll.errors import DataError, SiteError
from atoll.privacy.settings import refuse_coupled_rows

if TYPE_CHECKING:
    from atoll.data import ClientData, DataSettings
    from atoll.data.files.agreement import Agreement, DataDescription
    from atoll.data.files.site import Prepared
    from atoll.deploy.site import Site


def preparation_name(preparation: Payload) -> str:
    return hashlib.sha256(wire.encode(preparation)).hexdigest()


def describe_rows(site: Site, table: Payload) -> Payload:
    """What the server learns of the site's data before a run."""
    return _described(site, _settings(site, table)).model_dump(mode="json")


def prepare_rows(site: Site, message: Payload, private: bool) -> Prepared:
    """The site's rows, split and filled, before the scaling that all sites share."""
    from atoll.data.files.agreement import Agreement
    from atoll.data.files.site import prepare

    settings, agreement = _settings(site, message["data"]), Agreement.model_validate(message["agreement"])
    _refuse_other_form(site, agreement, settings)
    prepared = prepare(site.data, agreement, settings, site.name, message["seed"])
    if private:
        rules = prepared.rules
        refuse_coupled_rows(rules.scale, rules.missing, rules.blocks, settings.window, settings.window_step)
    return prepared


def load_prepared(site: Site, folder: Path, preparation: Payload) -> ClientData:
    """The site's data in the agreed form: prepared once per run, then mapped from the run's folder.

    `preparation["private"]` is the site's own finding, see `SiteNode`. The copy is valid for one preparation only.
    Without a copy the site's files are read again and must be unchanged.
    """
    from atoll.data import Federated

    place = folder / "data"
    name = preparation_name(preparation)
    bound = place / "agreed.json"
    try:
        if json.loads(bound.read_bytes()) == name:
            attached: ClientData = Federated.attach(place).client(site.name)
            return attached
    except (OSError, ValueError, DataError):
        pass
    prepared = prepare_rows(site, preparation, preparation["private"])
    digest = prepared.federated.digest()
    if preparation["private"]:
        digest = secret_digest(site.folder, digest)
    if digest != preparation["digest"]:
        raise DataError(
            f"'{site.data}': the data has changed since the run started; restore it, or start a new run",
            code="data-changed",
        )
    federated = prepared.scaled(preparation["mean"], preparation["deviation"])
    bound.unlink(missing_ok=True)
    # Stays here: where each site scales by its own statistics, a model needs them to answer this site's rows.
    (folder / "preparation.json").write_text(json.dumps(federated.preparation_of(site.name).plain()), encoding="utf-8")
    federated.save(place)
    bound.write_text(json.dumps(name), encoding="utf-8")
    return federated.client(site.name)


def _settings(site: Site, table: Payload) -> DataSettings:
    """The data settings of a message, unless the site's file has others."""
    from atoll.data.settings import DataSettings

    settings = DataSettings.model_validate(table)
    pinned = site.pinned
    if pinned is None:
        if site.limits is not None and site.limits.epsilon is not None:
            raise _refused(site, "limits.epsilon needs a table [data] in its site.toml, with label and classes")
        return settings
    for name in PINNED:
        asked, own = _meaning(settings, name), _meaning(pinned, name)
        if asked != own:
            raise _refused(site, f"data.{name} = {asked!r} is not what its site.toml has under [data]: {own!r}")
    return settings


def _meaning(settings: DataSettings, name: str) -> object:
    """A setting, the same for all ways to leave it out."""
    if name == "missing_words":
        return settings.words_for_missing
    if name == "window_step":
        return settings.window_step or settings.window
    return getattr(settings, name) or {"missing": "refuse", "drop": (), "dates": {}}.get(name)


def _described(site: Site, settings: DataSettings) -> DataDescription:
    """Of a site that has pinned its classes all of them, whichever occur in its rows."""
    from atoll.data.files.site import describe

    found = describe(site.data, settings)
    if site.pinned is None or site.pinned.classes is None:
        return found
    classes: list[str] = list(site.pinned.classes)
    given = [str(label) for label in found.classes or found.labels]
    unknown = [label for label in given if label not in classes]
    if unknown:
        raise DataError(
            f"'{site.data}': class '{unknown[0]}' is not among data.classes of site.toml: {', '.join(classes)}",
            code="unknown-class",
        )
    if found.classes is not None:
        return found
    if not found.numbered:
        return found.model_copy(update={"labels": classes})
    if not all(name.removeprefix("-").isdecimal() for name in classes):
        raise DataError(
            f"'{site.data}': its classes are whole numbers; write them so under [data] in site.toml, not "
            f"{', '.join(classes)}",
            code="label-kinds-differ",
        )
    return found.model_copy(update={"labels": [int(name) for name in classes]})


def _refuse_other_form(site: Site, given: Agreement, settings: DataSettings) -> None:
    """A site with pinned settings is asked for its rows in the form of its own description only: with another one the
    errors would say what is in the files. Other sites may know more words, an earlier day, and have coloured images."""
    from atoll.data.files.agreement import agree

    if site.pinned is None:
        return
    own = agree({site.name: _described(site, settings)}, settings)
    columns = {column.name: column for column in given.preparation.columns}
    expected = []
    for column in own.preparation.columns:
        other = columns.get(column.name, column)
        if set(column.words) <= set(other.words):
            column = column.model_copy(update={"words": other.words})
        if other.origin <= column.origin:
            column = column.model_copy(update={"origin": other.origin})
        expected.append(column)
    order = list(columns)
    expected.sort(key=lambda column: order.index(column.name) if column.name in columns else -1)
    form = own.preparation.model_copy(update={"columns": expected})
    image, asked = form.image, given.preparation.image
    if image is not None and asked is not None and (image.channels, asked.channels) == (1, 3):
        form = form.model_copy(update={"image": image.model_copy(update={"channels": 3})})
    if (own.kind, own.labels, form) != (given.kind, given.labels, given.preparation):
        raise _refused(site, "the form of the rows that it is asked for is not that of its own description")


def _refused(site: Site, reason: str) -> SiteError:
    return SiteError(f"site '{site.name}' refuses: {reason}", code="data-of-site")
