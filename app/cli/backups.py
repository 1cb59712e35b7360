"""`python -m app backup` and `restore`: the data of the embedded Valkey, from a shell on the server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import fail, show_json
from app.settings import InvalidSettings, ServiceSettings, load_settings
from app.version import lachesis_version
from lachesis.wire.errors import LachesisError

if TYPE_CHECKING:
    from app.store.server.backup import BackupManifest

_InJson = Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")]


def backup(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put it: a missing or empty directory.")],
    json: _InJson = False,
) -> None:
    """Back up the embedded Valkey in LACHESIS_DATA_DIR.

    The service may run or not. Everything that was acknowledged before the command began is in the backup.
    """
    from app.process.store import open_store  # late: the other commands need not wait for them
    from app.store.server.backup import BackupFailed, make_backup
    from app.store.server.data_dir import has_data, refuse_root
    from app.store.server.embedded import running_url

    try:
        settings = _embedded("back up")
        home = settings.data_dir
        if not has_data(home):
            fail(f"there is no data in {home.absolute()}/: set LACHESIS_DATA_DIR as the service has it")
        if url := running_url(home):
            manifest = make_backup(url, home, target, lachesis_version())
        else:
            refuse_root(home)
            with open_store(settings) as store:
                manifest = make_backup(store.url, home, target, lachesis_version())
    except (InvalidSettings, BackupFailed, LachesisError) as error:
        fail(str(error))
    _tell(manifest, f"backed up {home.absolute()}/ into {target}/", json)


def restore(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup.")], json: _InJson = False
) -> None:
    """Put a backup into LACHESIS_DATA_DIR, which holds no data yet. Then start the service there."""
    from app.store.server.backup import BackupFailed, restore_backup  # late: the other commands need not wait for it

    try:
        settings = _embedded("restore")
        manifest = restore_backup(source, settings.data_dir, settings.redis_bin)
    except (InvalidSettings, BackupFailed, LachesisError) as error:
        fail(str(error))
    _tell(manifest, f"restored {source}/ into {settings.data_dir.absolute()}/", json)


def _embedded(what: str) -> ServiceSettings:
    settings = load_settings()
    if settings.redis_url is not None:
        fail(f"LACHESIS_REDIS_URL names your own Redis: {what} its data with its own tools (docs/operate/index.md)")
    return settings


def _tell(manifest: "BackupManifest", what: str, json: bool) -> None:
    if json:
        show_json(manifest.model_dump_json())
    else:
        typer.echo(f"{what}: {manifest.keys:,} keys, {manifest.bytes:,} bytes, made at {manifest.made_at}")
