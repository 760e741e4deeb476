"""The events of one forward pass: attention was computed, a module of a site was called.

A reader subclasses `Reader` and says in `hooks` which events it wants. Attention is captured at
transformers' attention interface or, in families that do not use it, at the two modules that
`Site.probs` and `Site.value` name.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import DecompositionError
from alti._progress import expect, step
from alti.family import Site
from alti.read.affine import Call
from alti.read.attention_call import AttentionCall
from alti.read.attention_hook import capturing_attention, is_listening
from alti.read.modules import decodes, device_of, network, require_readable, stacks_of
from alti.read.own_attention import OwnAttention

Point = Literal["word", "embedding"]  # where vectors enter a model


class Attention(NamedTuple):
    """What attention computed at one site."""

    probs: Tensor  # [B, H, T, S]
    value: Tensor  # [B, H, S, d]
    # of a long text: no probabilities [B, H, T, 0], values by group [B, G, S, d], and this
    call: AttentionCall | None = None


class Reader:
    """Reads forward passes of one model; handlers run only in the thread that started the pass."""

    def __init__(self, model: PreTrainedModel, *, by_rows: bool = False) -> None:
        require_readable(model)
        self.model = model
        self.by_rows = by_rows  # attention is not kept, but computed again when it is asked for
        self.name: str = model.config.model_type
        self.stacks = stacks_of(model)
        self.layer: nn.Module | None = None  # the one that is running
        self.calls: dict[str, Call] = {}  # at the site that is running, by field of Site
        self.captured: Attention | None = None  # at the interface, and not yet claimed
        self.count = 0  # sites that are complete
        sites = [site for stack, _ in self.stacks for site in stack.sites]
        self.needs_mask = any(site.own for site in sites)  # adds its mask, whatever that is
        self.layers_in_all = sum(len(layers) for _, layers in self.stacks)
        self.sites_in_all = sum(len(layers) * len(stack.sites) for stack, layers in self.stacks)

    def hooks(self) -> Iterator[RemovableHandle]:
        """Register what this reader wants to see."""
        raise NotImplementedError  # every reader has its own

    @contextmanager
    def listening(self) -> Iterator[None]:
        """The model may be run in here; afterwards its hooks and its attention are as before."""
        # autocast would round our own products too
        exact = torch.autocast(device_of(self.model).type, enabled=False)
        with exact, capturing_attention(self.model, self), ExitStack() as registered:
            for handle in self.hooks():
                registered.callback(handle.remove)
            if self.needs_mask:
                own = OwnAttention(self)
                for handle in self._own_hooks(own):
                    registered.callback(handle.remove)
                registered.enter_context(own)
            yield

    def _own_hooks(self, own: OwnAttention) -> Iterator[RemovableHandle]:
        """Watch the modules that mix their values by themselves."""
        layers = [(layer, stack.sites) for stack, layers in self.stacks for layer in layers]
        paths = [(layer, site.own) for layer, sites in layers for site in sites if site.own]
        for module in (layer.get_submodule(path) for layer, path in paths):
            yield module.register_forward_pre_hook(lambda *_: own.watch(is_listening(self)))
            yield self.at_end(module, lambda output: own.watch(False))

    def before_attention(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return query, key, value

    def before_mixing(self, probs: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The same in a module that mixes its values by itself (`Site.own`)."""
        return probs, value

    def added_to_scores(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        return mask

    def attend(self, call: AttentionCall) -> Tensor:
        """By rows: what attention computes, [B, T, H, d]."""
        self._capture(Attention(call.query[..., :0], call.value, call))
        return call.output()

    def after_attention(self, probs: Tensor, value: Tensor) -> None:
        self._capture(Attention(probs, value))

    def _capture(self, attention: Attention) -> None:
        if self.captured is not None:
            raise DecompositionError(
                f"{self.name} block {self.count}: attention was computed again before the block "
                f"was complete; in alti.FAMILIES[{self.name!r}] a site is missing, or its norm, "
                "then or parallel comes too late"
            )
        self.captured = attention

    def claim_attention(self, site: Site) -> Attention | None:
        """The attention of the site that is running, which can be claimed once; None: not seen."""
        step()
        if site.probs and site.value:
            probs = self.calls.get("probs")
            value = self.calls.get("value")
            if probs is None or value is None:
                return None
            heads = probs.output.shape[1]
            values = split_values(site, value.output, heads)[..., site.value_part[0], :]
            if site.value_bias and self.layer is not None:
                values = values + self.layer.get_parameter(site.value_bias).reshape(heads, -1)
            return Attention(probs.output, values.transpose(1, 2))
        captured = self.captured
        self.captured = None
        return captured

    def record(self, layer: nn.Module, site: Site, field: str) -> RemovableHandle:
        """Keep the calls of the module that a field of a site names."""

        def keep(call: Call) -> None:
            if field == "parallel":  # Falcon adds attention to it in place
                call = call._replace(output=call.output.clone())
            self.calls[field] = call

        return self.after(layer, getattr(site, field), keep)

    # Hooks. What a handler returns replaces the model's tensor; None leaves it.
    # Modules can be shared between layers: only those of the running layer are reported.

    def at_start(self, layer: nn.Module, handle: Callable[[Tensor], Any]) -> RemovableHandle:
        """A layer starts: handle(its hidden states)."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not is_listening(self):
                return None
            self.layer = layer
            return with_hidden_states(args, kwargs, handle)

        return layer.register_forward_pre_hook(hook, with_kwargs=True)

    def at_call(self, layer: nn.Module, handle: Callable[..., None]) -> RemovableHandle:
        """A layer starts: handle(layer, its arguments, those by name)."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if is_listening(self):
                handle(module, args, kwargs)

        return layer.register_forward_pre_hook(hook, with_kwargs=True)

    def at_end(self, module: nn.Module, handle: Callable[[Any], Any]) -> RemovableHandle:
        """A layer, or the model, ends: handle(its output)."""

        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            return handle(output) if is_listening(self) else None

        return module.register_forward_hook(hook)

    def before(self, layer: nn.Module, path: str, handle: Callable[[Any], Any]) -> RemovableHandle:
        """A module of a layer is about to be called: handle(its input, or None)."""

        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            if not is_listening(self) or self.layer is not layer:
                return None
            changed = handle(args[0] if args else None)
            return None if changed is None else (changed, *args[1:])

        return layer.get_submodule(path).register_forward_pre_hook(hook)

    def after(self, layer: nn.Module, path: str, handle: Callable[[Call], Any]) -> RemovableHandle:
        """A module of a layer was called."""

        def hook(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
            if not is_listening(self) or self.layer is not layer:
                return None
            return handle(Call(module, args[0] if args else kwargs["hidden_states"], output))

        return layer.get_submodule(path).register_forward_hook(hook, with_kwargs=True)

    def anywhere(self, module: nn.Module, handle: Callable[[Call], Any]) -> RemovableHandle:
        """A module was called, inside a layer or not."""

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            return handle(Call(module, args[0], output)) if is_listening(self) else None

        return module.register_forward_hook(hook)

    def without_gradient(self, module: nn.Module) -> RemovableHandle:
        """What a module without parameters makes is constant: what it reads has no gradient."""

        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            return (args[0].detach(), *args[1:]) if is_listening(self) else None

        return module.register_forward_pre_hook(hook)


@contextmanager
def telling(model: PreTrainedModel, *, back: bool = False) -> Iterator[None]:
    """Whoever watches is told of each layer that a model runs in here.

    And, in a graph, of each that gradients go through; with `back` that is expected once.
    """
    layers = [layer for _, layers in stacks_of(model) for layer in layers]

    def tell(layer: nn.Module, args: Any, output: Any) -> None:
        step()
        y = first_of(output)
        if isinstance(y, Tensor) and y.requires_grad:
            y.register_hook(lambda _: step())  # type: ignore[no-untyped-call]  # torch's own

    expect(2 * len(layers) if back else len(layers))
    with ExitStack() as registered:
        for layer in dict.fromkeys(layers):  # one may be used many times
            registered.callback(layer.register_forward_hook(tell).remove)
        yield


def split_values(site: Site, output: Tensor, heads: int) -> Tensor:
    """The output of the module that `site.value` names, by head and part: [B, S, H, parts, d]."""
    return output.reshape(*output.shape[:2], heads, site.value_part[1], -1)


def with_hidden_states(
    args: tuple[Any, ...], kwargs: dict[str, Any], change: Callable[[Tensor], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """A layer's arguments with its hidden states changed; None where `change` returns None."""
    changed = change(args[0] if args else kwargs["hidden_states"])
    if changed is None:
        return None
    if args:
        return (changed, *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": changed}


def first_of(output: Any) -> Any:
    """The hidden states that a layer returns, alone or as the first of a tuple."""
    return output[0] if isinstance(output, tuple | list) else output


@contextmanager
def entering(model: nn.Module, at: Point, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change the vectors of a text: its word embeddings, or what the first layer reads.

    In an encoder–decoder those of the encoder first, then those of the decoder; frames of a sound
    have no word embeddings, so there it is what the first layer reads.
    """
    inner = network(model)
    thread = get_ident()
    stacks = len(stacks_of(inner)) if decodes(inner) else 1
    changed: list[bool] = []

    def once(x: Tensor) -> Tensor:
        if len(changed) == stacks or get_ident() != thread:  # a layer may be shared, a model too
            return x
        changed.append(True)
        return change(x)

    with ExitStack() as registered:
        for embeds, module in _doors(inner, at):
            if embeds:
                handle = module.register_forward_hook(lambda module, args, output: once(output))
            else:
                handle = module.register_forward_pre_hook(
                    lambda module, args, kwargs: with_hidden_states(args, kwargs, once),
                    with_kwargs=True,
                )
            registered.callback(handle.remove)
        yield


def _doors(model: PreTrainedModel, at: Point) -> list[tuple[bool, nn.Module]]:
    """Where vectors enter each stack: a table of words, or a layer that reads them; each once."""
    firsts = [layers[0] for _, layers in stacks_of(model)]
    if not decodes(model):
        return [(True, model.get_input_embeddings())] if at == "word" else [(False, firsts[0])]
    if at == "embedding":
        return [(False, first) for first in firsts]
    sides = (model.get_encoder(), model.get_decoder())
    tables = [(True, side.get_input_embeddings()) for side in sides]
    if model.main_input_name != "input_ids":
        tables[0] = False, firsts[0]
    return list(dict.fromkeys(tables))
