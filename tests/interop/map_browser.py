#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page that `berth map --html` writes, in a real headless Chromium.

Looked at as a person would: on a desk and on a phone, light and dark, with a mouse, a finger and
a keyboard, and without its script. What is checked is the structure: what is where, what can be
read, what appears. Reference screenshots lie in tests/data/map; UPDATE=1 writes them anew.

Skips where there is no Chromium: tests/deps.sh install ci.
"""
import csv
import io
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
import png  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data", "map")
BERTH = os.environ.get("BERTH", os.path.join(ROOT, "build", "berth"))
LARGEST_SCREENSHOT = 60_000

passed, failures = 0, []


def check(held, what):
    global passed
    if held:
        passed += 1
    else:
        failures.append(what)
        print("FAILED:", what)


def berth_map(plan, *options):
    return subprocess.run([BERTH, "map", plan, *options], capture_output=True, text=True,
                          check=True).stdout


# ---- what is where ------------------------------------------------------------------------------

# Rectangles of what can be seen, as [left, top, right, bottom, text].
RECTANGLES = """(function(selector) {
    return Array.from(document.querySelectorAll(selector)).map(function(e) {
        var r = e.getBoundingClientRect();
        return [r.left, r.top, r.right, r.bottom, e.innerText || e.className, r.width * r.height];
    }).filter(function(r) { return r[5] > 0; });
})(%s)"""

# Elements whose text does not find room in them.
CLIPPED = """Array.from(document.querySelectorAll('h1,h2,h3,p,b,li,td,th,button')).filter(
    function(e) { return e.offsetParent && (e.scrollWidth > e.clientWidth + 1)
        && getComputedStyle(e).display !== 'inline'; }).map(function(e) { return e.innerText; })"""

# The least contrast of all texts with what is behind them.
CONTRAST = """(function() {
    function light(c) {
        return c.map(function(v) { v /= 255;
            return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); })
            .reduce(function(s, v, i) { return s + v * [0.2126, 0.7152, 0.0722][i]; }, 0);
    }
    function numbers(text) { return text.match(/[0-9.]+/g).map(Number); }
    var least = 99;
    document.querySelectorAll('h1,h2,h3,p,b,li,.dim,.good,.bad,td,th,button').forEach(
        function(e) {
            if (!e.offsetParent || !e.innerText) return;
            var behind = e;
            while (behind.parentElement
                && numbers(getComputedStyle(behind).backgroundColor)[3] === 0)
                behind = behind.parentElement;
            var a = light(numbers(getComputedStyle(e).color).slice(0, 3));
            var b = light(numbers(getComputedStyle(behind).backgroundColor).slice(0, 3));
            least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
        });
    return least;
})()"""

CELLS = """Array.from(document.querySelectorAll('.bar')[%d].querySelectorAll('a')).map(function(a) {
    var r = a.getBoundingClientRect();
    return {left: r.left, right: r.right, y: (r.top + r.bottom) / 2,
            name: a.getAttribute('aria-label'), href: a.getAttribute('href'),
            kind: a.className.split(' ')[0]};
})"""

SHOWN = "(document.querySelector('article.on') || {}).innerText || ''"


def rectangles(page, selector):
    return page.value(RECTANGLES % repr(selector))


def overlapping(found):
    """Pairs of texts that lie over one another."""
    return [(a[4], b[4]) for i, a in enumerate(found) for b in found[i + 1:]
            if a[0] < b[2] - 0.5 and b[0] < a[2] - 0.5 and a[1] < b[3] - 0.5 and b[1] < a[3] - 0.5]


def check_layout(page, where, width):
    check(page.complaints() == [], f"{where}: no errors, no requests: {page.complaints()}")
    check(page.value("document.documentElement.scrollWidth") <= width,
          f"{where}: nothing to scroll sideways")
    outside = [r[4] for r in rectangles(page, "h1,h2,b,li,.bar,.bar a,.head span,aside,td,button")
               if r[0] < -0.5 or r[2] > width + 0.5]
    check(outside == [], f"{where}: all within the page: {outside[:3]}")
    check(page.value(CLIPPED) == [], f"{where}: no text is cut: {page.value(CLIPPED)}")
    for selector in ("main h2, .head span, .head b, .bar, main li, h1",
                     "article.on td, article.on th", "nav button"):
        found = overlapping(rectangles(page, selector))
        check(found == [], f"{where}: nothing lies over anything: {found[:3]}")
    contrast = page.value(CONTRAST)
    check(contrast >= 4.5, f"{where}: texts can be read: contrast {contrast:.2f}")


def check_bars(page, where):
    bars = rectangles(page, ".bar")
    check(len(bars) == page.value("document.querySelectorAll('h2').length"),
          f"{where}: a bar for each tier")
    for number, bar in enumerate(bars):
        cells = page.value(CELLS % number)
        gaps = [b["name"] for a, b in zip(cells, cells[1:]) if abs(a["right"] - b["left"]) > 0.2]
        check(gaps == [], f"{where}: bar {number} has no gaps: {gaps[:3]}")
        check(abs(cells[0]["left"] - bar[0]) < 0.2 and abs(cells[-1]["right"] - bar[2]) < 0.2,
              f"{where}: the cells make up bar {number}")
        check(all(c["right"] > c["left"] for c in cells),
              f"{where}: bar {number}: all have a width")


# ---- what appears -------------------------------------------------------------------------------

def middle(cell):
    return (cell["left"] + cell["right"]) / 2, cell["y"]


def check_lists(page, where, rows, touch):
    """Each layer, pointed at, tells its tensors and where they are."""
    layers = {}
    for row in rows:
        layers.setdefault(row["layer"], []).append(row)
    seen = set()
    for number in range(page.value("document.querySelectorAll('.bar').length")):
        for cell in [c for c in page.value(CELLS % number) if c["href"].startswith("#l")]:
            name = cell["name"].rsplit(", ", 1)[0]
            # A finger needs more than a hair.
            if name in seen or cell["right"] - cell["left"] < (4 if touch else 1):
                continue
            seen.add(name)
            if touch:
                page.call("Runtime.evaluate", expression="scrollTo(0,0);"
                          "document.getElementById('close').click();"
                          "document.querySelectorAll('.bar')[%d].scrollIntoView("
                          "{block: 'center'})" % number)
                cell = next(c for c in page.value(CELLS % number) if c["href"] == cell["href"])
                page.tap(*middle(cell))
            else:
                page.point(*middle(cell))
            text = page.value(SHOWN)
            missing = [r["tensor"] for r in layers[name]
                       if r["tensor"].removeprefix(name + ".") not in text]
            check(text.startswith(name) and missing == [], f"{where}: {name} lists its tensors")
            tiers = {r["tier"] for r in layers[name]}
            check(all(tier in text for tier in tiers), f"{where}: {name} tells its tiers")
            reason = text.split("\n")[2] if text.count("\n") > 2 else ""
            check(any(word in reason for word in ("fits on", "is short of", "fetched one by one")),
                  f"{where}: {name} tells why: {reason!r}")
    check(len(seen) >= 10, f"{where}: {len(seen)} layers were pointed at")


def check_mouse(page, where):
    first, second = page.value(CELLS % 0)[:2]
    page.point(*middle(first))
    check(page.value(SHOWN).startswith(first["name"].rsplit(", ", 1)[0]),
          f"{where}: hovering shows")
    page.click(*middle(first))
    page.point(*middle(second))
    check(page.value(SHOWN).startswith(first["name"].rsplit(", ", 1)[0]), f"{where}: a click holds")
    page.press("Escape")
    check(page.value(SHOWN) == "", f"{where}: Escape lets go")
    page.point(*middle(second))
    check(page.value(SHOWN).startswith(second["name"].rsplit(", ", 1)[0]), f"{where}: and on")
    marked = page.value("Array.from(document.querySelectorAll('a.now')).map(function(a) {"
                        "return a.getAttribute('href'); })")
    check(len(marked) > 0 and set(marked) == {second["href"]},
          f"{where}: all cells of the layer are marked")
    page.press("Escape")


def check_keyboard(page, where):
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab",
              windowsVirtualKeyCode=9)
    cells = page.value(CELLS % 0)
    check(page.value(SHOWN).startswith(cells[0]["name"].rsplit(", ", 1)[0]),
          f"{where}: Tab reaches the first bar")
    page.press("ArrowRight")
    check(page.value(SHOWN).startswith(cells[1]["name"].rsplit(", ", 1)[0]),
          f"{where}: an arrow goes on")
    page.press("ArrowLeft")
    check(page.value(SHOWN).startswith(cells[0]["name"].rsplit(", ", 1)[0]),
          f"{where}: and back")
    page.press("Escape")


def check_finger(page, where, height):
    page.call("Runtime.evaluate", expression="scrollTo(0,0)")
    cell = [c for c in page.value(CELLS % 1) if c["kind"] == "absent"][-1]
    page.tap(*middle(cell))
    shown = page.value(SHOWN)
    check(shown.startswith(cell["name"].rsplit(", ", 1)[0]), f"{where}: a tap shows")
    sheet = rectangles(page, "aside")[0]
    bar = rectangles(page, ".bar")[1]
    check(bar[3] <= sheet[1], f"{where}: the sheet leaves the bar to be seen")
    check(sheet[1] >= height / 3 and sheet[3] <= height + 0.5, f"{where}: and a half of the page")
    small = [r[4] for r in rectangles(page, "nav button") if r[2] - r[0] < 36 or r[3] - r[1] < 36]
    check(small == [], f"{where}: buttons are large enough")
    before = rectangles(page, "#before")[0]
    page.tap((before[0] + before[2]) / 2, (before[1] + before[3]) / 2)
    check(page.value(SHOWN) not in ("", shown), f"{where}: a button goes to the part before")
    after = rectangles(page, "#after")[0]
    page.tap((after[0] + after[2]) / 2, (after[1] + after[3]) / 2)
    check(page.value(SHOWN) == shown, f"{where}: and back")


# ---- pictures -----------------------------------------------------------------------------------

def check_screenshot(page, name, width, height):
    path = os.path.join(DATA, name + ".png")
    picture = page.screenshot()
    if os.environ.get("UPDATE"):
        with open(path, "wb") as file:
            file.write(png.shrink(picture))
    with open(path, "rb") as file:
        reference = file.read()
    sizes = [png.size(data) for data in (picture, reference)]
    check(sizes == [(width, height)] * 2, f"{name}: its size: {sizes}")
    check(len(reference) < LARGEST_SCREENSHOT, f"{name}: the reference is small: {len(reference)}")


def check_page(page, path, rows, name, width, height, phone, dark):
    page.open(path, width, height, phone=phone, dark=dark)
    check_layout(page, name, width)
    check_bars(page, name)
    if phone:
        check_finger(page, name, height)
    else:
        cell = [c for c in page.value(CELLS % 1) if c["kind"] == "absent"][-1]
        page.point(*middle(cell))
    check_layout(page, name + ", open", width)
    check_screenshot(page, name, width, height)
    if phone:
        page.call("Runtime.evaluate", expression="document.getElementById('close').click()")
        check(page.value(SHOWN) == "", f"{name}: the sheet closes")
    else:
        page.point(1, 1)
        page.press("Escape")
        check_mouse(page, name)
        page.open(path, width, height, dark=dark)
        check_keyboard(page, name)
    check_lists(page, name, rows, phone)


def check_without_script(page, path):
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.open(path + "#l3", 1280, 800)
    seen = rectangles(page, "article")
    check(len(seen) == 1 and "model.layers.2" in seen[0][4],
          "without its script a link still shows a layer")
    page.call("Emulation.setScriptExecutionDisabled", value=False)


def check_evil(page, folder):
    """Names that would be markup, script or style, if they were taken for it."""
    evil = "</script><script>window.evil=1</script><img src=x onerror=window.evil=1>\"'"
    with open(os.path.join(DATA, "plan.json"), encoding="utf-8") as file:
        text = file.read()
    escaped = evil.replace("\\", "\\\\").replace('"', '\\"')
    plan, html = os.path.join(folder, "evil.json"), os.path.join(folder, "evil.html")
    with open(plan, "w", encoding="utf-8") as file:
        file.write(text.replace("lm_head", escaped))
    berth_map(plan, "--html", html)
    page.open(html, 1280, 800)
    check(page.value("typeof window.evil") == "undefined", "names of layers do nothing")
    check(page.complaints() == [], "and ask for nothing")
    check(page.value("Array.from(document.querySelectorAll('h3')).some(function(e) {"
                     "return e.textContent.indexOf('<img src=x') >= 0; })"), "they are shown")


def main():
    program = browser.find()
    if program is None:
        print("skipped: no Chromium: tests/deps.sh install ci")
        print("t: 0 passed, 0 failed, 1 skipped")
        return 77
    plan = os.path.join(DATA, "plan.json")
    rows = list(csv.DictReader(io.StringIO(berth_map(plan, "--csv", "-"))))
    with tempfile.TemporaryDirectory(prefix="berth-map.") as folder:
        path = os.path.join(folder, "map.html")
        berth_map(plan, "--html", path)
        page = browser.Browser(program)
        try:
            check_page(page, path, rows, "desktop", 1280, 800, False, False)
            check_page(page, path, rows, "desktop-dark", 1280, 800, False, True)
            check_page(page, path, rows, "phone", 390, 844, True, False)
            check_page(page, path, rows, "phone-dark", 390, 844, True, True)
            check_without_script(page, path)
            check_evil(page, folder)
        finally:
            page.close()
    print(f"t: {passed} passed, {len(failures)} failed, 0 skipped")
    return len(failures) > 0


if __name__ == "__main__":
    sys.exit(main())
