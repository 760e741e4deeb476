"""Explanations as CUDA graphs: what a method computes is recorded once for a shape, and replayed.

Up to about eight texts of 512 tokens, starting kernels one by one from Python takes a GPU longer
than running them. A replay starts them all at once.
"""

import warnings
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods import Inputs, Method, Scores, Target, call
from alti.read.cuda_capture import Recording, into
from alti.read.modules import network, reading

GRAIN = 16  # texts are padded to a multiple, so that lengths come again
KEPT = 16  # shapes
WARM = 2  # runs before the one that is captured: they compile kernels and look at what they must


class Recorder:
    """Runs methods on one model. A shape that comes a second time is recorded, then replayed.

    Weights may change in place. When they are replaced, or hooks come or go, everything is
    recorded anew; other changes of what the model does (a switched adapter, a new config) are not
    seen.
    """

    def __init__(self, model: nn.Module) -> None:
        if (device := network(model).device).type != "cuda":
            raise UsageError(
                f"graphs = True (--graphs) records CUDA graphs, but the model is on {device}: "
                "leave it out"
            )
        self.model = model
        self.kept: OrderedDict[Hashable, _Graph] = OrderedDict()  # the one used last comes last
        self.met: set[Hashable] = set()
        self.unable: set[Hashable] = set()
        self.state: Hashable = None
        self.pool: Any = None  # of memory, that all graphs share

    def run(self, method: Method, inputs: Inputs, target: Target, **options: Any) -> Scores:
        """`alti.methods.call` of the recorder's model."""
        if _suits(method, inputs):
            with reading, torch.inference_mode(False), torch.cuda.device(inputs.special.device):
                graph = self._graph(method, inputs, target, options)
                if graph is not None:
                    return graph.replay(inputs, target)
        return call(method, self.model, inputs, target, **options)

    def _graph(
        self, method: Method, inputs: Inputs, target: Target, options: dict[str, Any]
    ) -> "_Graph | None":
        """The graph of a shape that was met before; None where there is none, or not yet."""
        self._forget_what_changed()
        key = _key(method, inputs, target, options)
        graph = self.kept.pop(key, None)
        if graph is None and key in self.met and key not in self.unable:
            graph = self._recorded(key, method, inputs, target, options)
        self.met.add(key)
        if graph is not None:
            self.kept[key] = graph
        if len(self.kept) > KEPT:
            self.kept.popitem(last=False)
        return graph

    def _forget_what_changed(self) -> None:
        state = _state(self.model)
        if state != self.state:
            self.kept.clear()
            self.met.clear()
            self.unable.clear()
            self.state = state

    def _recorded(
        self,
        key: Hashable,
        method: Method,
        inputs: Inputs,
        target: Target,
        options: dict[str, Any],
    ) -> "_Graph | None":
        """Capture a graph; what cannot be captured runs without, and warns once."""
        if not self.kept:  # a pool that no graph holds any more cannot be used again
            self.pool = torch.cuda.graph_pool_handle()
        try:
            return _Graph(self.model, method, inputs, target, options, self.pool)
        except RuntimeError as error:
            self.unable.add(key)
            reason = str(error).partition("\n")[0]
            warnings.warn(
                f"{method.name} could not be recorded as a graph ({reason}): running without",
                stacklevel=5,
            )
            return None


class _Graph:
    """One method for one shape, with the memory that it reads from and writes to."""

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        inputs: Inputs,
        target: Target,
        options: dict[str, Any],
        pool: Any,
    ) -> None:
        tensors = {key: tensor.clone() for key, tensor in inputs.tensors.items()}
        self.inputs = replace(inputs, tensors=tensors, special=inputs.special.clone())
        self.target = target.cloned()
        self.recording = Recording()
        self.graph = torch.cuda.CUDAGraph()
        mask = tensors["attention_mask"]
        here = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types for it
        with into(self.recording):
            side.wait_stream(here)
            with torch.cuda.stream(side):
                mask[:, -1] = 0  # a text with padding takes the way that every text can take
                for _ in range(WARM):
                    call(method, model, self.inputs, self.target, **options)
                mask.copy_(inputs.tensors["attention_mask"])
            here.wait_stream(side)
            self.recording.captured = True
            # other threads may go on
            with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
                self.scores = call(method, model, self.inputs, self.target, **options)

    def replay(self, inputs: Inputs, target: Target) -> Scores:
        own = _tensors(self.inputs, self.target)
        for mine, given in zip(own, _tensors(inputs, target), strict=True):
            mine.copy_(given)
        self.graph.replay()
        for judge in self.recording.judges:
            judge()
        layers = self.scores.layers
        output = self.scores.output
        copied = {key: value.clone() for key, value in output.items() if isinstance(value, Tensor)}
        return Scores(
            self.scores.tokens.clone(),
            None if layers is None else layers.clone(),
            type(output)(**copied),
        )


def _suits(method: Method, inputs: Inputs) -> bool:
    return method.recordable and inputs.special.is_cuda and "attention_mask" in inputs.tensors


def _key(
    method: Method, inputs: Inputs, target: Target, options: dict[str, Any]
) -> tuple[Hashable, ...]:
    """What a graph is recorded for: the method with its options, and all shapes."""
    shapes = tuple((name, tensor.shape) for name, tensor in inputs.tensors.items())
    given = tuple((name, tensor.shape) for name, tensor in target.tensors().items())
    return (method.name, *sorted(options.items()), *shapes, given, target.total)


def _tensors(inputs: Inputs, target: Target) -> list[Tensor]:
    return [*inputs.tensors.values(), inputs.special, *target.tensors().values()]


def _state(model: nn.Module) -> Hashable:
    """What a recording holds on to: where the weights lie, and which hooks there are."""
    modules = list(model.modules())
    places = [
        tensor.data_ptr()
        for module in modules
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None
    ]
    hooks = [
        number
        for module in modules
        for number in (*module._forward_hooks, *module._forward_pre_hooks)
    ]
    return tuple(places), tuple(hooks)
