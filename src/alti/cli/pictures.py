"""What the command line does with the explanation of an image."""

import json
from typing import Any

from alti import UsageError
from alti.cli.console import say, write
from alti.cli.shared import Output, write_picture


def show(result: Any, output: Output) -> None:
    """Print it, write its page, draw it."""
    if output.latex:
        raise UsageError("--latex writes tables of words: use --html or --plot for an image")
    if output.as_json:
        say(json.dumps(result.to_dict()))
    elif output.prints_text:
        say(result.render())
    if output.html:
        write(output.html, result.to_html())
    if output.plot:
        write_picture(output.plot, result.plot())
