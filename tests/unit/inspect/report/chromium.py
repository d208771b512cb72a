"""A headless Chromium that is asked through pipes (the DevTools protocol): no driver, no network."""

import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ("chromium-headless-shell", "chromium")


def program():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, to_us = os.pipe(), os.pipe()
        command = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--hide-scrollbars", "--no-first-run", f"--user-data-dir={self.profile.name}",
                   "--remote-debugging-pipe"]
        self.process = subprocess.Popen(  # it reads from 3 and writes to 4
            ["bash", "-c", f'exec "$@" 3<&{from_us[0]} 4>&{to_us[1]}', "bash", *command],
            pass_fds=(from_us[0], to_us[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(from_us[0])
        os.close(to_us[1])
        self.requests, self.answers = os.fdopen(from_us[1], "wb"), os.fdopen(to_us[0], "rb")
        self.number, self.rest, self.problems = 0, b"", []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self):
        self.requests.close()
        self.process.terminate()
        self.process.wait(60)
        self.answers.close()
        self.profile.cleanup()

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.answers.fileno(), 1 << 20)
            if not piece:
                raise RuntimeError("chromium ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        kind, content = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.problems.append(content["exceptionDetails"]["text"])
        if kind in ("Log.entryAdded", "Runtime.consoleAPICalled"):
            self.problems.append(json.dumps(content))
        if kind == "Network.requestWillBeSent" and not content["request"]["url"].startswith(("file:", "data:")):
            self.problems.append(content["request"]["url"])
        return message

    def ask(self, method, **arguments):
        self.number += 1
        request = {"id": self.number, "method": method, "params": arguments}
        if getattr(self, "session", None):
            request["sessionId"] = self.session
        self.requests.write(json.dumps(request).encode() + b"\0")
        self.requests.flush()
        while (message := self.read()).get("id") != self.number:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def open(self, path, width, scheme="light", height=900):
        self.problems = []
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=f"file://{path}")
        while self.read().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def point(self, x, y):
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path, whole=True):
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))
