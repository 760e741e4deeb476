"""Reads a model: runs it once and writes each attention block as a sum of one vector per token.

Probabilities and values are overheard at transformers' attention interface (or at the two modules that `Site.probs` and
`Site.value` name); everything else comes from forward hooks at the paths of a `Site`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import DecompositionError, UnsupportedModelError, UsageError
from alti.families import Site, Stack
from alti.read.affine import projection
from alti.read.attention_hook import listens, overhearing, unheard
from alti.read.block import Block
from alti.read.comparing import errors, limit_of, relative, spread
from alti.read.cuda_capture import afterwards, capturing
from alti.read.exactness import follow, require_same, untouched
from alti.read.modules import call, network, stacks_of
from alti.read.norms import Call, carried, fused_for

Through = Literal["ffn"] | None
Visit = Callable[[Block], None]
Report = Callable[[Block, Tensor], None]

COMPARED = 16  # positions at which `walk` compares, at least one of each text; a wrong entry is wrong at every one


def walk(
    model: nn.Module, inputs: Mapping[str, Any], visit: Visit, *, through: Through = None
) -> Any:
    """Run the model once, hand each attention block to `visit` as soon as it is complete, return the model's output.

    Every block is rebuilt from its parts and compared with what the model computed, at 16 positions; a difference
    raises DecompositionError: before `visit` sees the block, or on an accelerator before `walk` returns. Nothing is
    kept here: peak memory is one block.
    `through="ffn"` carries each block through the second norm of its layer (for Globenc and ALTI + LN2).
    The model is left as it was, also after an exception.
    """
    return _walk(model, inputs, lambda block, _: visit(block), through, COMPARED)


def trace(model: nn.Module, inputs: Mapping[str, Any], *, through: Through = None) -> list[Block]:
    """All attention blocks of one forward pass, in the order in which the model computed them."""
    blocks: list[Block] = []
    walk(model, inputs, blocks.append, through=through)
    return blocks


def check(model: nn.Module, inputs: Mapping[str, Any], *, through: Through = None) -> list[float]:
    """The worst relative error of each block: |sum of parts − what the model computed|, padding left out.

    Above the limit of the model's dtype it raises DecompositionError, which names the block and the paths to look at.
    The same where reading changes the model's output, where something else than attention mixes tokens, and where what
    a layer computes is not read by the next one (`alti.exactness`).
    """
    found: list[float] = []
    output = _walk(model, inputs, lambda _, error: found.append(float(error.max())), through, None)
    require_same(output, untouched(model, inputs), model, inputs)
    follow(model, inputs)
    return found


def _walk(
    model: nn.Module,
    inputs: Mapping[str, Any],
    report: Report,
    through: Through,
    compared: int | None,
) -> Any:
    if through not in (None, "ffn"):
        raise UsageError(
            f"through = {through!r} is not known: give 'ffn' for the second norm, or None"
        )
    inner = network(model)
    reader = _Reader(inner, inputs, report, through, compared)
    exact = torch.autocast(
        inner.device.type, enabled=False
    )  # else our own products would be rounded too
    with torch.no_grad(), exact, overhearing(inner, reader), ExitStack() as hooks:
        for stack, layers in reader.stacks:
            for layer in layers:
                for handle in reader.watch(stack, layer):
                    hooks.callback(handle.remove)
        output = call(inner, inputs)
    reader.finish()
    return output


class _Reader:
    """Listens to one forward pass of one model and reports each block with its error."""

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Mapping[str, Any],
        report: Report,
        through: Through,
        compared: int | None,
    ) -> None:
        self.name, self.config, self.inputs = model.config.model_type, model.config, inputs
        self.report, self.through, self.compared, self.count = report, through, compared, 0
        self.stacks = stacks_of(model)
        self.attention: tuple[Tensor, Tensor] | None = (
            None  # overheard, and not yet part of a block
        )
        self.calls: dict[str, Call] = {}  # of the site now being computed, by field of Site
        self.layer: nn.Module | None = None  # that runs now
        self.x = torch.empty(0)  # the residual of that site
        self.masks: dict[
            str, Tensor | None
        ] = {}  # by name of the input; None where nothing is padded
        self.samples: dict[Any, tuple[Tensor, Tensor]] = {}  # where blocks of a shape are compared
        self.constants: dict[Any, Tensor] = {}
        self.pending: Block | None = None  # waits for the second norm
        self.verdicts: list[tuple[Tensor, float, Callable[..., DecompositionError], str]] = []
        if not self.stacks:
            raise DecompositionError(
                f"{self.name}: {type(model).__name__} has no layers at the Stack.blocks of alti.FAMILIES[{self.name!r}]"
            )
        if through and not any(site.ffn_norm for stack, _ in self.stacks for site in stack.sites):
            raise UnsupportedModelError(
                f"{self.name} has no norm after the sum of its feed-forward layer, which globenc and alti_ln2 need: "
                "use alti, norms or attention_rollout"
            )

    def watch(self, stack: Stack, layer: nn.Module) -> Iterator[RemovableHandle]:
        """Register the hooks of one layer."""

        def mine(hook: Callable[..., None]) -> Callable[..., None]:
            """The hook, for the walking thread and while this layer runs: modules can be shared."""
            return lambda *event: hook(*event) if listens(self) and self.layer is layer else None

        yield layer.register_forward_pre_hook(self._start, with_kwargs=True)
        for site in stack.sites:
            modules = {
                field: self._module(layer, site, field, path)
                for field, path in site.paths().items()
            }
            complete = mine(partial(self._complete, stack, site))
            for field in modules.keys() - {"then"}:
                yield modules[field].register_forward_hook(mine(partial(self._keep, field)))
            if site.norm:
                yield modules["norm"].register_forward_hook(complete)
            elif site.then:
                yield modules["then"].register_forward_pre_hook(complete)
            elif site.parallel:
                yield layer.register_forward_hook(complete)
            else:
                raise self._wrong(
                    site, "has none of norm, then and parallel to say where the residual sum ends"
                )
            if site.ffn_norm and self.through:
                yield layer.register_forward_hook(mine(partial(self._carry, site)))

    def _module(self, layer: nn.Module, site: Site, field: str, path: str) -> nn.Module:
        try:
            return layer.get_submodule(path)
        except AttributeError:
            raise self._wrong(
                site, f"names {field} = {path!r}, which {type(layer).__name__} does not have"
            ) from None

    def _start(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if listens(self):
            self.layer, self.x = layer, args[0] if args else kwargs["hidden_states"]

    def _keep(self, field: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.calls[field] = Call(module, args[0], output)

    def receive(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return query, key, value

    def hear(self, probs: Tensor, value: Tensor) -> None:
        """Attention passed through the interface: probabilities [B, H, T, S] and values [B, H, S, d]."""
        if self.attention:
            raise DecompositionError(
                f"{self.name} block {self.count}: attention was computed again before the block was complete; in "
                f"alti.FAMILIES[{self.name!r}] a site is missing, or its norm, then or parallel comes too late"
            )
        self.attention = probs, value

    def _complete(
        self, stack: Stack, site: Site, module: nn.Module, args: Any, output: Any = None
    ) -> None:
        """The residual sum of a site was formed: build its block, compare it, report it."""
        attention = self._claim(site)
        x = self.calls["residual"].output if site.residual else self.x
        total = x + self.calls["out"].output if site.parallel else args[0]
        if total.numel() != x.numel():
            raise self._wrong(
                site, f"ends in a tensor of {[*total.shape]}, while the residual is {[*x.shape]}"
            )
        total = total.reshape_as(x)  # OPT flattens the batch
        mask = self._mask(stack, x)
        dtype = self._dtype(site, x)
        branch = self._branch(site, *attention, x, dtype)
        block = replace(branch, residual=x.to(dtype=dtype), output=total.to(dtype=dtype), mask=mask)
        if site.norm:
            block = self._carried(block, self.calls["norm"])
            error = errors(block, self._compared(block)[1])
        else:
            error = errors(block, self._compared(block)[1], (branch.output, total.dtype))
        if site.parallel:
            layer = output[0] if isinstance(output, tuple) else output
            error = torch.maximum(
                error, self._apart(total + self.calls["parallel"].output, layer, block)
            )
        norms = [
            call.module for field in ("norm", "branch_norm") if (call := self.calls.get(field))
        ]
        self._judge(site, error, total.dtype, norms)
        self.x = output if site.norm else total  # the next site of this layer starts from here
        self.calls.clear()
        if self.through and site.ffn_norm:
            self.pending = block
        else:
            self._report(block, error)

    def _claim(self, site: Site) -> tuple[Tensor, Tensor]:
        """Probabilities and values of the site that was just completed."""
        for field in ("out", "branch_norm", "residual", "parallel", "probs", "value"):
            if getattr(site, field) and field not in self.calls:
                raise self._wrong(
                    site, f"ends before its {field} {getattr(site, field)!r} was computed"
                )
        if site.probs:
            probs = self.calls["probs"].output
            (part, parts), value = site.value_part, self.calls["value"].output
            heads = value.reshape(*value.shape[:2], probs.shape[1], parts, -1)[
                ..., part, :
            ]  # [B, S, H, d]
            return probs, heads.transpose(1, 2)
        if not self.attention:
            raise self._wrong(
                site, "ends before any attention was overheard, so it must name probs and value"
            )
        attention, self.attention = self.attention, None
        return attention

    def _dtype(self, site: Site, x: Tensor) -> torch.dtype | None:
        """What a block's parts are computed in; None: whatever they are, for a norm that reads them so."""
        wide = torch.promote_types(x.dtype, torch.float32)
        plain = site.norm and type(self.calls["norm"].module) is nn.LayerNorm
        raw = plain and not (site.branch_norm or site.branch_scale) and fused_for(x.device, wide)
        return None if raw else wide

    def _branch(
        self, site: Site, probs: Tensor, value: Tensor, x: Tensor, dtype: torch.dtype | None
    ) -> Block:
        """The attention branch alone, as a block without a residual."""
        out, wide = self.calls["out"], torch.promote_types(x.dtype, torch.float32)
        with unheard():
            weight, bias = projection(out.module, out.input, dtype)
        _, heads, sources, width = value.shape
        if weight.shape[0] != heads * width:
            raise self._wrong(
                site, f"has an out of {weight.shape[0]} inputs for {heads} heads of {width}"
            )
        if sources != x.shape[1] and not site.cross:
            raise UnsupportedModelError(
                f"{self.name} attends from {x.shape[1]} to {sources} tokens: pass the whole text, no past_key_values"
            )
        block = Block(
            probs.to(wide),
            value.to(wide),
            weight.reshape(heads, width, -1),
            self._constant(1, wide, x.device).expand(x.shape[:2]),
            self._constant(0, wide, x.device).expand(x.shape),
            bias.expand(x.shape),
            out.output.to(dtype=dtype).reshape(x.shape),
            site.cross,
        )
        if site.branch_norm:
            block = self._carried(block, self.calls["branch_norm"])
        if site.branch_scale:
            factor = getattr(self.config, site.branch_scale)
            scaled = {name: getattr(block, name) * factor for name in ("weight", "bias", "output")}
            block = replace(block, **scaled)  # not its scale, which is above 0
        return block

    def _carry(self, site: Site, layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """The layer ended: carry the block that waits through the second norm, whose output is the layer's."""
        call = self.calls.pop("ffn_norm", None)
        if self.pending is None or call is None:
            raise self._wrong(
                site, "has an ffn_norm that is not computed after the block is complete"
            )
        end = output[0] if isinstance(output, tuple) else output
        if call.output.numel() != end.numel():
            raise UnsupportedModelError(
                f"this {self.name} model computes its feed-forward layer in chunks: load it with "
                "chunk_size_feed_forward=0"
            )
        block, self.pending = self._carried(self.pending, call), None
        error = errors(block, self._compared(block)[1])
        if call.output.data_ptr() != end.data_ptr():
            error = torch.maximum(error, self._apart(block.output, end, block))
        self._judge(site, error, end.dtype, [call.module])
        self._report(block, error)

    def _carried(self, block: Block, call: Call) -> Block:
        with unheard():  # the norm may be called
            return carried(block, call)

    def _apart(self, found: Tensor, real: Tensor, block: Block) -> Tensor:
        """How far two tensors [B, T, D] are apart where a block is compared: [B, n]."""
        at = self._compared(block)
        return relative(found[at], real[at], None if block.mask is None else block.mask[at])

    def _constant(self, number: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        key = number, dtype, device
        if key not in self.constants:
            self.constants[key] = torch.full((), number, dtype=dtype, device=device)
        return self.constants[key]

    def _compared(self, block: Block) -> tuple[Tensor, Tensor]:
        """Where a block is compared: texts [B, 1] and positions [B, n]."""
        shape, device = block.output.shape[:2], block.output.device
        key = id(block.mask), shape, device
        if key not in self.samples:
            texts = torch.arange(len(block.output), device=device)[:, None]
            self.samples[key] = texts, spread(block.mask, shape, device, self.compared)
        return self.samples[key]

    def _mask(self, stack: Stack, x: Tensor) -> Tensor | None:
        decoder = self.config.is_encoder_decoder and any(site.cross for site in stack.sites)
        name = "decoder_attention_mask" if decoder else "attention_mask"
        if name not in self.masks:
            given = self.inputs.get(name)
            self.masks[name] = (
                None if given is None or (not capturing() and given.all()) else given.bool()
            )
        mask = self.masks[name]
        return mask if mask is not None and mask.shape == x.shape[:2] else None

    def _judge(self, site: Site, error: Tensor, dtype: torch.dtype, norms: list[nn.Module]) -> None:
        limit = limit_of(dtype, plain=all(type(module) is nn.LayerNorm for module in norms))
        half = (
            " (or load the model in float32, half precision rounds)" if dtype.itemsize < 4 else ""
        )
        self.verdicts.append((error, limit, partial(_wrong, self.name, self.count, site), half))
        if (
            error.device.type == "cpu" or self.compared is None
        ):  # an accelerator would have to wait for each
            self._conclude()

    def _conclude(self) -> None:
        """Read the errors that were not read yet."""
        if not self.verdicts:
            return
        verdicts, self.verdicts = self.verdicts, []
        counts = [error.numel() for error, *_ in verdicts]
        found = torch.cat([error.flatten() for error, *_ in verdicts])

        def judge() -> None:
            worst = [float(some.max()) for some in torch.split(found.cpu(), counts)]
            for error, (_, limit, wrong, half) in zip(worst, verdicts, strict=True):
                if not error <= limit:  # nan is wrong too
                    raise wrong(
                        f"rebuilds the block with a relative error of {error:.1e}, above {limit:.0e}{half}"
                    )

        afterwards(judge)

    def _wrong(self, site: Site, what: str) -> DecompositionError:
        return _wrong(self.name, self.count, site, what)

    def _report(self, block: Block, error: Tensor) -> None:
        self.count += 1
        with unheard():  # the visitor may call the model
            self.report(block, error)

    def finish(self) -> None:
        """The forward pass is over: nothing may be left, and something must have been there."""
        self._conclude()
        if self.attention or self.pending or not self.count:
            stack, _ = self.stacks[-1]
            raise self._wrong(
                stack.sites[-1], "does not cover all attention that the model computed"
            )


def _wrong(family: str, block: int, site: Site, what: str) -> DecompositionError:
    parts = ", ".join(f"{field}={path!r}" for field, path in site.paths().items())
    scale = f", branch_scale={site.branch_scale!r}" if site.branch_scale else ""
    return DecompositionError(
        f"{family} block {block}: its entry in alti.FAMILIES {what}; look at Site({parts}{scale})"
    )
