"""The HTML report: well-formed, harmless, readable, and filtered by its address."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from attncheck.agreement import Agreement, ModelCheck
from attncheck.case import DTYPES, Case
from attncheck.explain import Cause, Diagnosis
from attncheck.heat import heat
from attncheck.laws import Holding
from attncheck.report import as_html, summary
from attncheck.report.drawing import caption, layers, parts, width
from attncheck.report.html import SCRIPT, SHOWN_KINDS, STYLE
from attncheck.variants import VARIANTS
from attncheck.verdict import Finding, Noisy, Run, Verdict, Waived, Worst

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=document.title='owned'>",
    "\"' autofocus onfocus=document.title='owned' x='",
    "{{ 7 * 7 }}{% raw %}",
    "</style><!--<![CDATA[",
    "&lt;b&gt;\u2028\u2029\x00",
)

NODE = shutil.which("node")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
needs_node = pytest.mark.skipif(NODE is None, reason="not run: no `node`")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="not run: no browser on this machine (`chromium`)"
)

VOID = {"meta", "input", "br", "img", "path"}


class Page(HTMLParser):
    """A page as elements; fails where tags are not nested."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert len(attributes) == len(dict(attributes)), (tag, attributes)
        self.elements.append((tag, dict(attributes), [*self.open]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), [*self.open]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append((self.open[-1:], data))

    def all(self, name):
        return [attributes for tag, attributes, _ in self.elements if tag == name]


ARRAYS = {x: np.zeros((1, 1, 2, 2), np.float32) for x in "qkv"}


(MISTAKE,) = (v for v in VARIANTS if v.name == "mask-inverted")
CAUSE = Cause(MISTAKE, ("case-00004 said/F64", "case-00012 said/F64"))


def make_run(number, name="mine", said="said", each=("pass", "fail")):
    """A run of `number` cases, of statuses in turn."""
    verdicts = []
    clauses = [f"clause-{n} {said}" for n in range(70)]
    for n in range(number):
        dtype = list(DTYPES)[n % len(DTYPES)]
        status = each[n // len(DTYPES) % len(each)]
        id = f"case-{n:05} {said}/{dtype}"
        case = Case(id, (clauses[n % 70],), said, dtype, ARRAYS)
        worst = Worst({"b": 0, "n": 0, "i": 1, "e": n % 2}, 1.5, 0.5, 7.0)
        used = 3.0 if status == "fail" else 0.5
        split = {"weights": 0.75, said: 0.25}
        findings = (Finding("output", status, used, worst, said, split),)
        compared = status in ("pass", "fail")
        verdicts.append(Verdict(case, status, said, findings if compared else ()))
    heats = {
        v.case.id: heat("output", v.findings[0].worst.index, np.full((1, 1, 9, 9), 7.0))
        for v in verdicts[:40]
        if v.status == "fail"
    }
    return Run(
        {"name": name, "version": said, "framework": "numpy", "profile": "strict"}
        | {"conventions": {said: said}},
        verdicts,
        measured={"F32": None},
        laws=[Holding("ones", said, 1, 0, (said,)), Holding("repeat", said, 0, 0, ())],
        diagnoses=[Diagnosis(("F32",), ("a", "b"), (CAUSE,))],
        heats=heats,
        warnings=[Noisy(said, "output", 1.3)],
        damage=[said],
    )


@pytest.fixture(scope="module")
def page():
    runs = [make_run(160), make_run(80, "good", each=("pass",))]
    return as_html(summary([runs[0], replace(runs[1], laws=(), damage=())]))


def test_tables_have_captions_and_their_headings_a_scope(page):
    parsed = Page(page)
    assert len(parsed.all("table")) == len(parsed.all("caption")) >= 5
    assert {th.get("scope") for th in parsed.all("th")} == {"col", "colgroup", "row"}


def test_headings_are_in_order_and_names_unique(page):
    parsed = Page(page)
    levels = [int(tag[1]) for tag, *_ in parsed.elements if re.match(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    ids = [a["id"] for _, a, _ in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert parsed.all("html") == [{"lang": "en"}]


def test_what_is_wide_scrolls_by_itself_and_can_be_reached_by_keyboard(page):
    parsed = Page(page)
    for tag, _, around in parsed.elements:
        assert tag != "table" or around[-1] == "div"
    scrolling = [a for a in parsed.all("div") if a.get("class") == "scroll"]
    assert len(scrolling) == len(parsed.all("table"))
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolling)


def test_every_cell_of_the_matrix_has_a_word_and_a_number(page):
    start = page.index('id="matrix"')
    matrix = page[page.index("<tbody>", start) : page.index("</tbody>", start)]
    cells = re.findall(r"<td.*?</td>", matrix, re.DOTALL)
    said = [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in cells]
    assert len(said) == 70 * 8
    assert set(said) == {"—", "FAIL 300.0 %", "pass 50.0 %"}


def test_a_picture_says_in_words_what_it_shows(page):
    shown = [a["aria-label"] for a in Page(page).all("svg")]
    assert "output[b=0, n=0], i down (9), e across (9): 81 of 81 elements" in shown[0]


def test_nothing_is_loaded_and_no_script_but_its_own_may_run(page):
    assert not re.search(r"(src|href|url|@import)\b\s*[=(]", page)
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    (policy,) = (a["content"] for a in Page(page).all("meta") if "http-equiv" in a)
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        in policy
    )
    assert f"<script>{SCRIPT}</script>" in page
    for text in (SCRIPT, STYLE):
        assert not re.search(r"</|<!--|\{\{|\{%|innerHTML|eval|[\u2028\u2029]", text)


def everything(said):
    """A report of which everything that somebody else writes says the same."""
    run = make_run(16, name=said, said=said)
    agreement = Agreement(said, said, "F32", 3, 0.5, 0.5, said)
    model = ModelCheck(said, said, 1e-7, 1e-6)
    document = summary([run], [agreement], [model], model_missing=said)
    minimal = {"origin": said, "scores": 1, "first": None, "snippet": said}
    document["subjects"][0]["minimal"] = minimal
    return as_html(document)


@pytest.mark.parametrize("said", HOSTILE)
def test_no_text_becomes_markup(said):
    harmless, hostile = everything("x"), everything(said)
    shapes = [
        [(tag, sorted(a)) for tag, a, _ in Page(text).elements]
        for text in (harmless, hostile)
    ]
    assert shapes[0] == shapes[1]
    assert said not in hostile.replace(SCRIPT, "") or said == html.escape(said)


def test_a_waiver_and_its_reason_are_shown():
    run = make_run(8)
    waived = [
        replace(v, waived=Waived("known upstream")) if v.status == "fail" else v
        for v in run.verdicts
    ]
    text = as_html(summary([replace(run, verdicts=waived)]))
    assert text.count("Waived: known upstream") == 4


def test_a_kind_says_what_explains_its_cases(page):
    assert "Explained by mask-inverted (2 cases)." in page


def test_kinds_beyond_the_first_are_listed():
    run = make_run(8, each=("error",))
    verdicts = [
        replace(run.verdicts[n % 8], message=f"message {n}")
        for n in range(SHOWN_KINDS + 9)
    ]
    text = as_html(summary([replace(run, verdicts=verdicts)]))
    assert text.count('<h3><span class="bad">error') == SHOWN_KINDS
    assert "9 more kinds of failure" in text
    assert all(f"message {n}<" in text for n in range(SHOWN_KINDS + 9))


def test_ten_thousand_failures_are_a_page_of_a_few_megabytes():
    text = as_html(summary([make_run(10_000, each=("fail",))]))
    assert len(text) < 6e6
    assert text.count("<details open") == 0
    # Those that are not the first of their kind are in a list that is closed.
    shown = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert len(Page(shown).elements) < 6000


def channel(value):
    value /= 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def luminance(colour):
    red, green, blue = (channel(int(colour[n : n + 2], 16)) for n in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


COLOURS = {
    name: pair
    for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", STYLE)
}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["back", "card"])
@pytest.mark.parametrize("name", ["text", "soft", "good", "bad", "warn"])
def test_text_stands_out(name, ground, scheme):
    assert contrast(COLOURS[name][scheme], COLOURS[ground][scheme]) >= 4.5


def test_a_bar_is_full_from_its_budget_on():
    assert [width(x) for x in (0.37, 1.0, 81.0, "inf")] == [37.0, 100.0, 100.0, 100.0]


def test_a_split_leaves_out_what_is_nothing():
    assert parts({"sums": 0.5, "dot": 0.495, "tiny": 0.005}) == [
        ("sums", 50.0, 0),
        ("dot", 49.5, 1),
    ]


def picture(*rows):
    sizes = [len(rows), len(rows[0])]
    place = {"result": "dq", "at": {"b": 1}, "rows": "i", "columns": "d"}
    return place | {"sizes": sizes, "values": [list(row) for row in rows]}


def test_cells_are_shaded_by_the_budget_and_by_the_largest_error():
    found = layers(picture([0.05, 0.05, 1.0, 1.1], [50.0, 300.0, 5000.0, "inf"]))
    assert {layer.level: layer.path for layer in found} == {
        0: "M0 0h2v1h-2z",
        1: "M2 0h1v1h-1z",
        2: "M3 0h1v1h-1zM0 1h1v1h-1z",
        3: "M1 1h1v1h-1z",
        4: "M2 1h1v1h-1z",
        5: "M3 1h1v1h-1z",
    }


def test_what_is_out_of_budget_has_a_dot_too():
    dots = {x.level: x.marks for x in layers(picture([1.0, 1.1], [1.1, 1.1]))}
    assert dots == {1: "", 4: "M1.5 0.5h0M0.5 1.5h0M1.5 1.5h0"}


def test_a_picture_in_words():
    assert caption(picture([1.0, 2.0], [0.0, "inf"])) == (
        "dq[b=1], i down (2), d across (2): "
        "2 of 4 elements out of budget, the worst ∞ ×"
    )


FILTERS = """
const all = { failures: false, dtypes: null, subject: "", find: "" };
const say = [
  parse(""),
  parse("#elsewhere"),
  parse("#failures&dtypes=F32,BF16&subject=a%20b%26c&find=x%3Dy"),
  format(parse("#failures&dtypes=F32,BF16&subject=a%20b%26c&find=x%3Dy")),
  format(parse("#dtypes=&find=%3Cb%3E")),
  format(all),
  shown({ failing: "no" }, all),
  shown({ failing: "no" }, { ...all, failures: true }),
  shown({ failing: "yes" }, { ...all, failures: true }),
  shown({ dtype: "F32" }, { ...all, dtypes: ["BF16"] }),
  shown({ dtype: "F32" }, { ...all, dtypes: ["F32"] }),
  shown({ subject: "a" }, { ...all, subject: "b" }),
  shown({ subject: "a", other: "b" }, { ...all, subject: "b" }),
  shown({ text: "Causal mask" }, { ...all, find: "MASK causal" }),
  shown({ text: "Causal mask" }, { ...all, find: "mask window" }),
  shown({}, { ...all, failures: true, dtypes: [], subject: "b", find: "x" }),
];
console.log(JSON.stringify(say));
"""
EVERYTHING = {"failures": False, "dtypes": None, "subject": "", "find": ""}
ASKED = {"failures": True, "dtypes": ["F32", "BF16"], "subject": "a b&c", "find": "x=y"}


@needs_node
def test_the_address_says_what_is_shown(tmp_path):
    script = tmp_path / "page.js"
    script.write_text(SCRIPT + FILTERS, "utf-8")
    ended = subprocess.run([NODE, script], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [
        EVERYTHING,
        EVERYTHING,
        ASKED,
        "failures&dtypes=F32,BF16&subject=a%20b%26c&find=x%3Dy",
        "dtypes=&find=%3Cb%3E",
        "",
        *(True, False, True),
        *(False, True),
        *(False, True),
        *(True, False),
        True,
    ]


def browsed(place, address, *options):
    """The page as a browser has it after its script ran."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *options]
    command += [f"--user-data-dir={place / 'browser'}", "--dump-dom", address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "</html>" in ended.stdout, ended.stderr[-2000:]
    return ended.stdout


@needs_browser
def test_a_browser_shows_what_the_address_asks_for(page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    address = file.as_uri() + "#failures&dtypes=F32&find=clause-1"
    seen = browsed(tmp_path, address)
    assert re.search(r'<form id="filters"(?! hidden)', seen)
    columns = re.findall(r'<th scope="col"[^>]*data-dtype="(\w+)"([^>]*)>', seen)
    assert {d for d, rest in columns if "hidden" not in rest} == {"F32"}
    start = seen.index('id="matrix"')
    rows = re.findall(
        r"<tr data-find=\"\"( hidden=\"\")?><th scope=\"row\"><code>(.*?)</code>",
        seen[start:],
    )
    shown = {clause for hidden, clause in rows if not hidden}
    assert shown
    assert all("clause-1" in clause for clause in shown)
    assert re.search(r'<section data-subject="good"[^>]* hidden', seen)


@needs_browser
@pytest.mark.parametrize("said", HOSTILE[:3])
def test_a_browser_runs_nothing_of_a_subjects_text(said, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(everything(said), "utf-8")
    assert "<title>attncheck: does not conform</title>" in browsed(
        tmp_path, file.as_uri()
    )


FRAMES = """<!doctype html><title>waiting</title><body><script>
const page = {page};
const measured = [360, 1200].map((width) => new Promise((done) => {{
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${{width}}px; height: 800px; border: 0`;
  frame.onload = () => {{
    const {{ scrollWidth, clientWidth }} = frame.contentDocument.documentElement;
    done(scrollWidth - clientWidth);
  }};
  frame.srcdoc = page;
  document.body.append(frame);
}}));
Promise.all(measured).then((found) => {{ document.title = found.join(" "); }});
</script></body>"""


@needs_browser
def test_a_phone_scrolls_down_only(tmp_path):
    text = as_html(summary([make_run(160, name="a/long/path" * 9, said="word" * 40)]))
    file = tmp_path / "frames.html"
    quoted = json.dumps(text).replace("<", r"\u003c")
    file.write_text(FRAMES.format(page=quoted), "utf-8")
    seen = browsed(tmp_path, file.as_uri(), "--virtual-time-budget=10000")
    assert "<title>0 0</title>" in seen, re.findall("<title>.*?</title>", seen)
