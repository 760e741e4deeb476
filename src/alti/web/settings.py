"""The configuration of a server."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

SHORT = 2000  # characters that are explained within the plain time limit
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that one request may use."""

    tokens: int = 512
    characters: int = 20_000  # of both texts together
    prompt: int = 4096  # tokens of a prompt with its answer, of which no maps are drawn
    prompt_characters: int = 40_000  # of a prompt with its answer
    written: int = 200  # tokens that a model writes
    bytes: int = 256 * 1024  # of a request's body
    file_bytes: int = 12 * 1024 * 1024  # of one with an image or a table
    waiting: int = 16  # requests in the queue; further ones are rejected
    seconds: float = 30.0  # without a sign of progress, for a text of SHORT characters

    def seconds_for(self, question: dict[str, Any]) -> float:
        """How long a request may show no progress: longer for longer texts."""
        documents = question.get("documents") or []
        messages = (message["content"] for message in question.get("chat") or [])
        texts = (question.get(name) or "" for name in ("text", "text_pair", "other"))
        return self.seconds * max(1.0, sum(map(len, (*texts, *documents, *messages))) / SHORT)


@dataclass(frozen=True, slots=True)
class Settings:
    """Which models to serve, where, and within which limits."""

    models: tuple[str | None, ...] = (None,)  # None: the embedded model
    host: str = "127.0.0.1"
    port: int = 8765  # 0: any free port
    device: str = "auto"
    dtype: str | None = None
    limits: Limits = field(default_factory=Limits)
    trust_remote_code: bool = False  # whether to run code that comes with a model
    graphs: bool = False  # whether explanations are recorded as CUDA graphs

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Refused(Exception):
    """A response other than 200: the HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
