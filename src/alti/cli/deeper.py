"""What `alti explain` shows of one layer: its heads, and what the model would have said there."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti import UsageError
from alti.cli.console import say
from alti.cli.prompts import Asked
from alti.cli.shared import Output, write_picture

if TYPE_CHECKING:
    from alti import Model

Lens = Annotated[
    bool,
    typer.Option("--lens", help="Say what a language model would have said after each layer."),
]
Heads = Annotated[
    int | None,
    typer.Option("--heads", help="Show the heads of this layer instead: 1 is the first, -1 last."),
]


def show_heads(
    model: "Model", layer: int, asked: Asked, options: dict[str, Any], output: Output
) -> None:
    """Print or draw what each head of a layer does with a text."""
    if layer == 0:
        raise UsageError("--heads 0 is no layer: 1 is the first, and -1 the last")
    if output.html or output.latex:
        raise UsageError("--heads prints, or draws with --plot FILE: leave --html and --latex out")
    own = {name: options[name] for name in ("bos", "truncate")}
    number = layer - 1 if layer > 0 else layer
    try:
        with asked.arguments() as arguments:
            maps = model.heads(**arguments, layer=number, p=options.get("p", 1), **own)
    except UsageError as error:  # commands count layers from 1
        raise UsageError(str(error).replace(f"layer = {number} ", f"--heads {layer} ")) from None
    if output.as_json:
        say(json.dumps(maps.to_dict()))
    elif output.plot is None:
        say(maps.render(position=options["position"]))
    else:
        write_picture(output.plot, maps.plot())
