"""The nightly file: which gate files are judged over which models, when, and who gets the digest."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from qualgate.config.paths import PlainFile, StoreUrl, expanded
from qualgate.documents import ABSENT, Document, Written, as_model, nearest, quote, read_yaml, refuse, stated
from qualgate.records.schedule import WEEKDAYS, Schedule
from qualgate.store.address import file_of, placed

MOST_GATES = 200
MADE_UP_FOR = timedelta(days=7)  # the last night of a schedule may run late, and its digest later still
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
When = Literal["always", "changed", "not_approved"]


def _time(text: str) -> str:
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
        raise stated(f'`at` is a time of day from "00:00" to "23:59", in quotes; found {quote(text)}')
    return text


def _day(value: Any) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except (TypeError, ValueError):
        raise stated(f"`until` is a day, YYYY-MM-DD, not {quote(value)}") from None


def _weekday(text: str) -> str:
    if text not in WEEKDAYS:
        raise stated(f"`days` takes {', '.join(WEEKDAYS)}; found {quote(text)}{nearest(text, WEEKDAYS)}")
    return text


def _zone(text: str) -> str:
    if text not in available_timezones():
        known = nearest(text, available_timezones())
        raise stated(f"unknown time zone {quote(text)}" + (known if "did you mean" in known else "; such as UTC"))
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", text):
        raise stated("expected the NAME of an environment variable; the secret itself must not stand in a file")
    return text


def _mail(text: str) -> str:
    if not re.fullmatch(r"[^@\s<>,;:\"]{1,64}@[A-Za-z0-9.-]{1,255}", text):
        raise stated(f"expected an address such as team@example.com, found {quote(text)}")
    return text


Variable = Annotated[str, AfterValidator(_variable), Field(json_schema_extra={"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"})]
Address = Annotated[str, AfterValidator(_mail)]
Day = Annotated[str, AfterValidator(_weekday), WithJsonSchema({"enum": list(WEEKDAYS)})]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class ScheduleEntry(Written):
    """When the gate files are due. A night that was missed is made up for once, however many there were."""

    example: ClassVar = '{at: "02:00", timezone: Europe/Berlin}'
    at: Annotated[str, AfterValidator(_time), Field(json_schema_extra={"pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"})]
    """Time of day, in quotes. Example: `at: "02:00"`"""
    days: list[Day] = Field(default=ABSENT, max_length=7)
    """Days of the week; every day where it is left out. Example: `days: [mon, tue, wed, thu, fri]`"""
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """In which the time of day is meant. Example: `timezone: Europe/Berlin`"""
    until: Annotated[Any, AfterValidator(_day), WithJsonSchema({"type": "string", "format": "date"})] = ABSENT
    """The last day; for a week after it, its night is made up for where it was missed. Example: `until: 2027-03-31`"""

    @model_validator(mode="after")
    def _fires(self) -> ScheduleEntry:
        if self.days is not None and not self.days:
            raise stated("`schedule.days` is empty: it would never fire; name days, or leave `days` out for every day")
        now, schedule = datetime.now(UTC), as_schedule(self)
        last = schedule.last(now)
        if schedule.next(now) is None and (last is None or now - last > MADE_UP_FOR):
            raise stated(
                f"the schedule never fires again: `until: {self.until}` leaves no scheduled day; give a later day, or "
                "leave `until` out"
            )
        return self


class NightlyGate(Written):
    """A gate file, and the models that take the place of its variants."""

    example: ClassVar = "{gate: ./support/gate.yaml}"
    gate: PlainFile
    """The gate file. Example: `gate: ./support/gate.yaml`"""
    models: list[str] = Field(default=ABSENT, min_length=1, max_length=100)
    """Folders, or patterns of folders: each is judged by itself, in place of the gate file's variants, and one that is
    new is judged the next night. Example: `models: ["./models/support-*"]`
    """
    owners: list[Address] = Field(default=ABSENT, max_length=20)
    """Who is mailed about this gate alone. Example: `owners: [ana@example.com]`"""
    unchanged: Literal["skip", "run"] = "skip"
    """What to do where nothing that answers rest on has changed since the last complete run: repeat its verdict
    (`skip`), or run again. Served arms always run: what a server is cannot be seen from here. Example: `unchanged: run`
    """


class Hook(Written):
    """An address that is told, from the environment: it holds a secret."""

    example: ClassVar = "{url_env: QUALGATE_SLACK_URL}"
    url_env: Variable
    """The environment variable with the address. Example: `url_env: QUALGATE_SLACK_URL`"""
    when: When = "always"
    """Every night, where a verdict is another than the night before's (`changed`), or where one is no approval
    (`not_approved`). A fall and an undelivered digest are told by each. Example: `when: changed`
    """


class MailEntry(Written):
    """A mail to the owners, by a server that takes it."""

    example: ClassVar = "{server: smtp.example.com, sender: qualgate@example.com}"
    server: str = Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9.:\[\]-]+$")
    """The SMTP server. Example: `server: smtp.example.com`"""
    port: int = Field(default=587, ge=1, le=65535)
    """Its port. Example: `port: 25`"""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is protected; with `none`, nothing is logged in to. Example: `security: tls`"""
    sender: Address
    """Who it is from. Example: `sender: qualgate@example.com`"""
    user_env: Variable = ABSENT
    """The environment variable with the user's name, where the server asks for one. Example: `user_env: SMTP_USER`"""
    password_env: Variable = ABSENT
    """The environment variable with the password. Example: `password_env: SMTP_PASSWORD`"""
    when: When = "always"
    """As of a webhook. Example: `when: not_approved`"""

    @model_validator(mode="after")
    def _logs_in(self) -> MailEntry:
        if (self.user_env is None) != (self.password_env is None):
            raise stated("`mail` needs both `user_env` and `password_env`, or neither")
        if self.user_env is not None and self.security == "none":
            raise stated("`mail.security: none` would send the password unencrypted; use starttls or tls")
        return self


class DigestEntry(Written):
    """Who is told of a night, in one message each. What cannot be delivered is kept and sent with the next."""

    example: ClassVar = "{slack: {url_env: QUALGATE_SLACK_URL}}"
    slack: Hook = ABSENT
    """An incoming webhook of Slack, or of what takes its shape. Example: `slack: {url_env: QUALGATE_SLACK_URL}`"""
    webhook: Hook = ABSENT
    """Plain JSON. Example: `webhook: {url_env: QUALGATE_HOOK_URL}`"""
    mail: MailEntry = ABSENT
    """A mail. Example: `mail: {server: smtp.example.com, sender: qualgate@example.com}`"""


class NightlyModel(Written):
    """What is judged every night."""

    version: Literal[1]
    """Of this form. Example: `version: 1`"""
    name: Name = ABSENT
    """Under which its nights are kept; the file's own where left out. Where other files may keep theirs in the same
    store (a database, or a file in another folder), it has to be said. Example: `name: support-team`
    """
    schedule: ScheduleEntry
    """When. Example: `schedule: {at: "02:00", timezone: Europe/Berlin}`"""
    gates: dict[Name, NightlyGate] = Field(min_length=1, max_length=MOST_GATES)
    """What, by names that the digest uses. Example: `gates: {support: {gate: ./support/gate.yaml}}`"""
    store: StoreUrl = "sqlite:///nightly.db"
    """Where nights, their runs and undelivered digests are kept, in place of the gate files' own stores. Example:
    `store: sqlite:///nights.db`
    """
    owners: list[Address] = Field(default=ABSENT, max_length=20)
    """Who is mailed. Example: `owners: [team@example.com]`"""
    digest: DigestEntry = ABSENT
    """Who is told, and how. Example: `digest: {slack: {url_env: QUALGATE_SLACK_URL}}`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nightly:
    """A nightly file as a record; paths are absolute."""

    path: Path
    name: str  # under which its nights are kept
    schedule: Schedule
    gates: dict[str, NightlyGate]
    store_url: str
    owners: tuple[str, ...]
    digest: DigestEntry

    def gate_path(self, name: str) -> Path:
        """Path of the gate file with this name."""
        return self.path.parent / expanded(self.gates[name].gate)


def as_schedule(entry: ScheduleEntry) -> Schedule:
    """The schedule as a record."""
    return Schedule(
        at=time.fromisoformat(entry.at),
        days=tuple(entry.days) if entry.days is not None else WEEKDAYS,
        timezone=entry.timezone,
        until=entry.until,
    )


def load_nightly(path: Path) -> Nightly:
    """Load the nightly file at `path`. UsageError names every fault with its line."""
    path = path.absolute()
    document = read_yaml(path)
    _refuse_a_gate_file(document)
    model, faults = as_model(NightlyModel, document, {"folder": path.parent, "files": True})
    if model is not None:
        faults += [document.fault(place, message) for place, message in _contradictions(model, path)]
    if model is None or faults:
        refuse(faults)
    return Nightly(
        path=path,
        name=model.name or path.name,
        schedule=as_schedule(model.schedule),
        gates=model.gates,
        store_url=placed(model.store, path.parent),
        owners=tuple(model.owners or ()),
        digest=model.digest or DigestEntry(),
    )


def _contradictions(model: NightlyModel, path: Path) -> list[tuple[tuple[str, ...], str]]:
    """List faults between parts of a nightly file: (place, message)."""
    faults: list[tuple[tuple[str, ...], str]] = []
    store_file = file_of(placed(model.store, path.parent))
    if not model.name and (store_file is None or store_file.parent != path.parent):
        message = "its store may keep the nights of other files too; say which are its own: name: support-team"
        faults.append((("store",), message))
    mail = model.digest.mail if model.digest else None
    owned = [name for name, gate in model.gates.items() if gate.owners]
    if mail is not None and not model.owners and len(owned) < len(model.gates):
        faults.append((("digest", "mail"), "`mail` goes to `owners`, and there are none; name them"))
    if mail is None and (model.owners or owned):
        place = ("owners",) if model.owners else ("gates", owned[0], "owners")
        faults.append((place, "`owners` are mailed, and `digest.mail` does not say by which server"))
    return faults


def _refuse_a_gate_file(document: Document) -> None:
    value: Any = document.value
    if isinstance(value, dict) and "baseline" in value and "gates" not in value:
        refuse([document.fault((), f"this is a gate file; a nightly file names it: gates: {{NAME: {{gate: "
                                   f"./{os.path.basename(document.path)}}}}}")])  # fmt: skip
