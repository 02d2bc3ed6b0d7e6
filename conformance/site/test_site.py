"""The built site in a real browser: `nox -s docs-browser`."""

import http.server
import os
import shutil
import threading
from functools import partial
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

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
