"""The built site in a real browser: `nox -s docs-browser`."""

import http.server
import os
import shutil
import threading
from functools import partial
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from attncheck.case import Case
from attncheck.definition import expected

SITE = Path(os.environ["ATTNREF_SITE"])
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = sorted(
    str(page.relative_to(SITE))
    for page in SITE.rglob("*.html")
    if "_static" not in page.parts and page.name != "search.html"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844}
TERMS = (
    "softmax",
    "causal",
    "grouped",
    "log-sum-exp",
    "padding",
    "dropout",
    "softcap",
    "flash",
    "einsum",
    "fingerprint",
)


@pytest.fixture(scope="session")
def address():
    """Where the site is served, on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)


@pytest.fixture
def page(browser, address):
    """A new profile; a request to another host or an error of the page fails it."""
    context = browser.new_context()
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda r: None if r.url.startswith((address, "data:")) else wrong.append(r.url),
    )
    page.on("response", lambda r: wrong.append(r.url) if r.status >= 400 else None)
    yield page
    context.close()
    assert wrong == []


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_wider_than_a_phone(page, address, path):
    page.set_viewport_size(PHONE)
    page.goto(address + path)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious(page, address, path, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(address + path)
    # It would load style sheets again, by addresses that it makes up itself.
    found = Axe().run(page, options={"preload": False}).response["violations"]
    serious = [
        (one["id"], node["html"][:200], node["failureSummary"][:300])
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
    assert serious == []


def test_tabs_open_from_the_address_and_stay(page, address):
    def selected():
        inputs = page.locator(".sd-tab-set > input:checked + label")
        return set(inputs.all_inner_texts())

    page.goto(f"{address}steps/heads.html?framework=jax")
    assert selected() == {"JAX"}
    page.locator(".sd-tab-set label", has_text="PyTorch").first.click()
    assert selected() == {"PyTorch"}
    page.goto(f"{address}steps/softmax.html")
    assert selected() == {"PyTorch"}


@pytest.mark.parametrize("term", TERMS)
def test_search_finds(page, address, term):
    page.goto(f"{address}search.html?q={term}")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    assert page.locator("#search-results li a").count()


def test_every_link_leads_somewhere(page, address):
    """To a page of the site, and to an anchor that is there."""
    anchors, links = {}, []
    for path in PAGES:
        page.goto(address + path)
        url = address + path
        found = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        anchors[url] = set(found)
        hrefs = page.evaluate(
            "[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
        )
        links += [(url, urljoin(url, href)) for href in hrefs]
    inside = [(at, to) for at, to in links if to.startswith(address)]
    assert inside
    for at, to in inside:
        target, anchor = urldefrag(to)
        if target in anchors:
            assert not anchor or anchor in anchors[target], (at, to)
        else:
            assert (SITE / target.removeprefix(address).split("?")[0]).exists(), (
                at,
                to,
            )


QUESTIONS = [
    {"mask": mask, "offset": offset, "scale": scale, "softcap": softcap}
    for mask in ("none", "causal", "window", "padding")
    for offset, scale, softcap in ((0, 32**-0.5, None), (-4, 0.3, 2.0), (2, -0.1, None))
]


def defined(inputs, question):
    """What the definition says of the explorer's question, in its own words."""
    q, k, v = (np.array(inputs[name])[None, None] for name in "qkv")
    i, j, offset = *np.ogrid[:10, :10], question["offset"]
    masks = {
        "none": np.ones((10, 10), bool),
        "causal": j <= i + offset,
        "window": (j <= i + offset) & (j >= i + offset - 2),
        "padding": np.broadcast_to(j < 8, (10, 10)),
    }
    case = Case(
        id="explorer",
        clauses=(),
        why="The explorer is a subject too.",
        dtype="F64",
        inputs={"q": q, "k": k, "v": v, "mask": masks[question["mask"]][None, None]},
        scale=question["scale"],
        softcap=question["softcap"],
    )
    want = expected(case)
    return {name: getattr(want, name)[0, 0] for name in ("weights", "output")}


def explored(page, head, question, fault=""):
    """What the page computes, and the head's inputs."""
    found = page.evaluate(
        "([head, question]) => {"
        " const data = document.querySelector('attention-explorer').data;"
        " const steps = attentionSteps(data.inputs[head], question);"
        " return [data.inputs[head], steps]; }",
        [head, {**question, "fault": fault}],
    )
    inputs, steps = found
    return inputs, {name: np.array(steps[name]) for name in ("weights", "output")}


def difference(got, want):
    return max(np.abs(got[name] - want[name]).max() for name in want)


@pytest.mark.parametrize("head", ["pronoun", "next", "previous", "first"])
def test_the_explorer_computes_what_the_definition_says(page, address, head):
    page.goto(f"{address}explorer.html")
    for question in QUESTIONS:
        inputs, got = explored(page, head, question)
        assert difference(got, defined(inputs, question)) <= 1e-5, question


@pytest.mark.parametrize("fault", ["no-scale", "polarity", "after", "twice"])
def test_what_the_explorer_breaks_is_seen(page, address, fault):
    page.goto(f"{address}explorer.html")
    question = next(q for q in QUESTIONS if q["mask"] == "causal")
    inputs, got = explored(page, "pronoun", question, fault)
    assert difference(got, defined(inputs, question)) > 1e-2


def test_the_explorer_keeps_its_state_in_the_address(page, address):
    page.goto(f"{address}explorer.html")
    page.select_option("select[name=mask]", "causal")
    page.select_option("select[name=step]", "masked")
    assert "mask=causal" in page.url
    page.reload()
    assert page.locator("attention-explorer td.is-blocked").count() == 45
    page.locator("attention-explorer td[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert "“was”" in page.locator("[data-say]").inner_text()
