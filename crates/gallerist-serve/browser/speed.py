"""How fast the page is: `speed.py URL [CHROMIUM]` for a server that runs.

Prints the first view (all pictures in sight loaded), a search by a click, and the map's frames per second while it is
moved, zoomed and pointed at. WebGL is drawn in software, as on a machine without a graphics processor.
"""

import sys
import time

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"]
LOADED = """() => {
    const cells = [...document.querySelectorAll("main .cell")].filter((cell) => cell.getBoundingClientRect().top < innerHeight);
    const images = cells.flatMap((cell) => [...cell.querySelectorAll("img")]);
    return cells.length > 10 && cells.every((cell) => cell.querySelector(".tile")) && images.every((image) => image.complete);
}"""
CLICK = """async () => {
    const began = performance.now();
    document.querySelectorAll("main .picture")[10].click();
    while (!document.querySelector("main .lists .tile")) await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""
FRAMES = """async (kind) => {
    const surface = document.querySelector(".surface");
    const box = surface.getBoundingClientRect();
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    surface.setPointerCapture = () => {};
    const point = (type, dx, dy) => surface.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX: x + dx, clientY: y + dy, pointerType: "mouse" }));
    const step = {
        move: (i) => point("pointermove", 150 * Math.sin(i / 20), 100 * Math.cos(i / 20)),
        point: (i) => point("pointermove", 150 * Math.sin(i / 20), 100 * Math.cos(i / 20)),
        zoom: (i) => surface.dispatchEvent(new WheelEvent("wheel", { deltaY: i % 80 < 40 ? -30 : 30, clientX: x, clientY: y, cancelable: true })),
    }[kind];
    if (kind === "move") point("pointerdown", 0, 100);
    const times = [];
    for (let i = 0; i < 240; i++) {
        step(i);
        times.push(await new Promise(requestAnimationFrame));
    }
    if (kind === "move") point("pointerup", 0, 100);
    const gaps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b);
    return { rate: (1000 * gaps.length) / (times.at(-1) - times[0]), median: gaps[gaps.length >> 1], p99: gaps[Math.floor(0.99 * gaps.length)] };
}"""


def main():
    url = sys.argv[1].rstrip("/")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=sys.argv[2] if len(sys.argv) > 2 else "/usr/bin/chromium", args=FLAGS)
        for _ in range(3):
            context = browser.new_context(viewport={"width": 1360, "height": 860})
            page = context.new_page()
            began = time.monotonic()
            page.goto(url)
            while not page.evaluate(LOADED):
                page.wait_for_timeout(5)
            first = time.monotonic() - began
            print(f"first view {1000 * first:.0f} ms, click to ranked list {page.evaluate(CLICK):.0f} ms")
            context.close()
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        began = time.monotonic()
        page.goto(url + "/#view=map")
        page.locator(".surface").wait_for()
        print(f"map {1000 * (time.monotonic() - began):.0f} ms: {page.locator('main .facts').inner_text()}")
        page.wait_for_timeout(3000)
        for kind in ["move", "zoom", "point"]:
            page.wait_for_timeout(2000)
            found = page.evaluate(FRAMES, kind)
            print(f"{kind}: {found['rate']:.1f} frames a second, {found['median']:.1f} ms between two (median), {found['p99']:.1f} ms (99 %)")
        browser.close()


if __name__ == "__main__":
    main()
