"""Shared by the tests: the command line, called as its users do."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from elbowroom.commands import app as cli

ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1"}


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, arguments)], env=ENVIRONMENT)


def good(*arguments: Any) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert all(c.isprintable() or c == "\n" for c in result.output)
    return result


def refused(*arguments: Any) -> str:
    """The one line that is said."""
    result = run(*arguments)
    assert result.exit_code == 2 and not result.stdout
    assert result.stderr.startswith("elbowroom: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr
