"""What lies between a store's address and its server, by the commands: a missing schema, a pooler, TLS, a timeout."""

from __future__ import annotations

import json
import re

import pytest
from sqlalchemy.engine import make_url

from qualgate.errors import Exit
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.pooler import pooled
from tests.postgresql import server
from tests.store.made import make_plan, make_run

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def url() -> str:
    made = server().new_database()
    with open_store(made) as store:
        make_run(store, make_plan(cases=2))
    return made


def asked(*words: str, url: str) -> tuple[int, str]:
    done = qualgate(*words, "--store", url, COLUMNS="200")
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_schema_that_is_not_there_is_named_and_none_is_read_in_its_place(url):
    server().execute('CREATE SCHEMA "Mine"', make_url(url).database)
    for path in ("no_such", "no_such,public", '"mine"'):
        for command in ("runs", "report", "gate"):
            code, told = asked(command, url=f"{url}&options=-csearch_path%3D{path}")
            assert code == Exit.USAGE, told
            assert path.partition(",")[0] in told
            assert "CREATE SCHEMA" in told
    for path in ("public", "Public", "public,no_such", '"$user",public'):
        assert asked("runs", url=f"{url}&options=-csearch_path%3D{path}")[0] == 0, path
    assert "the database is empty" in asked("runs", url=f'{url}&options=-csearch_path%3D"Mine"')[1]


def test_a_statement_that_a_timeout_ends_names_it(url):
    server().execute("CREATE ROLE hurried LOGIN SUPERUSER")
    server().execute("ALTER ROLE hurried SET statement_timeout = '1ms'")
    code, told = asked("report", url=url.replace("postgres@", "hurried@"))
    assert code == Exit.INFRASTRUCTURE, told
    assert "ALTER ROLE … SET statement_timeout = 0" in told
    assert asked("runs", url=f"{url.replace('postgres@', 'hurried@')}&options=-cstatement_timeout%3D0")[0] == 0


def test_tls_against_a_server_without_it_names_the_setting(url):
    with pooled(server().folder) as port:
        code, told = asked(
            "runs", url=f"postgresql://postgres@127.0.0.1:{port}/{make_url(url).database}?sslmode=require"
        )
    assert code == Exit.USAGE
    assert "does not support SSL" in told
    assert "`?sslmode=prefer`" in told


def test_a_pooler_that_deals_out_sessions_is_named_before_anything_is_written(url, tmp_path):
    with pooled(server().folder) as port:
        through = f"postgresql://postgres@127.0.0.1:{port}/{make_url(url).database}?sslmode=disable"
        assert asked("runs", url=through)[0] == 0
        gate = make_workspace(tmp_path)
        gate.write_text(re.sub("(?m)^store: .*", f"store: {json.dumps(through)}", gate.read_text()))
        done = qualgate("run", gate.name, cwd=gate.parent)
        assert done.returncode == Exit.USAGE, done.stderr
        assert "PgBouncer: pool_mode = transaction" in " ".join(done.stderr.split())
        assert "pool_mode = session" in " ".join(done.stderr.split())
    assert len(json.loads(asked("runs", "--json", url=url)[1])) == 1
