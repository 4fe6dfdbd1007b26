"""Make the pictures of the studio's tutorial: `python tools/studio_pictures.py docs/tutorial/studio`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from apportion.client import Client

TOKEN = "the-pictures-have-their-own-token"
SIZE = {"width": 1180, "height": 760}


def main() -> None:
    """Fill a studio, look at every view of it, and keep what is seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as jobs:
        command = [sys.executable, "-c", "from apportion.cli import main; main()", "serve", "--port", "0"]
        command += ["--demo", "--folder", jobs, "--token", TOKEN]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            wait_until_filled(Client(address))
            with sync_playwright() as driver:
                browser = driver.chromium.launch(
                    executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
                    args=["--no-sandbox"],
                )
                page = browser.new_context(viewport=SIZE).new_page()
                for name, picture in pictures(page, address).items():
                    (folder / f"{name}.png").write_bytes(picture)
                browser.close()
        finally:
            process.terminate()
            process.wait()


def wait_until_filled(client: Client) -> None:
    """Wait for every job of the demonstration."""
    while not (jobs := client.jobs()) or any(job["state"] in ("waiting", "running") for job in jobs):
        time.sleep(1)


def pictures(page: Page, address: str) -> dict[str, bytes]:
    """Name → PNG of each view."""
    base = address.partition("#")[0]
    found: dict[str, bytes] = {}

    def keep(name: str, **more: Any) -> None:
        page.wait_for_timeout(600)
        found[name] = page.screenshot(**more)

    page.goto(address)
    page.wait_for_selector("#shares table")
    keep("kernel")
    page.locator(".cm-line").filter(has_text="sum += a[row").click()
    page.get_by_role("tab", name="Why").click()
    keep("why")
    page.get_by_role("tab", name="Graph").click()
    page.wait_for_selector("g.node")
    page.locator("g.node").filter(has_text="get_global_id").nth(1).click()
    page.wait_for_timeout(500)
    keep("graph")
    page.get_by_role("tab", name="Prediction").click()
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("__kernel void f(__global float* x)\n{\n    x[get_global_id(0)] = scale;\n}\n")
    page.wait_for_selector(".status.bad")
    keep("error", clip={"x": 0, "y": 0, "width": 1180, "height": 420})
    page.goto(f"{base}#/runs")
    page.get_by_role("link", name="Matrix product, plain").click()
    page.wait_for_selector(".facts")
    keep("run")
    page.goto(f"{base}#/runs")
    page.wait_for_selector("text=Choose a run, or two")
    for name in ("Matrix product, plain", "Matrix product, tiled"):
        page.get_by_label(f"Compare {name}").check()
        page.locator("tr.chosen").filter(has_text=name).wait_for()
    page.wait_for_selector(".compared")
    keep("compare")
    page.goto(f"{base}#/machine")
    page.wait_for_selector("svg[aria-label^=Roofline]")
    keep("machine")
    page.goto(f"{base}#/systems")
    page.wait_for_selector("svg[aria-label='Schedule of eft']")
    page.get_by_role("button", name="Use an example").click()
    page.wait_for_selector("text=Fastest first")
    page.evaluate("document.querySelector('fieldset').scrollIntoView()")
    keep("schedules")
    page.goto(f"{base}#/api")
    page.locator("details.address summary").first.click()
    keep("api")
    page.set_viewport_size({"width": 390, "height": 760})
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.goto(f"{base}#/kernel")
    page.get_by_label("Start from").select_option("nbody.cl")
    page.wait_for_selector("#shares table")
    page.evaluate("document.querySelector('.editor').scrollIntoView()")
    keep("narrow")
    return found


if __name__ == "__main__":
    main()
