"""The command line: parse, call one library function, render, exit with the contract's code.

Rooms are imported inside the commands: `qualgate --help` must not wait for torch.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated, cast

import typer

from qualgate.cli.commands import HELP, add_commands
from qualgate.cli.gone import gone_line
from qualgate.cli.help import Grouped, suggest_option
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import encode_anything, say
from qualgate.errors import Exit, QualgateError

# typer bundles a copy of click or uses click itself, so the parser's errors are found by their common base.
_PARSER_ERROR = cast(
    "type[Exception]", next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
)
EXIT_CODES = """\b
Exit codes (only 0 lets a pipeline continue):
    0  approve: every critical rule is proven
   10  block: a critical rule is proven broken
   11  review: the policy asks for a person
   12  undecided: evidence missing, too little, stale or mismatched
   13  infrastructure failure or incomplete run
   14  integrity failure: stored evidence is not what was recorded
   64  usage or configuration error
  130  interrupted (143: terminated); run again to resume
"""

app = typer.Typer(
    name="qualgate",
    help="Decides whether a quantized LLM variant may replace its full-precision baseline.",
    epilog=EXIT_CODES,
    cls=Grouped,
    context_settings=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Log(StrEnum):
    """Format of messages on stderr."""

    TEXT = "text"
    JSON = "json"


def _version(requested: bool) -> None:
    if requested:
        from qualgate.records.identity import own_version

        say(f"qualgate {own_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
    log: Annotated[
        Log, typer.Option("--log", envvar="QUALGATE_LOG", help="format of the messages on stderr: text or JSON lines")
    ] = Log.TEXT,
) -> None:
    os.environ["QUALGATE_LOG"] = log.value  # child processes read it too


add_commands(app)


def main() -> None:
    """Run the command line: every outcome ends with one of the documented exit codes, without a traceback."""
    encode_anything()
    try:
        code = app(standalone_mode=False)
    except QualgateError as error:
        tell(f"qualgate: {error}", level="error", exit=int(error.exit))
        code = error.exit
    except typer.Abort:
        code = Exit.INTERRUPTED
    except _PARSER_ERROR as error:
        suggest_option(error)
        if line := gone_line(error):
            tell(f"qualgate: {line}", level="error", exit=int(Exit.USAGE))
        elif os.environ.get("QUALGATE_LOG") == "json":
            tell(error.format_message(), level="error", exit=int(Exit.USAGE))  # type: ignore[attr-defined]
        else:
            error.show()  # type: ignore[attr-defined]
        code = Exit.USAGE
    except KeyboardInterrupt:
        tell("qualgate: interrupted", level="error", exit=int(Exit.INTERRUPTED))
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's own flush is quiet
        code = Exit.INFRASTRUCTURE  # the reader closed stdout before the verdict was printed: never a pass
    except OSError as error:
        tell(f"qualgate: {error.strerror or error}: {error.filename or 'while writing'}", level="error")
        code = Exit.INFRASTRUCTURE
    sys.exit(int(code or 0))
