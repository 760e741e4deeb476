"""Commands about whole models: proved to be read right, served on a page."""

import json
from typing import Annotated

import typer

from alti import FAMILIES
from alti._characters import plain
from alti.cli.console import say
from alti.cli.shared import Device, Dtype, Graphs, Json, Trust, open_model


def check(
    model: Annotated[
        str | None, typer.Argument(help="A Hugging Face hub name or a folder; default: embedded.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Prove that a model is read correctly: each block, rebuilt from its parts, is the model's."""
    loaded = open_model(model, device, dtype, trust_remote_code)
    errors = {loaded.dtype: loaded.check()}
    blocks = len(errors[loaded.dtype])
    if loaded.dtype in ("float16", "bfloat16"):  # too coarse to tell an exact sum from a near one
        loaded = loaded.in_float32()
        errors["float32"] = loaded.check()
    nonlinear = FAMILIES[loaded.family].nonlinear
    gap = None if nonlinear else loaded.completeness()
    if as_json:
        report = {
            "model": model or loaded.name,
            "family": loaded.family,
            "exact": True,
            "errors": errors,
            "completeness": gap,
            **({"no_linear_view": nonlinear} if nonlinear else {}),
        }
        say(json.dumps(report))
        return
    facts = [_compared(max(worst), dtype) for dtype, worst in errors.items()]
    if gap is not None:
        facts.append(_complete(gap))
    say(f"{plain(loaded.name)} ({loaded.family}): {blocks} blocks, {', '.join(facts)}: exact")
    if nonlinear:
        say(f"no linear view: {nonlinear}")


def _compared(worst: float, dtype: str) -> str:
    """How far blocks are from the sums of their parts; 0 is no missing comparison, and says so."""
    if worst > 0:
        return f"worst error {worst:.1e} in {dtype}"
    return f"each equal to the sum of its parts to the last bit in {dtype}"


def _complete(gap: float) -> str:
    """How much of a prediction the linear view cannot account for."""
    return f"linear view complete to {f'{gap:.1e}' if gap > 0 else 'the last bit'}"


def serve(
    models: Annotated[
        list[str] | None, typer.Argument(help="Hub names or folders; default: embedded.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; anything but loopback lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any free port.")] = 8765,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Longer texts are refused; default: 512, prompts with an answer 4096."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    graphs: Graphs = False,
    trust_remote_code: Trust = False,
) -> None:
    """Open a web page on this machine: type a text and see which tokens the prediction rests on."""
    from alti.web import serve
    from alti.web.settings import Limits, Settings

    names = tuple(models) if models else (None,)
    limits = Limits() if max_tokens is None else Limits(tokens=max_tokens, prompt=max_tokens)
    settings = Settings(names, host, port, device, dtype, limits, trust_remote_code, graphs)
    serve(settings, browser=not no_browser)
