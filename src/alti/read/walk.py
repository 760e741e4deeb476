"""Reads a model: runs it once and writes each attention block as a sum of one vector per token."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import DecompositionError, UnsupportedModelError, UsageError
from alti._progress import expect
from alti.family import Site, Stack
from alti.read.affine import Call, carried, fused_for
from alti.read.assembly import Recorded, assemble, require_calls, require_whole, total_of
from alti.read.attention_hook import paused
from alti.read.block import Block
from alti.read.cuda_capture import capturing
from alti.read.events import Reader, first_of
from alti.read.exactness import follow, require_same, untouched
from alti.read.modules import call, network, with_decoder_ids
from alti.read.verdicts import Place, Sample, Verdicts

Through = Literal["ffn"] | None
Visit = Callable[[Block], None]
Report = Callable[[Block, Tensor], None]

# Positions at which `walk` compares, at least one of each text; a wrong entry is wrong at each.
COMPARED = 16


def walk(
    model: nn.Module,
    inputs: Mapping[str, Any],
    visit: Visit,
    *,
    through: Through = None,
    by_rows: bool = False,
    half: bool = False,
) -> Any:
    """Run the model once, pass each attention block to `visit`, return the model's output.

    A block is passed on as soon as it is complete. It is rebuilt from its parts and compared with
    what the model computed, at 16 positions; a difference raises DecompositionError: before
    `visit` sees the block, or on an accelerator before `walk` returns. No block is kept: peak
    memory is one block.
    `through="ffn"` carries each block through the second norm of its layer (for Globenc and
    ALTI + LN2). With `by_rows` a block holds no attention, but computes that of some rows again
    when it is asked for them (`Block.span`, `Block.rows`): for texts whose T² is too much, see also
    `alti.read.backwards`. With `half` a block on a GPU may hold parts in half precision, as the
    model has them. The model is left as it was, also after an exception.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> maps = []
    >>> alti.walk(model, inputs, lambda block: maps.append(alti.contributions(block)))
    """
    return _walk(model, inputs, lambda block, _: visit(block), through, COMPARED, by_rows, half)


def trace(model: nn.Module, inputs: Mapping[str, Any], *, through: Through = None) -> list[Block]:
    """All attention blocks of one forward pass, in the order in which the model computed them.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> alti.contributions(alti.trace(model, inputs)[0]).shape  # of the first layer
    """
    blocks: list[Block] = []
    walk(model, inputs, blocks.append, through=through)
    return blocks


def check(model: nn.Module, inputs: Mapping[str, Any], *, through: Through = None) -> list[float]:
    """The worst relative error of each block: |sum of parts − what the model computed|.

    Padding is left out. Above the limit of the model's dtype it raises DecompositionError, which
    names the block and the paths to look at. The same where reading changes the model's output,
    where something else than attention mixes tokens, and where the next layer does not read what
    a layer computes (`alti.read.exactness`). An encoder–decoder without decoder ids gets some.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> max(alti.check(model, inputs)) < 1e-4
    True
    """
    inputs = with_decoder_ids(network(model), inputs)
    worst: list[float] = []
    output = _walk(model, inputs, lambda _, error: worst.append(float(error.max())), through, None)
    require_same(output, untouched(model, inputs), model, inputs)
    follow(model, inputs)
    return worst


def _walk(
    model: nn.Module,
    inputs: Mapping[str, Any],
    report: Report,
    through: Through,
    compared: int | None,
    by_rows: bool = False,
    half: bool = False,
) -> Any:
    if through not in (None, "ffn"):
        raise UsageError(
            f"through = {through!r} is not known: give 'ffn' for the second norm, or None"
        )
    inner = network(model)
    reader = BlockReader(inner, inputs, report, through, compared, by_rows, half)
    expect(reader.sites_in_all)
    with torch.no_grad(), reader.listening():
        output = call(inner, inputs)
    reader.finish()
    return output


class BlockReader(Reader):
    """Reports each block of one forward pass with its error."""

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Mapping[str, Any],
        report: Report,
        through: Through,
        compared: int | None,
        by_rows: bool,
        half: bool,
    ) -> None:
        super().__init__(model, by_rows=by_rows)
        self.inputs = inputs
        self.report = report
        self.through = through
        self.half = half and through is None  # a second norm computes in float32
        self.sample = Sample(compared)
        self.verdicts = Verdicts(at_once=compared is None)
        self.x = torch.empty(0)  # the residual of the site that is running
        self.masks: dict[str, Tensor | None] = {}  # by name of the input; None: no padding
        self.numbers: dict[Any, tuple[Tensor, Tensor]] = {}  # 0 and 1, by dtype and device
        self.pending: Block | None = None  # waits for the second norm
        self._require_stacks()

    def _require_stacks(self) -> None:
        if not self.stacks:
            raise DecompositionError(
                f"{self.name}: {type(self.model).__name__} has no layers at the Stack.blocks of "
                f"alti.FAMILIES[{self.name!r}]"
            )
        sites = [site for stack, _ in self.stacks for site in stack.sites]
        if self.through and not any(site.ffn_norm for site in sites):
            raise UnsupportedModelError(
                f"{self.name} has no norm after the sum of its feed-forward layer, which globenc "
                "and alti_ln2 need: use alti, norms or attention_rollout"
            )

    def hooks(self) -> Iterator[RemovableHandle]:
        for stack, layers in self.stacks:
            for layer in layers:
                yield self.at_start(layer, self._start)
                for site in stack.sites:
                    yield from self._site_hooks(stack, site, layer)

    def _site_hooks(self, stack: Stack, site: Site, layer: nn.Module) -> Iterator[RemovableHandle]:
        self._require_modules(site, layer)
        for field in site.paths().keys() - {"then", "added"}:
            yield self.record(layer, site, field)
        complete = partial(self._complete, stack, site)
        if site.norm:
            yield self.after(layer, site.norm, lambda call: complete(call.input, call.output))
        elif site.then:
            yield self.before(layer, site.then, complete)
        elif site.parallel:
            yield self.at_end(layer, partial(complete, None))
        else:
            raise self._place(site).wrong(
                "has none of norm, then and parallel to say where the residual sum ends"
            )
        if site.ffn_norm and self.through:
            yield self.at_end(layer, partial(self._carry, site))

    def _require_modules(self, site: Site, layer: nn.Module) -> None:
        for field, path in site.paths().items():
            try:
                layer.get_submodule(path)
            except AttributeError:
                raise self._place(site).wrong(
                    f"names {field} = {path!r}, which {type(layer).__name__} does not have"
                ) from None

    def _start(self, x: Tensor) -> None:
        self.x = x

    def _complete(self, stack: Stack, site: Site, read: Any, output: Any = None) -> None:
        """The residual sum of a site was formed: build its block, compare it, report it."""
        recorded = self._recorded(site, read, output)
        with paused():  # projections and norms may be called
            block, branch = assemble(recorded, self._mask(stack, recorded.x))
        total = recorded.total
        error = self.sample.errors(block, None if branch is None else (branch, total.dtype))
        if site.parallel:
            error = torch.maximum(error, self.sample.difference(block, *recorded.end))
        rounds = self._rounds(block, total.dtype)
        self.verdicts.add(recorded.place, error, total.dtype, recorded.norms, rounds=rounds)
        self.x = output if site.norm else total  # the next site of this layer starts from here
        self.calls.clear()
        if self.through and site.ffn_norm:
            self.pending = block
        else:
            self._report(block, error)

    def _recorded(self, site: Site, read: Any, output: Any) -> Recorded:
        place = self._place(site)
        require_calls(place, self.calls)
        attention = self.claim_attention(site)
        if attention is None:
            raise place.wrong(
                "ends before any attention was captured, so it must name probs and value, or own"
            )
        x = self.calls["residual"].output if site.residual else self.x
        total = total_of(place, self.calls, x, read)
        factor = getattr(self.model.config, site.branch_scale) if site.branch_scale else 1.0
        gain = None
        if site.branch_gain and self.layer is not None:
            gain = self.layer.get_parameter(site.branch_gain)
        wide = torch.promote_types(x.dtype, torch.float32)
        half = self.half and fused_for(x.device, wide) is not None
        return Recorded(
            place, self.calls, attention, x, total, output, factor, gain, half=half,
            numbers=self._numbers(wide, x.device),
        )  # fmt: skip

    def _carry(self, site: Site, output: Any) -> None:
        """The layer ended: carry the waiting block through the second norm, the layer's last."""
        norm = self.calls.pop("ffn_norm", None)
        if self.pending is None or norm is None:
            raise self._place(site).wrong(
                "has an ffn_norm that is not computed after the block is complete"
            )
        end = first_of(output)
        require_whole(self._place(site), norm, end)
        block = self._carried(norm)
        error = self.sample.errors(block)
        if norm.output.data_ptr() != end.data_ptr():
            error = torch.maximum(error, self.sample.difference(block, block.output, end))
        rounds = self._rounds(block, end.dtype)
        self.verdicts.add(self._place(site), error, end.dtype, [norm.module], rounds=rounds)
        self._report(block, error)

    def _carried(self, norm: Call) -> Block:
        assert self.pending is not None
        with paused():  # the norm may be called
            block = carried(self.pending, norm)
        self.pending = None
        return block

    def _rounds(self, block: Block, dtype: torch.dtype) -> bool:
        """Whether attention that is computed again comes out a little different."""
        double = self.by_rows and dtype == torch.float64
        return double and self.sample.has_float32_softmax(block)

    def _numbers(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """0 and 1, made once in a pass: each would be a launch of its own."""
        key = dtype, device
        if key not in self.numbers:
            zero = torch.full((), 0, dtype=dtype, device=device)
            self.numbers[key] = zero, torch.full((), 1, dtype=dtype, device=device)
        return self.numbers[key]

    def _mask(self, stack: Stack, x: Tensor) -> Tensor | None:
        """Which positions of x [B, T, D] are real; None where every one is."""
        cross = any(site.cross for site in stack.sites)
        decoder = self.model.config.is_encoder_decoder and cross
        name = "decoder_attention_mask" if decoder else "attention_mask"
        if name not in self.masks:
            self.masks[name] = _padding(self.inputs.get(name))
        mask = self.masks[name]
        return mask.to(x.device) if mask is not None and mask.shape == x.shape[:2] else None

    def _place(self, site: Site) -> Place:
        return Place(self.name, self.count, site)

    def _report(self, block: Block, error: Tensor) -> None:
        self.count += 1
        with paused():  # the visitor may call the model
            self.report(block, error)

    def finish(self) -> None:
        """The forward pass is over: every attention must have become a block, and one at least."""
        self.verdicts.conclude()
        if self.captured or self.pending or not self.count:
            stack, _ = self.stacks[-1]
            raise self._place(stack.sites[-1]).wrong(
                "does not cover all attention that the model computed"
            )


def _padding(mask: Tensor | None) -> Tensor | None:
    """A mask as booleans; None where it masks nothing, as far as that may be looked at."""
    if mask is None or (not capturing() and mask.all()):
        return None
    return mask.bool()
