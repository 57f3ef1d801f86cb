"""Ray's own job client, with its errors in the user's words."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qualgate.errors import Exit, InfrastructureError, UsageError, one_line
from qualgate.errors.extras import needs
from qualgate.pipeline.cluster.inside import End, read_end
from qualgate.pipeline.cluster.travel import lay_out
from qualgate.records.identity import own_version

ANSWER_SECONDS = 60.0  # in which the cluster's dashboard is to answer a request
AGENT_SECONDS = 120.0  # in which a cluster that has just begun is to have an agent that takes jobs
AGENT_PAUSE_SECONDS = 1.0
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
# Ray lets these replace the address that a client is given; the option is meant.
_OVERRIDES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What Ray says of a job. Times: s since the epoch."""

    id: str
    status: str  # PENDING, RUNNING or one of ENDED
    gate_file: str  # its name
    began: float | None
    ended: float | None
    message: str  # Ray's own, of a job that failed

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in ENDED

    @property
    def by_ray(self) -> str:
        """Its status and Ray's message, as people read them."""
        return f"{self.status} by Ray{f', {self.message}' if self.message else ''}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The job server of a Ray cluster, which is its dashboard's. Make it by `reach`."""

    address: str
    client: Any

    def submit(self, files: Mapping[str, Path], gate_file: str, options: Sequence[str], folder: str) -> str:
        """Hand a run over; returns the job's id. folder: see `inside`; options: of `qualgate run`."""
        job = f"qualgate-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(8)}"
        about = [job, own_version(), folder, json.dumps(sorted(files))]
        words = ["python", "-m", "qualgate.pipeline.cluster.inside", *about, gate_file, *options]
        with tempfile.TemporaryDirectory(prefix="qualgate-") as working_dir:
            lay_out(files, Path(working_dir))
            with self._plainly():
                return _submit(
                    self.client,
                    entrypoint=shlex.join(words),
                    submission_id=job,
                    runtime_env={"working_dir": working_dir},
                    metadata={"gate_file": gate_file},
                )

    def job(self, name: str) -> Job:
        """Return what Ray says of the job. UsageError where it has none of this id."""
        details = self._ask(name, self.client.get_job_info)
        return Job(
            id=name,
            status=str(details.status.value),
            gate_file=(details.metadata or {}).get("gate_file", ""),
            began=_seconds(details.start_time),
            ended=_seconds(details.end_time),
            message=(details.message or "").partition(", last available logs")[0].strip(),
        )

    def log(self, name: str) -> str:
        """Return all that the job wrote."""
        return self._ask(name, self.client.get_job_logs) or ""

    def end(self, job: Job) -> End | None:
        """Return how the run ended; None where its log does not say so. An approval of a job that Ray does not call
        SUCCEEDED is none: the end is then 13, and its `fault` says why."""
        end = read_end(self.log(job.id), job.id)
        if end is None or end.exit != Exit.APPROVE or job.status == "SUCCEEDED":
            return end
        fault = f"{job.id}: the run says that it ended with exit 0, and its job is {job.by_ray}. Nothing is approved."
        return End(id=job.id, exit=Exit.INFRASTRUCTURE, shown=end.shown, report="", fault=fault)

    def stop(self, name: str) -> bool:
        """Ask the job to stop. False where it had ended already."""
        return bool(self._ask(name, self.client.stop_job))

    def _ask(self, name: str, ask: Callable[[str], Any]) -> Any:
        with self._plainly(name):
            return ask(name)

    @contextmanager
    def _plainly(self, name: str = "") -> Iterator[None]:
        with _plain_errors(self.address, name):
            yield


def reach(address: str) -> Cluster:
    """Return the cluster whose dashboard is at `address`, http://HOST:8265. UsageError for another kind of address and
    without Ray here, InfrastructureError if it does not answer."""
    if not address.startswith(("http://", "https://")):
        raise UsageError(
            f"--cluster {address!r:.80}: give the address of the cluster's dashboard, such as http://HEAD:8265"
        )
    try:
        import requests  # noqa: F401  # which the client asks with, and which Ray alone does not bring
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise UsageError(needs("`--cluster`", "ray")) from None

    class Client(JobSubmissionClient):
        """Ray's, whose requests end: without a limit one to a server that says nothing would wait for ever."""

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            limited: dict[str, Any] = {"timeout": ANSWER_SECONDS} | options
            return super()._do_request(method, endpoint, **limited)

    for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private.runtime_env.packaging"):
        logging.getLogger(f"ray.{name}").setLevel(logging.WARNING)
    token = _token()
    overrides = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
    try:
        with _plain_errors(address, ""):
            return Cluster(address, Client(address, headers=token))
    finally:
        os.environ.update(overrides)


def _submit(client: Any, **job: Any) -> str:
    """Submit the job, and again while the cluster has no agent for it yet: then it took none."""
    end = time.monotonic() + AGENT_SECONDS
    while True:
        try:
            return client.submit_job(**job)
        except RuntimeError as error:
            if "No available agent" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(AGENT_PAUSE_SECONDS)


def _token() -> dict[str, str]:
    """Return the header with the cluster's token. The file that Ray keeps for all clusters is read only in Ray's token
    mode: its token is not for any address. UsageError for a file that cannot be read."""
    token, stated_path = os.environ.get("RAY_AUTH_TOKEN", ""), os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    usual = Path.home() / ".ray" / "auth_token"
    in_token_mode = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    if not token and (stated_path or (in_token_mode and usual.is_file())):
        path = Path(stated_path) if stated_path else usual
        try:
            token = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(f"{path}, which should hold the cluster's token, cannot be read: {why}") from None
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


@contextmanager
def _plain_errors(address: str, job: str) -> Iterator[None]:
    """Raise errors of the job client as ours: InfrastructureError for a server that is away or is no dashboard,
    UsageError for a wrong token and for an unknown job. job: its id; "": the request is about none."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(f"{address} answers, but not as Ray's dashboard does ({one_line(error)})") from None
    except OSError as error:  # of requests as of Ray itself
        raise InfrastructureError(
            f"no Ray dashboard answers at {address} ({one_line(error)}). `ray start --head --dashboard-host=0.0.0.0` "
            "starts one with its cluster, on port 8265."
        ) from None
    except Exception as error:
        if type(error).__name__ == "AuthenticationError":
            raise UsageError(
                f"the cluster at {address} asks for another token ({one_line(error)}). Set RAY_AUTH_TOKEN, or "
                "copy ~/.ray/auth_token of its head and set RAY_AUTH_MODE=token."
            ) from None
        if not isinstance(error, RuntimeError):
            raise
        if job and "status code 404" in str(error):
            raise UsageError(
                f"the cluster at {address} has no job {job!r:.80}: give the id that `submit` printed"
            ) from None
        raise InfrastructureError(f"Ray at {address}: {one_line(error)}") from None


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000
