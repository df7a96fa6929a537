"""The `fastshard` command: which subcommands there are, and what errors and signals look like in all of them.

A subcommand is a row of COMMANDS and the module that it names, which has `add_arguments(parser)` and
`run(options) -> int`. Only the module of the subcommand that runs is imported, so the others cost it nothing.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from fastshard._version import __version__
from fastshard._warnings import ShardError

FOUND, FAILED, INTERRUPTED, BROKEN_PIPE = 1, 2, 128 + 2, 128 + 13
"""Exit status: the last two are a shell's for programs that SIGINT or SIGPIPE ended."""

EXIT_STATUS = (
    f"Exit status: 0 if all is well, {FOUND} if a problem was found in the data, {FAILED} if the command could not be\n"
    f"carried out: a wrong argument, a missing package, an output that can't be written."
)


class Command(NamedTuple):
    """One subcommand."""

    module: str
    help: str


COMMANDS = {
    "index": Command("fastshard.cli.index", "find where each sample of tar shards lies, and save it beside them"),
}


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and not the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def entry_point() -> NoReturn:
    """The installed command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text at all
    status = main()
    if status == INTERRUPTED:
        # A thread may hang in a read of a dead server or mount, and Python's own end would wait for it.
        os._exit(status)
    sys.exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line. Errors are one line on stderr.

    Args:
        arguments: without the program's name; None: those of this process.

    Returns:
        The exit status: 0 if all is well, 1 if a problem was found, 2 if the arguments are wrong or the command
        could not be carried out, 130 after Ctrl-C, 141 if nobody reads its output any more.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = " ".join(["fastshard", *(word for word in given[:1] if word in COMMANDS)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: _say(f"{name}: warning: {message}")
            status = _run(given)
            if sys.stdout is not None:
                sys.stdout.flush()
            return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except (ShardError, ValueError, OSError, ImportError) as error:
        _say(f"{name}: error: {_in_words(error)}")
        _drop_output()
        return FOUND if isinstance(error, ShardError) else FAILED


def _run(given: list[str]) -> int:
    name = given[0] if given else ""
    try:
        if name not in COMMANDS:
            parser = _parser_without_command()
            parser.parse_args(given)
            parser.error("COMMAND must come first")
        parser = _Parser(f"fastshard {name}", formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        module = importlib.import_module(COMMANDS[name].module)
        module.add_arguments(parser)
        parser.epilog = f"{parser.epilog or ''}\n{EXIT_STATUS}".lstrip()
        options = parser.parse_args(given[1:])
    except SystemExit as done:  # --help, --version, or a wrong argument that has been named
        return int(done.code or 0)
    status: int = module.run(options)
    return status


def _parser_without_command() -> argparse.ArgumentParser:
    """What answers `fastshard --help`, `fastshard --version`, and a command that is none."""
    parser = _Parser(
        "fastshard",
        description="Which sample each process of a training job sees, and where it lies.",
        epilog=f"fastshard COMMAND --help tells more.\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastshard {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.help)
    return parser


def _say(line: str) -> None:
    """Prints to stderr, above a progress bar if one is there."""
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return " ".join(str(error).splitlines()) or type(error).__name__


def _drop_output() -> None:
    """Where stdout can't be written, what it still holds goes nowhere: Python would try once more at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
