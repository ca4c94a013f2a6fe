"""Accessibility of a page, as axe-core finds it.

`make axe` installs axe-core. Without it, tests that need it are skipped on a laptop, and fail in
continuous integration. It runs through the debugger: the content security policy of the dashboard
refuses its script in the page.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

import pytest

from tests.dashboard.browser.visit import Visit
from tests.worker.yard import PROJECT

SCRIPT: Final = PROJECT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
ABSENT: Final = "There is no axe-core here. Run `make axe`, which needs npm."

_RUN: Final = """async (rules) => {
  const options = rules ? {runOnly: {type: "rule", values: rules}} : {};
  const {violations} = await axe.run(document, {...options, resultTypes: ["violations"]});
  return violations.flatMap(({id, nodes}) => nodes.map((node) =>
    `${id}: ${node.html.slice(0, 200)} (${node.any.concat(node.all).map((one) => one.message)})`));
}"""


@cache
def _script() -> str:
    if SCRIPT.exists():
        return SCRIPT.read_text()
    if os.environ.get("CI"):
        raise FileNotFoundError(ABSENT)
    pytest.skip(ABSENT)


def violations(visit: Visit) -> list[str]:
    """What axe-core finds in a page, in light and in dark. Only colours differ between them."""
    if not visit.run("'axe' in window"):
        visit.run(_script())
    visit.page.emulate_media(color_scheme="light")
    found = [f"light {one}" for one in visit.run(_RUN)]
    visit.page.emulate_media(color_scheme="dark")
    found += [f"dark {one}" for one in visit.run(_RUN, ["color-contrast"])]
    visit.page.emulate_media(color_scheme="light")
    return found
