"""JUnit has no schema of its own; hosts read by two that others wrote down, Jenkins' junit-10.xsd (xUnit plug-in) and
Ant's JUnit.xsd. The rules of Ant's stand here, for what keeps them keeps Jenkins' as well: what each element must say,
what it may say, and in which order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest

from qualgate.report.formats import rendered

TEXT, SOME, NUMBER, WHOLE = ".*", r"\S(.*\S)?", r"[0-9]+(\.[0-9]*)?", "-?[0-9]{1,9}"
TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"


@dataclass(frozen=True)
class Kind:
    """One element: attribute → what it must match, in `must` or only if it is there; its children, in order."""

    must: dict[str, str]
    may: dict[str, str]
    children: str = ""  # a pattern of their names, each with a blank behind it


def _outcome(**must: str) -> Kind:
    return Kind(must, {"message": TEXT, "type": TEXT})


ANT = {
    "testsuites": Kind({}, {}, "(testsuite )*"),
    "testsuite": Kind(
        {"package": TEXT, "id": WHOLE, "name": SOME, "timestamp": TIME, "hostname": SOME, "tests": WHOLE,
         "failures": WHOLE, "errors": WHOLE, "time": NUMBER},
        {"skipped": WHOLE}, "properties (testcase )*system-out system-err ",
    ),
    "properties": Kind({}, {}, "(property )*"),
    "testcase": Kind({"name": TEXT, "classname": TEXT, "time": NUMBER}, {}, "((skipped |error |failure )?)"),
    "failure": _outcome(type=TEXT),
    "error": _outcome(type=TEXT),
    "skipped": Kind({}, {"message": TEXT}),
    "system-out": Kind({}, {}),
    "system-err": Kind({}, {}),
}  # fmt: skip


def breaches(element: ElementTree.Element) -> list[str]:
    """What the schema would refuse."""
    kind = ANT.get(element.tag)
    if kind is None:
        return [f"no element {element.tag}"]
    allowed = kind.may | kind.must
    found = [f"{element.tag} lacks {name}" for name in kind.must if name not in element.attrib]
    for name, value in element.attrib.items():
        if name not in allowed or not re.fullmatch(allowed[name], value, re.DOTALL):
            found.append(f"{element.tag} {name}={value!r}")
    names = "".join(f"{child.tag} " for child in element)
    if not re.fullmatch(kind.children, names):
        found.append(f"{element.tag} holds {names}")
    return found + [one for child in element for one in breaches(child)]


@pytest.mark.parametrize("which", ["report", "unfinished", "attacked"])
def test_the_junit_report_is_valid_by_both_schemas(request, which):
    root = ElementTree.fromstring(rendered(request.getfixturevalue(which), "junit"))
    assert root.tag == "testsuites"
    assert len(root) >= 1
    assert breaches(root) == []
    assert [suite.get("id") for suite in root] == [str(number) for number in range(len(root))]


def test_the_rules_see_what_a_schema_refuses():
    for broken in ("<testsuites name='x'/>", "<testsuites><testsuite/></testsuites>", "<testsuites><b/></testsuites>"):
        assert breaches(ElementTree.fromstring(broken))
