"""The web page, `alti serve`: a light server in front of one process that holds the models."""

from typing import TYPE_CHECKING

from alti._errors import LoadError

if TYPE_CHECKING:
    from alti.web.settings import Settings


def serve(settings: "Settings", *, browser: bool = False) -> None:
    """Serve the page and its API until interrupted."""
    try:
        from alti.web import serving
    except ImportError:
        raise LoadError("alti serve needs starlette and uvicorn: pip install 'alti[web]'") from None
    serving.serve(settings, browser=browser)
