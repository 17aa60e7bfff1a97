#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven through a pair of pipes: no package is needed for it."""
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """The browser's path, or None."""
    wanted = os.environ.get("BERTH_CHROMIUM")
    return next(filter(None, map(shutil.which, [wanted] if wanted else NAMES)), None)


class Browser:
    """One browser with one page. Messages are JSON, each ended by a NUL."""

    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="berth-browser.")
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def place_pipes():
            # The browser reads descriptor 3 and writes descriptor 4.
            reader, writer = os.dup(to_read), os.dup(from_write)
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--force-device-scale-factor=1", "--font-render-hinting=none",
             "--remote-debugging-pipe", "--user-data-dir=" + self.folder, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=place_pipes, start_new_session=True)
        os.close(to_read)
        os.close(from_write)
        self.pending = b""
        self.events = []
        self.number = 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def read(self):
        while b"\0" not in self.pending:
            piece = os.read(self.from_read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.pending += piece
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, height, phone=False, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        # From one place of a page to another would be no loading.
        self.navigate("about:blank")
        self.navigate("file://" + path)

    def navigate(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + 20
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            if time.monotonic() > end:
                raise RuntimeError("the page does not load")
            self.call("Runtime.evaluate", expression="1")

    def value(self, expression):
        """What the expression comes to in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                      clickCount=1)

    def tap(self, x, y):
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def complaints(self):
        """Errors of scripts and requests that left the page."""
        found = []
        for event in self.events:
            method, details = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(details["exceptionDetails"]["text"])
            elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
                found.append(details["entry"]["text"])
            elif method == "Network.requestWillBeSent" \
                    and not details["request"]["url"].startswith("file://"):
                found.append("request of " + details["request"]["url"][:80])
        return found

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.to_write)
        os.close(self.from_read)
        shutil.rmtree(self.folder, ignore_errors=True)
