"""The same job with several tools: explain every token of an answer of a language model.

OMP_WAIT_POLICY=passive python benchmarks/rivals_answers.py MODEL_FOLDER [TOOL ...]
    a markdown table of the tools named (default: all but the slow ones)

A tool that is not installed is skipped with one sentence; Inseq needs
pip install --no-deps inseq jaxtyping "typeguard<=2.13.3" treescope

The job: a prompt of about 60 tokens, and the 20 tokens that the model itself writes after it; for
each of the 20, a score for every prompt token (and for the answer before it where a tool gives
them). CPU, float32, 2 threads.

Time: what a tool takes divided by what one forward pass of prompt + answer takes in the same
process, five before it and five after it; loading is not counted; the median of the rounds.
Processor time: the same ratio of processor time, which other programs on the machine disturb
less (OMP_WAIT_POLICY=passive, or threads that only wait are counted).
Passes: texts that went through the decoder, forwards and backwards (a batch of 5 counts 5), and
the tokens of the forward ones in units of one pass of prompt + answer.
`alti` puts a first token before the prompt by itself, and scores it too.
captum-ablation is Captum's default. With transformers 5.22.2 it is slow, and its scores are wrong
from the second answer token on: the model gets the key-value cache together with all the tokens,
not with the new one alone. captum-ablation-joined (forward_in_tokens=False) is right.
Lines: the lines in the bodies of a tool's two functions below, its imports and loading included.
"""

import inspect
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaModel

PROMPT = """\
Kilimanjaro in Tanzania is the highest mountain in Africa. It is a dormant volcano with three \
cones. Most climbers take the Machame route, which needs six or seven days.

Question: Where is Kilimanjaro, and how long is the climb?
Answer:"""
ANSWER_TOKENS = 20


# What a user writes: loading, then the explanation, as (answer tokens, tokens explained).


def alti_load(folder: str) -> tuple[Any, ...]:
    import alti

    return (alti.load(folder),)


def alti(model: Any, prompt: str, answer: str) -> Any:
    return model.explain(prompt, answer=answer, method="absence").scores


def alti_maps(model: Any, prompt: str, answer: str) -> Any:
    return model.explain(prompt, answer=answer).scores


def alti_gradient(model: Any, prompt: str, answer: str) -> Any:
    return model.explain(prompt, answer=answer, method="input_x_gradient").scores


def captum_load(folder: str) -> tuple[Any, ...]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return model, tokenizer


def captum_ablation(model: Any, tokenizer: Any, prompt: str, answer: str) -> Any:
    from captum.attr import FeatureAblation, LLMAttribution, TextTokenInput

    tool = LLMAttribution(FeatureAblation(model), tokenizer)
    return tool.attribute(TextTokenInput(prompt, tokenizer), target=answer).token_attr


def captum_ablation_joined(model: Any, tokenizer: Any, prompt: str, answer: str) -> Any:
    from captum.attr import FeatureAblation, LLMAttribution, TextTokenInput

    tool = LLMAttribution(FeatureAblation(model), tokenizer)
    given = TextTokenInput(prompt, tokenizer)
    return tool.attribute(given, target=answer, forward_in_tokens=False).token_attr


def captum_gradient(model: Any, tokenizer: Any, prompt: str, answer: str) -> Any:
    from captum.attr import LayerGradientXActivation, LLMGradientAttribution, TextTokenInput

    method = LayerGradientXActivation(model, model.get_input_embeddings())
    tool = LLMGradientAttribution(method, tokenizer)
    return tool.attribute(TextTokenInput(prompt, tokenizer), target=answer).token_attr


def captum_integrated(model: Any, tokenizer: Any, prompt: str, answer: str) -> Any:
    from captum.attr import LayerIntegratedGradients, LLMGradientAttribution, TextTokenInput

    method = LayerIntegratedGradients(model, model.get_input_embeddings())
    tool = LLMGradientAttribution(method, tokenizer)
    given = TextTokenInput(prompt, tokenizer)
    return tool.attribute(given, target=answer, internal_batch_size=5).token_attr


def inseq_load(folder: str) -> tuple[Any, ...]:
    import inseq

    return (inseq.load_model(folder, "saliency", device="cpu"),)


def inseq_saliency(model: Any, prompt: str, answer: str) -> Any:
    result = model.attribute(prompt, generated_texts=prompt + answer)
    return result.aggregate()[0].target_attributions.T


def inseq_gradient(model: Any, prompt: str, answer: str) -> Any:
    result = model.attribute(prompt, generated_texts=prompt + answer, method="input_x_gradient")
    return result.aggregate()[0].target_attributions.T


@dataclass
class Tool:
    """`load` gives what `explain` takes before the prompt and the answer."""

    package: str
    method: str
    load: Callable[[str], tuple[Any, ...]]
    explain: Callable[..., Any]
    rounds: int = 3
    slow: bool = False

    @property
    def lines(self) -> int:
        return body_lines(self.load) + body_lines(self.explain)


TOOLS = {
    "alti-maps": Tool("alti", "alti", alti_load, alti_maps),
    "alti": Tool("alti", "absence", alti_load, alti),
    "alti-gradient": Tool("alti", "input × gradient", alti_load, alti_gradient),
    "inseq-saliency": Tool("inseq", "saliency", inseq_load, inseq_saliency),
    "inseq-gradient": Tool("inseq", "input × gradient", inseq_load, inseq_gradient),
    "captum-gradient": Tool("captum", "gradient × activation", captum_load, captum_gradient),
    "captum-ablation-joined": Tool(
        "captum", "ablation, answer in one pass", captum_load, captum_ablation_joined
    ),
    "captum-ablation": Tool(
        "captum", "ablation (default)", captum_load, captum_ablation, 1, slow=True
    ),
    "captum-integrated": Tool(
        "captum", "integrated gradients, 50 steps", captum_load, captum_integrated, 1, slow=True
    ),
}


def body_lines(function: Callable[..., Any]) -> int:
    """Lines under the `def` line that are not blank."""
    return sum(bool(line.strip()) for line in inspect.getsource(function).splitlines()[1:])


class Passes:
    """Counts what goes through any Llama decoder, whichever tool called it.

    It listens from the first call to the last: a hook that comes or goes makes alti prove the
    model again, which it does once otherwise, before the first explanation.
    """

    def __init__(self) -> None:
        self.forward = self.tokens = self.backward = 0
        torch.nn.modules.module.register_module_forward_hook(self._count)

    def restart(self) -> None:
        self.forward = self.tokens = self.backward = 0

    def _count(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if isinstance(module, LlamaModel):
            hidden = output[0]
            self.forward += hidden.shape[0]
            self.tokens += hidden.shape[0] * hidden.shape[1]
            if hidden.requires_grad:
                hidden.register_hook(self._count_backward)

    def _count_backward(self, gradient: Tensor) -> None:
        self.backward += gradient.shape[0]


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Of the clock, and of the processor."""
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def written_by(model: Any, tokenizer: Any) -> str:
    """The answer, as text; its tokens after the prompt must be the ones that were written."""
    prompt = tokenizer(PROMPT, return_tensors="pt")
    length = ANSWER_TOKENS
    ids = model.generate(**prompt, do_sample=False, max_new_tokens=length, min_new_tokens=length)
    answer: str = tokenizer.decode(ids[0, prompt.input_ids.shape[1] :])
    if tokenizer(PROMPT + answer).input_ids != ids[0].tolist():
        sys.exit("the answer's text is split into other tokens: take another prompt")
    return answer


def measure(
    tool: Tool, folder: str, answer: str, forward: Callable[[], object], passes: Passes
) -> str:
    """A line of the table."""
    loaded = tool.load(folder)
    # imports, compiles and, once for a model, proves that it is read right
    tool.explain(
        *loaded, "Hello there, how are you today, my friend of old, who has come", " so far"
    )
    results: list[Tensor] = []
    ratios = []
    for _ in range(tool.rounds):
        passed = [seconds(forward) for _ in range(5)]
        passes.restart()
        taken = seconds(lambda: results.append(tool.explain(*loaded, PROMPT, answer)))
        counts = passes.forward, passes.tokens, passes.backward
        passed += [seconds(forward) for _ in range(5)]
        medians = [statistics.median(times) for times in zip(*passed, strict=True)]
        ratios.append((taken[0] / medians[0], taken[1] / medians[1]))
        print(f"{tool.package}, {tool.method}: {ratios[-1][0]:.1f}, {ratios[-1][1]:.1f}")
    passes.restart()
    forward()
    tokens = passes.tokens
    over = "prompt" if narrow(results[-1], tokens - ANSWER_TOKENS) else "prompt and answer so far"
    cells = (
        f"{tool.package} {version(tool.package)}",
        tool.method,
        *(f"{statistics.median(column):.1f}" for column in zip(*ratios, strict=True)),
        f"{counts[0]} ({counts[1] / tokens:.1f})",
        str(counts[2]),
        str(tool.lines),
        over,
    )
    return f"| {' | '.join(cells)} |"


def narrow(result: Tensor, prompt_tokens: int) -> bool:
    """Whether a matrix of scores has no columns for the answer."""
    if result.shape[0] != ANSWER_TOKENS or result.shape[1] < prompt_tokens:
        sys.exit(f"scores of shape {tuple(result.shape)}: this is not the job")
    return result.shape[1] == prompt_tokens


def main(folder: str, *names: str) -> None:
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    answer = written_by(model, tokenizer)
    inputs = tokenizer(PROMPT + answer, return_tensors="pt")

    @torch.no_grad()
    def forward() -> None:
        model(**inputs)

    lines = []
    passes = Passes()
    for name in names or [name for name, tool in TOOLS.items() if not tool.slow]:
        try:
            with redirect_stdout(sys.stderr):  # progress bars
                lines.append(measure(TOOLS[name], folder, answer, forward, passes))
        except Exception as error:  # whatever a tool cannot do is said, not hidden
            reason = str(error).partition("\n")[0]
            print(f"{name} is skipped: {type(error).__name__}: {reason}.")
    tokens = inputs.input_ids.shape[1] - ANSWER_TOKENS
    print(f"Prompt of {tokens} tokens, answer {answer!r}; times in forward passes of both;")
    print(f"torch {torch.__version__}, transformers {version('transformers')}.")
    print()
    print("| tool | method | time | processor time | forward passes (in full ones) ", end="")
    print("| backward | lines | scores over |")
    print("| --- | --- | --: | --: | --: | --: | --: | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not TOOLS.keys() >= set(sys.argv[2:]):
        sys.exit(f"{__doc__}\nTools: {', '.join(TOOLS)}")
    main(*sys.argv[1:])
