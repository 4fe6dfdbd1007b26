"""Journeys through the page, in a real browser against a real service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time

import pytest

from apportion.serve.answers import ANSWERS
from tests.serve.conftest import HANGING, MATMUL, SAXPY, TOKEN, Service, opencl

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.xdist_group("serve"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
expect = playwright.expect
WAIT = 90_000  # a machine that is busy with the rest of the tests is slow
OPERATIONS = [*ANSWERS, "GET /api/jobs/{id}/events"]


def chromium() -> str:
    """Debian's Chromium; installed where this is root and there is none."""
    found = shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-q", "chromium"]
        if (
            subprocess.run(install, check=False, capture_output=True).returncode != 0
        ):  # no lists of packages yet
            subprocess.run(["apt-get", "update", "-q"], check=False, capture_output=True)
            subprocess.run(install, check=False, capture_output=True)
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, service):
    """A page of a fresh visitor, which must not complain of anything by the end."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(WAIT)
    expect.set_options(timeout=WAIT)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    context.close()
    assert problems == []


def visit(page, service: Service, view: str = "", *, token: str = TOKEN):
    page.goto(f"{service.base}/#token={token}")
    expect(page.locator(".machine").first).to_be_visible()
    expect(page.get_by_text("are being found and measured")).to_have_count(0, timeout=120_000)
    if view:
        page.get_by_role("navigation").get_by_role("link", name=view).click()


def write(page, text: str):
    """Put a text into the editor as somebody who types it would."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def run_of(service: Service, text: str = SAXPY, **more) -> str:
    body = {"source": opencl(text), "global_size": 4096, "repeat": 1, "cuts": False, **more}
    return service.job("/api/run", body)["id"]


def test_a_first_visit_shows_a_prediction_of_an_example(page, service):
    visit(page, service)
    expect(page.get_by_role("heading", name="This machine")).to_be_visible()
    expect(page.get_by_label("Start from")).to_have_value("matmul.cl")
    expect(page.locator(".status").first).to_contain_text("Predicted in")
    assert TOKEN not in page.url


def test_a_broken_kernel_is_marked_at_its_line(page, service):
    visit(page, service)
    write(page, "__kernel void f(__global int* x)\n{\n    x[0] = missing;\n}\n")
    expect(page.locator(".status.bad")).to_contain_text("Line 3: use of undeclared identifier 'missing'")
    expect(page.locator(".cm-lintRange-error")).to_be_visible()
    expect(page.get_by_role("button", name="Run it here")).to_be_disabled()


def test_every_error_of_the_compiler_is_marked_at_its_line(page, service):
    visit(page, service)
    write(page, "__kernel void f(__global int* x)\n{\n    x[0] = one;\n    x[1] = 2;\n    x[2] = three;\n}\n")
    expect(page.locator(".cm-lintRange-error")).to_have_count(2)
    expect(page.locator(".cm-lint-marker-error")).to_have_count(2)
    expect(page.locator(".cm-line").filter(has_text="three").locator(".cm-lintRange-error")).to_be_visible()


def test_a_mended_kernel_is_predicted_again(page, service):
    visit(page, service)
    write(page, "__kernel void f(__global int* x) { x[0] = missing; }")
    expect(page.locator(".status.bad")).to_be_visible()
    write(page, "__kernel void f(__global int* x) { x[get_global_id(0)] = 1; }")
    expect(page.locator(".status.bad")).to_have_count(0)
    expect(page.get_by_role("button", name="Run it here")).to_be_enabled()


def test_the_cut_curve_names_its_best_cut(page, service):
    visit(page, service)
    curve = page.locator(".machine svg[aria-label^='Time over the share']").first
    expect(curve).to_be_visible()
    expect(curve).to_have_attribute("aria-label", re.compile(r"Best: \d+ % for cpu"))


def test_the_nearest_known_kernels_are_named(page, service):
    visit(page, service)
    expect(page.locator(".nearest")).to_contain_text(re.compile(r"mm\d_kernel1 at distance 0\.\d+"))


def test_measuring_and_training_are_followed_by_live_curves(page, service):
    third = opencl("__kernel void f(__global float* x) { x[get_global_id(0)] += 1.0f; }", "third.cl")
    body = {"sources": [opencl(SAXPY, "saxpy.cl"), opencl(MATMUL, "matmul.cl"), third], "sizes": [4096]}
    service.job("/api/measure", body | {"local_sizes": [64], "seconds": 0.05})
    visit(page, service, "Machine")
    page.get_by_role("button", name="Train on what was measured").click()
    curve = page.locator("svg[aria-label^='Training: error']")
    expect(curve).to_be_visible(timeout=300_000)
    expect(page.locator(".machine-view .status")).to_contain_text("this-machine: done")
    expect(page.get_by_text("on what was held out")).to_be_visible()
    page.get_by_role("button", name="Measure the examples here").click()
    expect(page.locator("svg[aria-label^='Measured times']")).to_be_visible(timeout=300_000)
    for job in service.ask("GET", "/api/jobs?state=running").json:
        service.ask("POST", f"/api/jobs/{job['id']}/cancel", {})
    expect(page.locator(".machine-view .status")).to_contain_text("examples: cancelled")


def test_lines_are_coloured_by_what_they_cost(page, service):
    visit(page, service)
    hot = page.locator(".cm-line.line-cost").filter(has_text="sum += a[row")
    expect(hot).to_be_visible()
    costs = page.locator(".cost-gutter .cm-gutterElement").all_inner_texts()
    assert any(re.fullmatch(r"\d+ %", text) for text in costs)
    hot.hover()
    expect(page.locator(".line-tip")).to_contain_text("for each work-item")


def test_sizes_change_the_prediction(page, service):
    visit(page, service)
    before = page.locator(".machine svg").first.get_attribute("aria-label")
    page.get_by_label("Work-items").fill("64x64")
    page.get_by_label("Arguments").fill("n=64 a=float32[4*N]")
    expect(page.locator(".machine svg").first).not_to_have_attribute("aria-label", before)
    page.get_by_label("Build options").fill("-D")
    expect(page.locator(".status.bad")).to_contain_text("lacks its value")


def test_an_impossible_size_is_told(page, service):
    visit(page, service)
    page.get_by_label("Work-group").fill("7")
    expect(page.locator(".status.bad")).to_contain_text("dimensions")
    page.get_by_label("Work-group").fill("7x7")
    expect(page.locator(".status.bad")).to_contain_text("whole work-groups")


def test_what_was_assumed_is_told(page, service):
    visit(page, service)
    page.get_by_text("What was assumed").click()
    expect(page.get_by_role("row", name=re.compile("^n .*given"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^a .*assumed"))).to_be_visible()


def test_a_source_with_two_kernels_lets_one_choose(page, service):
    visit(page, service)
    write(page, SAXPY + "\n__kernel void twice(__global float* x) { x[get_global_id(0)] *= 2.0f; }\n")
    chosen = page.get_by_role("combobox", name="Kernel")
    expect(chosen.get_by_role("option")).to_have_count(2)
    chosen.select_option("twice")
    page.get_by_text("What was assumed").click()
    expect(page.get_by_role("row", name=re.compile("^x float32"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^n "))).to_have_count(0)


def test_why_tells_what_bounds_a_launch_and_leads_to_its_line(page, service):
    visit(page, service)
    page.get_by_role("tab", name="Why").click()
    expect(page.get_by_role("heading", name="What bounds it")).to_be_visible()
    page.locator("table.lines button").first.click()
    expect(page.locator(".line-marked")).to_be_visible()


def test_a_line_marks_its_nodes_and_a_node_its_line(page, service):
    visit(page, service)
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator(".paper g.node").first).to_be_visible()
    page.locator(".cm-line").filter(has_text="sum += a[row").click()
    expect(page.locator(".paper g.of-line").first).to_be_attached()
    page.locator(".paper g.node").filter(has_text="get_global_id").nth(1).click()
    expect(page.locator(".graph .status")).to_contain_text("reachability takes")
    expect(page.locator(".paper g.root")).to_have_count(1)


def test_the_graph_is_moved_and_enlarged_with_the_keyboard(page, service):
    visit(page, service)
    page.get_by_role("tab", name="Graph").click()
    drawing = page.get_by_role("application").locator("svg")
    expect(drawing).to_be_visible()
    before = drawing.get_attribute("viewBox")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("+")
    assert drawing.get_attribute("viewBox") != before


def test_an_instruction_is_chosen_and_analysed_with_the_keyboard(page, service):
    visit(page, service)
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator(".paper g.node").first).to_be_visible()
    page.get_by_role("application").focus()
    for _ in range(3):
        page.keyboard.press("n")
    expect(page.locator(".graph .status")).to_have_text(
        re.compile(r"Node \d+, line \d+: .*Enter analyses from it")
    )
    expect(page.locator(".paper g.chosen")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".graph .status")).to_contain_text("reachability takes")
    expect(page.locator(".line-marked")).to_have_count(1)
    page.keyboard.press("p")
    expect(page.locator(".graph .status")).to_contain_text("Enter analyses from it")


def test_ir_stands_beside_the_source(page, service):
    visit(page, service)
    page.get_by_role("tab", name="LLVM IR").click()
    expect(page.locator("pre.ir")).to_contain_text("define dso_local spir_kernel void @matmul")
    assert "!dbg" not in page.locator("pre.ir").inner_text()


def test_plain_c_has_a_graph_and_no_launch(page, service):
    visit(page, service)
    page.get_by_label("Start from").select_option("dot.c")
    expect(page.locator("#predictions, .panel").first).to_contain_text("no launch to predict")
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator(".paper g.node").first).to_be_visible()


def test_llvm_ir_is_read_as_it_is(page, service):
    visit(page, service)
    page.get_by_label("Start from").select_option("gcd.ll")
    page.get_by_role("tab", name="Graph").click()
    expect(page.get_by_role("application")).to_contain_text("urem")


def test_a_run_is_followed_to_its_verified_end(page, service):
    visit(page, service)
    page.get_by_label("Start from").select_option("saxpy.cl")
    page.get_by_label("Work-items").fill("65536")
    expect(page.locator(".status").first).to_contain_text("Predicted")
    page.get_by_role("button", name="Run it here").click()
    expect(page.locator(".facts")).to_contain_text("verified", timeout=60_000)
    expect(page.get_by_role("heading", name="Cuts: measured on the predicted curve")).to_be_visible()
    expect(page.locator("svg[aria-label='Timeline of the last run']")).to_be_visible()


def test_a_hanging_kernel_is_told_and_stops(page, service):
    id = service.ask(
        "POST", "/api/run", {"source": opencl(HANGING), "global_size": 64, "seconds": 1.0, "repeat": 1}
    ).json["id"]
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    expect(page.get_by_role("alert")).to_contain_text("Does the kernel end?", timeout=60_000)


def test_a_running_job_is_cancelled(page, service):
    body = {"source": opencl(HANGING), "global_size": 64, "seconds": 60, "repeat": 1, "name": "endless"}
    id = service.ask("POST", "/api/run", body).json["id"]
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("It was cancelled")


def test_a_reload_in_the_middle_of_a_job_goes_on_with_it(page, service):
    body = {"source": opencl(HANGING), "global_size": 64, "seconds": 3, "repeat": 1, "name": "slow"}
    id = service.ask("POST", "/api/run", body).json["id"]
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.reload()
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_visible(timeout=60_000)


def test_the_back_button_leads_back(page, service):
    visit(page, service, "Machine")
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Systems").click()
    page.go_back()
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    page.go_back()
    expect(page.locator(".cm-content")).to_contain_text("matmul")


def test_colours_follow_the_system_and_the_button(browser, service):
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    visit(page, service)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark or light colours").click()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    expect(page.locator(".machine").first).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    context.close()


@pytest.mark.parametrize("view", ["Kernel", "Runs", "Machine", "Systems", "API"])
def test_nothing_is_wider_than_a_narrow_screen(page, service, view):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, service, view)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_everything_is_reached_with_the_keyboard_alone(page, service):
    visit(page, service)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.get_by_role("tab", name="Prediction").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Why")).to_be_focused()
    expect(page.get_by_role("heading", name="Lines")).to_be_visible()
    page.get_by_role("link", name="Machine").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()


def test_two_tabs_see_the_same_jobs(page, service):
    id = run_of(service, name="seen by both")
    visit(page, service, "Runs")
    other = page.context.new_page()
    visit(other, service, "Runs")
    for one in (page, other):
        expect(one.get_by_role("link", name="seen by both").first).to_be_visible()
    other.locator(f"a[href='#/runs/{id}']").click()
    other.get_by_role("button", name="Delete").click()
    expect(other.locator(f"a[href='#/runs/{id}']")).to_have_count(0)
    page.reload()
    expect(page.locator("table.jobs, .list p").first).to_be_visible()
    expect(page.locator(f"a[href='#/runs/{id}']")).to_have_count(0)


def test_a_lost_connection_is_told_and_found_again(page, service):
    visit(page, service)
    page.context.set_offline(True)
    write(page, SAXPY)
    expect(page.locator("#connection")).to_have_text("The service does not answer")
    page.context.set_offline(False)
    write(page, MATMUL)
    expect(page.locator("#connection")).to_have_text("")
    expect(page.locator(".status").first).to_contain_text("Predicted")


def test_a_wrong_token_is_asked_for_again(page, service):
    visit(page, service, token="not-the-token-at-all")
    page.get_by_role("button", name="Run it here").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("needs the token")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_role("button", name="Use it").click()
    expect(page.locator("article.run")).to_be_visible()


def test_a_token_that_is_refused_twice_leaves_a_message(page, service):
    visit(page, service, token="not-the-token-at-all")
    page.get_by_role("button", name="Run it here").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(".status.bad")).to_contain_text("token")


def test_a_link_holds_the_kernel_itself(page, service, browser):
    visit(page, service)
    write(page, "// mine\n" + SAXPY)
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".status").first).to_contain_text("link")
    context = browser.new_context()
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator(".cm-content")).to_contain_text("// mine")
    context.close()


def test_two_runs_stand_side_by_side(page, service):
    first, second = run_of(service, name="one"), run_of(service, MATMUL, global_size=[64, 64], name="two")
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{first},{second}")
    expect(page.locator("article.run")).to_have_count(2)
    expect(page.locator("article.run h2").nth(0)).to_be_visible()


def test_two_versions_of_a_kernel_are_compared(page, service):
    changed = SAXPY.replace("{", "{\n    // the second version", 1)
    body = {"global_size": 4096, "repeat": 2}
    first, second = run_of(service, name="before", **body), run_of(service, changed, name="after", **body)
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{first},{second}")
    card = page.locator(".compared")
    expect(card.locator(".verdict")).to_have_text(re.compile(r"after takes [\d.,]+ × the time of before"))
    expect(card.get_by_role("row", name=re.compile("^as chosen .*×$"))).to_be_visible()
    expect(card.locator(".added")).to_have_count(1)
    expect(card.locator(".added")).to_contain_text("the second version")
    expect(card.locator(".gone")).to_have_count(0)


def test_a_run_is_shared_as_a_link_that_holds_it(page, service, browser):
    id = run_of(service, MATMUL, global_size=[64, 64], name="passed on", cuts=True)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".actions .status")).to_contain_text("holds the run itself")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{service.base}/#/shared/")
    assert TOKEN not in link
    service.ask("DELETE", f"/api/jobs/{id}")
    context = browser.new_context()
    other = context.new_page()
    other.goto(link)  # without the token, and the job is gone
    expect(other.get_by_role("heading", name="passed on")).to_be_visible()
    expect(other.locator(".facts")).to_contain_text("verified")
    expect(other.locator("svg[aria-label='Timeline of the last run']")).to_be_visible()
    other.get_by_role("button", name="Open the kernel").click()
    expect(other.locator(".cm-content")).to_contain_text("matmul")
    other.goto(link[: len(link) // 2])
    expect(other.get_by_role("alert")).to_contain_text("The link cannot be read")
    context.close()


def test_what_a_kernel_printed_and_how_its_bounds_were_checked_are_told(page, service):
    text = """__kernel void f(__global const int* index, __global int* x) {
        int i = get_global_id(0);
        if (i == 0) printf("hello from the kernel\\n");
        x[index[i]] = i;
    }"""
    id = run_of(service, text, global_size=64, arguments=["index=int32[64]=zeros", "x=int32[32]"])
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    expect(page.get_by_role("region", name="What the kernel printed")).to_contain_text(
        "hello from the kernel"
    )
    expect(page.locator("article.run")).to_contain_text("work-groups: no access outside of an array")


def test_every_address_is_described_and_can_be_asked_from_the_page(page, service):
    visit(page, service, "API")
    expect(page.locator("details.address")).to_have_count(len(OPERATIONS))
    card = page.locator("details.address").filter(has=page.get_by_text("/api/predict", exact=True))
    card.locator("summary").click()
    expect(card.get_by_role("row", name=re.compile("^local_size .*required"))).to_be_visible()
    expect(card.get_by_role("row", name=re.compile("^cpu_share number"))).to_be_visible()
    card.get_by_role("button", name="POST").click()
    expect(card.get_by_role("region", name="What came back")).to_contain_text('"cpu_share"')
    card.get_by_label("Body").fill("{")
    card.get_by_role("button", name="POST").click()
    expect(card.get_by_role("region", name="What came back")).to_contain_text("not JSON")


def test_a_run_is_renamed_and_kept_as_one_file(page, service, tmp_path):
    id = run_of(service, name="before")
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    page.on("dialog", lambda dialog: dialog.accept("after"))
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="after")).to_be_visible()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Save as HTML").click()
    kept.value.save_as(tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text()
    assert "<svg" in text
    assert "src=" not in text
    assert TOKEN not in text


def test_a_run_leads_back_to_its_kernel(page, service):
    id = run_of(service, "// of the run\n" + SAXPY)
    visit(page, service)
    page.goto(f"{service.base}/#/runs/{id}")
    page.get_by_role("button", name="Open the kernel").click()
    expect(page.locator(".cm-content")).to_contain_text("// of the run")


def test_the_roofline_shows_the_devices_and_what_was_run(page, service):
    run_of(service, MATMUL, global_size=[64, 64], arguments=["n=64"])
    visit(page, service, "Machine")
    expect(page.locator("svg[aria-label^='Roofline of cpu']")).to_be_visible()
    measured = service.ask("GET", "/api/measured").json
    assert len(measured) >= 2
    drawn = page.locator("svg[aria-label^='Roofline'] circle")
    expect(drawn).to_have_count(sum(one["operations"] > 0 for one in measured))
    expect(drawn.locator("title").filter(has_text="matmul").first).to_be_attached()


def test_a_profile_is_ordered_over_systems(page, service, tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"counters": {"opcount": 1.0}}))
    visit(page, service, "Systems")
    page.get_by_label("Profile").set_input_files(str(file))
    expect(page.locator(".systems .status").first).to_contain_text("The profile has no")
    page.get_by_role("button", name="Use an example").click()
    expect(page.locator(".systems")).to_contain_text("Fastest first")


def test_a_file_that_is_no_profile_is_told(page, service, tmp_path):
    file = tmp_path / "profile.json"
    file.write_text("{")
    visit(page, service, "Systems")
    page.get_by_label("Profile").set_input_files(str(file))
    expect(page.locator(".systems .status").first).to_contain_text("is not JSON")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_serious(browser, service, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.base", reason="axe is not installed").AXE_FILE_PATH
    id, other = run_of(service, cuts=True), run_of(service, MATMUL, global_size=[64, 64])
    context = browser.new_context(
        viewport={"width": width, "height": 860}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    visit(page, service)
    found = []
    for view, tab in (
        ("kernel", "Prediction"), ("kernel", "Why"), ("kernel", "Graph"), ("kernel", "LLVM IR"),
        (f"runs/{id}", ""), (f"runs/{id},{other}", ""), ("machine", ""), ("systems", ""), ("api", ""),
    ):  # fmt: skip
        page.goto(f"{service.base}/#/{view}")
        if tab:
            page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(600)
        if view == "api":
            page.locator("details.address summary").first.click()
        page.add_script_tag(path=str(axe))
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [
            (view, tab, one["id"], [node["html"][:160] for node in one["nodes"][:3]])
            for one in result["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    context.close()
    assert found == []


def test_typing_asks_once_for_what_is_there_at_last(page, service):
    visit(page, service)
    asked = []
    page.on("request", lambda request: asked.append(request) if request.url.endswith("/inspect") else None)
    page.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type("// a comment that takes some time", delay=15)
    expect(page.locator(".stale")).to_have_count(0)
    time.sleep(0.5)
    assert 1 <= len(asked) <= 4
    assert asked[-1].post_data_json["source"]["text"].endswith("some time")


def test_schedules_change_with_the_size_of_a_system(page, service):
    visit(page, service, "Systems")
    chart = page.locator("svg[aria-label='Schedule of eft']")
    expect(chart).to_be_visible()
    row = page.locator(".systems table tr").filter(has_text="eft")
    before = row.inner_text()
    page.get_by_label("Slots of gpu").evaluate(
        "(input) => { input.value = 12; input.dispatchEvent(new Event('change')); }"
    )
    expect(row).not_to_have_text(re.compile(re.escape(before.split("\t")[1])))
    expect(row.locator(".change").first).to_have_text(re.compile(r"−\d+ %"))
    page.get_by_label("Slots of gpu").press("ArrowLeft")
    expect(page.locator(".systems .status").nth(1)).to_contain_text("gpu 11 slots")
    page.get_by_role("checkbox", name="careful", exact=True).uncheck()
    expect(page.locator("svg[aria-label='Schedule of careful']")).to_have_count(0)


def test_jobs_of_a_file_are_scheduled_on_the_systems_that_it_names(page, service):
    visit(page, service, "Systems")
    expect(page.locator("svg[aria-label='Schedule of eft']")).to_be_visible()
    page.get_by_label("Where jobs come from").select_option("table")
    expect(page.get_by_text("Choose a file: Table of jobs.")).to_be_visible()
    rows = [f"job-{job},{10 * job},{1 + job % 2},{60 + job},{90 - job}" for job in range(20)]
    text = "\n".join(["job,arrival_s,width,seconds:alpha,seconds:beta", *rows]) + "\n"
    page.get_by_label("Table of jobs").set_input_files(
        {"name": "jobs.csv", "mimeType": "text/csv", "buffer": text.encode()}
    )
    chart = page.locator("svg[aria-label='Schedule of eft']")
    expect(chart).to_be_visible()
    expect(chart.locator("text.name")).to_have_text(["alpha", "beta"])
    expect(chart.locator("rect")).to_have_count(30)  # ten of the twenty jobs take two slots
    expect(chart.locator("rect title").first).to_have_text(re.compile(r"job job-\d+: "))
    expect(page.get_by_label("Systems", exact=True).last).to_have_value("alpha=4 beta=4")
    with page.expect_request("**/api/schedule") as asked:
        page.get_by_label("Slots of beta").press("ArrowRight")
    assert asked.value.post_data_json["systems"] == ["alpha=4", "beta=5"]
    assert asked.value.post_data_json["trace"] == text
    row = page.locator(".systems table tr").filter(has_text="eft")
    expect(row.locator(".change").first).to_be_visible()


def test_a_log_of_slurm_needs_the_times_of_its_classes_and_a_wrong_file_is_told(page, service):
    visit(page, service, "Systems")
    page.get_by_label("Where jobs come from").select_option("swf")
    log = "; UnixStartTime: 0\n" + "".join(
        f"{job} {5 * job} 0 {60 + job} 1 -1 -1 1 600 -1 1 1 1 {job % 2 + 1} 1 -1 -1 -1\n"
        for job in range(1, 9)
    )
    page.get_by_label("Log", exact=True).set_input_files(
        {"name": "log.swf", "mimeType": "text/plain", "buffer": log.encode()}
    )
    expect(page.get_by_text("Choose a file: Times of classes (CSV).")).to_be_visible()
    times = "class,seconds:cpu,seconds:gpu\nfirst,100,20\nsecond,50,60\n"
    page.get_by_label("Times of classes (CSV)").set_input_files(
        {"name": "times.csv", "mimeType": "text/csv", "buffer": times.encode()}
    )
    chart = page.locator("svg[aria-label='Schedule of eft']")
    expect(chart.locator("rect")).to_have_count(8)
    page.get_by_label("Times of classes (CSV)").set_input_files(
        {"name": "times.csv", "mimeType": "text/csv", "buffer": b"class,seconds:cpu,seconds:gpu\nfirst,x,y\n"}
    )
    expect(page.locator(".systems .status").nth(1)).to_have_text("seconds:cpu: 'x' is no number")
    expect(chart).to_have_count(0)


def test_a_model_that_is_worse_than_the_trivial_answer_is_flagged_as_a_miss(page, service):
    visit(page, service, "Machine")
    table = page.get_by_role("region", name="Models")
    row = table.get_by_role("row").filter(has=page.get_by_role("cell", name="gnn-load-balance", exact=True))
    expect(row).to_contain_text("Missed: MAE 22.2 is worse than always 50 % (20.2).")
    row = table.get_by_role("row").filter(has=page.get_by_role("cell", name="cgo17-amd-recall", exact=True))
    expect(row).to_be_visible()
    expect(row).not_to_contain_text("Missed")
