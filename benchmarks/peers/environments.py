"""Install each system into its own environment, below `build/peers`.

Python systems get a virtual environment, those for node a folder of npm, Sidekiq is Debian's
package. Environments stay for later runs. A system that cannot be installed is left out, with
the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.peers.systems import System

ROOT: Final = Path(__file__).parent.parent.parent
CACHE: Final = ROOT / "build" / "peers"
ADAPTERS: Final = Path(__file__).parent / "adapters"
_PATIENCE_S: Final = 600


class NotInstalled(Exception):
    """A system cannot be installed here."""


class Installation(msgspec.Struct, frozen=True):
    """What a system was installed as: its interpreter, its variables and the versions."""

    python: str = sys.executable
    variables: dict[str, str] = {}
    versions: dict[str, str] = {}

    def fill(self, command: list[str]) -> list[str]:
        values = {"{python}": self.python, "{adapters}": str(ADAPTERS)}
        for mark, value in values.items():
            command = [part.replace(mark, value) for part in command]
        return command


def installed(system: System) -> Installation:
    """The installation of a system, made at the first use."""
    return RECIPES[system.environment]()


def _python(name: str, *packages: str) -> Callable[[], Installation]:
    def install() -> Installation:
        folder = CACHE / name
        python = folder / "bin" / "python"
        if not _is_stamped(folder, packages):
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
            _run([*pip, "install", *packages])
            _run([str(python), "-m", "compileall", "-q", str(folder / "lib")])
            _stamp(folder, packages)
        return Installation(python=str(python), versions=_python_versions(python, packages))

    return install


def _python_versions(python: Path | str, packages: tuple[str, ...]) -> dict[str, str]:
    names = [package.split("[")[0] for package in packages]
    code = "import sys, json, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in "
    code += "sys.argv[1:]}))"
    return dict(json.loads(_run([str(python), "-c", code, *names])))


def _windlass() -> Installation:
    return Installation(
        versions=_python_versions(sys.executable, ("windlass-queue", "redis", "apsw", "psycopg"))
    )


def _node(*packages: str) -> Callable[[], Installation]:
    def install() -> Installation:
        folder = CACHE / packages[0]
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise NotInstalled("there is no node with npm on this machine")
        if not _is_stamped(folder, packages):
            folder.mkdir(parents=True, exist_ok=True)
            quiet = ("--no-fund", "--no-audit", "--silent")
            _run(["npm", "install", "--prefix", str(folder), *quiet, *packages])
            _stamp(folder, packages)
        modules = folder / "node_modules"
        versions = {
            name: str(json.loads((modules / name / "package.json").read_bytes())["version"])
            for name in packages
        }
        variables = {"NODE_PATH": str(modules), "NODE_ENV": "production"}
        return Installation(variables=variables, versions=versions)

    return install


def _sidekiq() -> Installation:
    require_command("sidekiq", "ruby-sidekiq")
    version = _run(["sidekiq", "--version"]).split()[-1]
    return Installation(versions={"sidekiq": f"{version} (Debian)"})


RECIPES: Final[dict[str, Callable[[], Installation]]] = {
    "windlass": _windlass,
    "celery": _python("celery", "celery[redis]", "hiredis"),
    "dramatiq": _python("dramatiq", "dramatiq[redis]", "hiredis"),
    "huey": _python("huey", "huey", "redis", "hiredis"),
    "taskiq": _python("taskiq", "taskiq", "taskiq-redis", "uvloop", "hiredis"),
    "pgqueuer": _python("pgqueuer", "pgqueuer", "asyncpg", "uvloop"),
    "procrastinate": _python("procrastinate", "procrastinate"),
    "graphile-worker": _node("graphile-worker"),
    "bullmq": _node("bullmq", "ioredis"),
    "sidekiq": _sidekiq,
}


def require_command(command: str, package: str) -> None:
    """Install the Debian package of a command that is missing, where that is allowed."""
    if shutil.which(command) is None:
        install_package(package, command)


def install_package(package: str, wanted: str) -> None:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise NotInstalled(f"there is no {wanted}; install the Debian package {package}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update"], quiet)
    _run(["apt-get", "install", "--yes", package], quiet)


def _run(command: list[str], variables: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_S,
            env={**os.environ, **(variables or {})},
        )
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", "") or str(error)
        last = str(said).strip().splitlines()[-1:] or ["no output"]
        raise NotInstalled(f"`{Path(command[0]).name}` failed: {last[0]}") from error
    return done.stdout


def _is_stamped(folder: Path, packages: tuple[str, ...]) -> bool:
    stamp = folder / "installed.txt"
    return stamp.is_file() and stamp.read_text() == "\n".join(packages)


def _stamp(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "installed.txt").write_text("\n".join(packages))
