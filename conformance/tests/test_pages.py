"""What the pages quote is what is measured today."""

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from attncheck import minilm
from attncheck.case import DTYPES
from attncheck.operations import OPERATIONS
from attncheck.suite import operation_cases
from attncheck.worker import run_case
from attnref.numpy import attention
from attnref.numpy.variants import linear_attention

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
AGAIN = "run `nox -s pages`"
SMALL = 1e-5

needs_model = pytest.mark.skipif(
    minilm.available() is not None, reason=str(minilm.available())
)


@pytest.fixture
def pages(monkeypatch):
    """Imports a module of the folder, which is no package."""
    monkeypatch.syspath_prepend(ROOT / "conformance" / "pages")
    return import_module


def evidence(name):
    return json.loads((EVIDENCE / f"{name}.json").read_text("utf-8"))


def numbers(value, place=()):
    """Place → number, of everything in a document."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return {place: value}
    return {k: v for key, x in parts for k, v in numbers(x, (*place, key)).items()}


def assert_measured(found, kept):
    """Four digits; what is as small as rounding is at most four times as large."""
    found, kept = numbers(found), numbers(kept)
    assert found.keys() == kept.keys(), AGAIN
    for place, value in kept.items():
        if isinstance(value, str):
            assert found[place] == value, (place, AGAIN)
        elif abs(value) < SMALL:
            assert abs(found[place]) <= 4 * max(abs(value), 1e-12), (place, AGAIN)
        else:
            assert found[place] == pytest.approx(value, rel=1e-4), (place, AGAIN)


@needs_model
def test_questions_are_answered_with_what_is_measured(pages):
    assert_measured(pages("answers").measure(), evidence("answers"))


def test_variants_are_shown_as_measured(pages):
    exact, kept = pages("exact"), evidence("variants")
    assert kept["measured"] == {name: [*x] for name, x in exact.MEASURED.items()}
    assert_measured(exact.counts(), kept["cases"])
    assert_measured(exact.shown(), kept["shown"])


def test_mistakes_in_variants_change_what_is_kept(pages):
    exact, kept = pages("exact"), evidence("variants")
    assert_measured(exact.mistakes(), kept["mistakes"])
    assert_measured(exact.gradient_mistakes(), kept["gradient_mistakes"])


def test_every_variant_has_a_page_with_code_agreement_and_mistakes():
    """Which the table of steps and the README's row link to."""
    folder, kept = ROOT / "docs", evidence("variants")
    pages = {p.name: p.read_text("utf-8") for p in (folder / "variants").glob("*.md")}
    index = (folder / "steps" / "index.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert kept["rooms"].keys() == {"numpy", "torch", "jax"}
    assert all(found.keys() == OPERATIONS.keys() for found in kept["rooms"].values())
    for name in OPERATIONS:
        (page,) = (x for x, text in pages.items() if f"{{agreement}} {name}" in text)
        assert re.search(rf"```{{rooms}} variants/\w+\.py .*\b{name}\b", pages[page])
        for kind in ("mistakes", "gradient_mistakes"):
            records = f"```{{records}} variants.{kind}.{name}\n"
            assert (records in pages[page]) == (name in kept[kind])
        assert re.search(rf"\(\.\./variants/{page}\) \|.*`{name}`", index)
        assert re.search(rf"\[`{name}`\]\(docs/variants/{page}", readme)


def test_every_room_is_within_the_budget_of_every_variant():
    kept = evidence("variants")
    ids = {
        f"{x}/{t}" for names in kept["measured"].values() for x in names for t in DTYPES
    }
    assert ids <= {case.id for case in operation_cases("smoke")}
    for room, found in kept["rooms"].items():
        for place, value in numbers(found).items():
            assert place[-1] == "error" or 0 <= value <= 1, (room, place)


@needs_model
def test_the_weights_that_are_drawn_are_the_models(pages):
    found, kept = (
        numbers(json.loads(json.dumps(x)))
        for x in (pages("drawn").measure(), evidence("sentence"))
    )
    assert found.keys() == kept.keys(), AGAIN
    for place, value in kept.items():
        same = value if isinstance(value, str) else pytest.approx(value, abs=2e-4)
        assert found[place] == same, (place, AGAIN)


@needs_model
def test_approximations_are_as_far_off_as_is_measured(pages):
    """Three digits: an inverse passes rounding on, times its condition."""
    found = numbers(json.loads(json.dumps(pages("approximate").measure())))
    kept = numbers(evidence("approximations"))
    assert found.keys() == kept.keys(), AGAIN
    for place, value in kept.items():
        if isinstance(value, str):
            assert found[place] == value, (place, AGAIN)
        elif place[0] == "rank":
            assert found[place] <= 4 * max(value, 1e-12), (place, AGAIN)
        else:
            assert found[place] == pytest.approx(value, rel=1e-3), (place, AGAIN)


def test_the_errors_of_features_fall_as_the_root_of_their_number():
    slope = evidence("approximations")["slope"]["slope"]
    assert -0.6 < slope < -0.4


@needs_model
def test_batches_waste_what_is_kept(pages):
    """Of the lengths that are kept, which are this Python's if it is the same one."""
    kept, batches = evidence("batches"), pages("batches")
    lengths = [int(x) for x in kept["lengths"].split()]
    if kept["python"] == pages("text").version():
        assert pages("text").lengths() == lengths, AGAIN
    found = numbers(batches.of(lengths))
    assert found.keys() <= numbers(kept).keys(), AGAIN
    for place, value in found.items():
        want = value if isinstance(value, str) else pytest.approx(value, rel=1e-5)
        assert numbers(kept)[place] == want, (place, AGAIN)


@needs_model
def test_the_tokens_are_the_tokenizers(pages):
    sentence = pages("sentence")
    tokens = minilm.tokenise([sentence.SENTENCE])
    words = (minilm.folder() / "vocab.txt").read_text("utf-8").splitlines()
    assert tuple(words[place] for place in tokens.ids[0]) == sentence.TOKENS


def test_the_page_of_a_step_is_linked_and_shows_code_and_a_measurement():
    folder = ROOT / "docs" / "steps"
    pages = {path.stem for path in folder.glob("*.md")} - {"index"}
    index = (folder / "index.md").read_text("utf-8")
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == pages
    for name in pages - {"inputs"}:
        text = (folder / f"{name}.md").read_text("utf-8")
        assert "```{rooms} " in text, name
        assert "```{measured} " in text or name == "whole", name


def shown(page):
    """What the one block of Python on a page leaves behind."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    scope = {}
    exec(source, scope)
    return scope


def test_the_code_about_approximations_and_patterns_is_run():
    left = shown("variants/approximations.md")
    assert left["output"].shape == left["q"].shape
    left = shown("variants/sparse.md")
    want = attention(left["q"], left["k"], left["v"], mask=left["pattern"])
    np.testing.assert_allclose(left["output"], want, atol=1e-13 * abs(left["v"]).max())


def test_the_code_about_batches_is_each_sequence_alone():
    left = shown("steps/batches.md")
    start = 0
    for length in left["lengths"]:
        alone = slice(start, start := start + length)
        own = (left[x][alone].swapaxes(0, 1)[None] for x in "qkv")
        want = attention(*own)[0].swapaxes(0, 1)
        np.testing.assert_allclose(left["packed"][alone], want, atol=1e-13)


def test_the_subject_with_an_operation_is_judged():
    page = (ROOT / "docs" / "judge.md").read_text("utf-8")
    (source,) = re.findall(r"^```python\n(from.*?)^```$", page, re.M | re.S)
    scope = {"attention": attention, "linear_attention": linear_attention}
    exec(source, scope)
    linear = [c for c in operation_cases(dtypes=["F32"]) if c.op == "linear_attention"]
    plain = next(case for case in linear if not case.settings)
    assert run_case(scope["subject"], plain, {}).status == "done"


def test_the_mask_of_ones_own_is_taken():
    """The code on the page about the design, with the arrays that it speaks of."""
    page = (ROOT / "docs" / "design.md").read_text("utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 5, 4))
    scope = {"q": q, "k": k, "v": v}
    exec(source, scope)
    i, j = np.ogrid[:5, :5]
    want = attention(q, k, v, mask=((i - j) % 2 == 0)[None, None])
    np.testing.assert_array_equal(scope["out"], want)
