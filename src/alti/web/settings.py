"""What a server is told when it starts."""

from dataclasses import dataclass, field
from ipaddress import ip_address

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # the names of this machine for itself


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take."""

    tokens: int = 512
    characters: int = 20_000  # of both texts together
    bytes: int = 256 * 1024  # of a request's body
    waiting: int = 16  # requests in the queue; one more is refused
    seconds: float = 30.0  # in the queue, and again at work


@dataclass(frozen=True, slots=True)
class Settings:
    """Which models, for whom, and how much of them."""

    models: tuple[str | None, ...] = (None,)  # None: the embedded one
    host: str = "127.0.0.1"
    port: int = 8765  # 0: any that is free
    device: str = "auto"
    dtype: str | None = None
    limits: Limits = field(default_factory=Limits)
    trust_remote_code: bool = False  # whether code that comes with a model may run

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Refused(Exception):
    """An answer other than 200: the HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
