"""A headless Chromium, driven over a pipe: no package and no open port."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Failed(Exception):
    """What a page threw."""


class Browser:
    """One page of one browser."""

    def __init__(self, folder: Path) -> None:
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        high = [
            fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)
        ]  # out of the way of 3 and 4
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        shell = 'exec "$@" 3<&{} 4>&{}'.format(*high)
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=high, stderr=subprocess.DEVNULL
        )
        for end in (read, write, *high):
            os.close(end)
        self._left, self._number, self._session = b"", 0, None
        self.problems: list[str] = []  # what the console said
        target = next(
            t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        asked = {"targetId": target["targetId"], "flatten": True}
        self._session = self.send("Target.attachToTarget", **asked)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)  # as in a window in front

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **params: object) -> dict:
        """Call the DevTools protocol and wait for the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict:
        while b"\0" not in self._left:
            part = os.read(self._in, 1 << 16)
            if not part:
                raise Failed("the browser ended")
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(
                params["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])

    def open(self, address: str) -> None:
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, code: str) -> object:
        """The value of a JavaScript expression; a promise is waited for."""
        found = self.send(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        if "exceptionDetails" in found:
            raise Failed(found["exceptionDetails"].get("exception", {}).get("description", code))
        return found["result"].get("value")

    def wait(self, code: str, seconds: float = 15) -> object:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(code)):
            if time.monotonic() > end:
                raise Failed(f"still not: {code}\n{self.problems}")
            time.sleep(0.03)
        return value

    def work(self) -> float:
        """Milliseconds that the main thread of the page computed, whatever else the machine did."""
        self.send("Performance.enable", timeDomain="threadTicks")
        metrics = self.send("Performance.getMetrics")["metrics"]
        return next(1000 * each["value"] for each in metrics if each["name"] == "TaskDuration")

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        box = "(e => { e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0]; "
        box += "return [r.x + r.width / 2, r.y + r.height / 2] })"
        box += f"(document.querySelector({json.dumps(selector)}))"
        x, y = self.run(box)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.send("Input.insertText", text=text)

    def key(self, name: str) -> None:
        codes = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27}
        about = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        about |= {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, **about)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path, *, full: bool = True) -> None:
        shot = self.send(
            "Page.captureScreenshot", format="png", captureBeyondViewport=full, **self._clip(full)
        )
        file.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, full: bool) -> dict:
        if not full:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {
            "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        }
