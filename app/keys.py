"""The keys of the dashboard, their list, and the script that obeys those which Streamlit's buttons cannot.

A key does nothing while somebody types. `r`, `c` and Escape are Streamlit's own.
"""

from __future__ import annotations

import json

import streamlit as st

from qualgate.report.html_blocks import table_html

NEXT, PREVIOUS, CLAIM, LABELS = "j", "k", "t", "1234"  # keys of buttons
# After g, the page of this address.
VIEWS = {"q": "home", "u": "runs", "m": "compare", "n": "nights", "l": "loads", "v": "verdict", "d": "decisions"}
FIELDS = {"/": "Search", "e": "Reason", "w": "Note", "y": "Your name"}  # key → label of the field that it enters
ROWS = (
    (f"{NEXT}, {PREVIOUS}", "next and previous case of the table"),
    ("1 2 3 4", "label the open case: regression, acceptable, wrong reference, flaky"),
    ("w", "write a note or comment on it"),
    ("/", "search the cases"),
    (CLAIM, "claim or release the verdict"),
    ("e", "write the reason of a decision"),
    ("o", "open the next verdict in the queue, or the first one of the queue"),
    ("y", "write your name"),
    ("g, then a letter", "queue: q · runs: u · compare: m · nights: n · loads: l · verdict: v · decisions: d"),
    ("?", "this list"),
)
SCRIPT = """(() => {
  if (window.qualgateKeys) return;
  window.qualgateKeys = true;
  const views = VIEWS, fields = FIELDS;
  let afterG = false;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, [contenteditable=true], [role=combobox]")) return;
    const key = event.key, gone = afterG && views[key];
    afterG = key === "g";
    const link = (href) => document.querySelector(`[data-testid=stTopNavLink][href$="/${href}"]`);
    let target;
    if (gone) target = link(gone) || (gone === "home" && document.querySelector("[data-testid=stTopNavLink]"));
    else if (fields[key]) target = [...document.querySelectorAll("input, textarea")]
      .find((field) => field.getAttribute("aria-label") === fields[key]);
    else if (key === "?") target = document.querySelector(".qg-keys summary");
    else if (key === "o") target = document.querySelector(".st-key-following a");
    if (gone && !target) location.assign(location.pathname.replace(/[^/]*$/, gone));  // a narrow window has no links
    if (!target) return;
    event.preventDefault();
    event.stopPropagation();
    if (gone || key === "?" || key === "o") target.click();
    if (!gone && key !== "o") target.focus();
  }, true);
})();""".replace("VIEWS", json.dumps(VIEWS)).replace("FIELDS", json.dumps(FIELDS))


def show_keys() -> None:
    """Show the folded list of keys, and let the page obey them. The server's policy allows this very script."""
    rows = [(f"<kbd>{key}</kbd>", text) for key, text in ROWS]
    st.html(
        f'<details class="qg-keys"><summary>Keys <kbd>?</kbd></summary>{table_html(("key", "does"), rows)}</details>'
        f"<script>{SCRIPT}</script>",
        width="content",
        unsafe_allow_javascript=True,
    )
