"""One subject in one process: reads cases from a folder, appends results to it.

Run as `python -m attncheck.worker FOLDER TARGET`.  What a subject does to its process
stays in this one: whoever started it sees which case has no result.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
from safetensors import SafetensorError

from attncheck import frameworks, minilm
from attncheck.case import GRADIENTS, MULTI_HEAD_PARAMS, Case
from attncheck.exchange import (
    LOADED,
    MODEL,
    Result,
    append_result,
    begin,
    pending,
    read_cases,
    repair,
    write_arrays,
)
from attncheck.subject import Subject, SubjectError, lacking, options
from attncheck.target import load

EXIT_SUBJECT = 78
"""Exit status when the target is no subject; the last line of stderr says why."""


def main(argv: list[str] | None = None) -> int:
    """Runs every case of the folder that has no result yet."""
    parser = argparse.ArgumentParser(prog="python -m attncheck.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    for name in ("framework", "accepts", "profile"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--begin", choices=("new", "resumed"))
    arguments = vars(parser.parse_args(argv))
    folder, target = arguments.pop("folder").resolve(), arguments.pop("target")
    with_model, begins = arguments.pop("model"), arguments.pop("begin")
    Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    with redirect_stdout(sys.stderr):  # a subject may print; results go to files
        try:
            subject = load(target, **arguments)
            described = subject.describe()
        except SubjectError as error:
            print(*str(error).split("\n"), file=sys.stderr)  # one line
            return EXIT_SUBJECT
        if begins:
            begin(folder, described if begins == "resumed" else None)
        (folder / LOADED).parent.mkdir(exist_ok=True)
        (folder / LOADED).touch()  # what follows is the subject's doing
        repair(folder)
        left = pending(folder, read_cases(folder))
        # Those that do not apply come first: workers lost in a row are then seen to be.
        for case in sorted(left, key=lambda case: lacking(subject, case) is None):
            _append(folder, run_case(subject, case, described))
        if with_model and subject.multi_head is not None:
            # Of no sentence, it agrees with nothing: if the process ends in the model,
            # or the subject raises, this is what is left.
            write_arrays(folder / MODEL, {"embedding": np.zeros((0, 0), np.float32)})
            write_arrays(folder / MODEL, {"embedding": embed_with(subject)})
    return 0


def end_with(parent: int) -> None:
    """Ends this process soon after the one that started it and waits for it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def run_case(subject: Subject, case: Case, described: Mapping[str, Any]) -> Result:
    """What the subject makes of one case; no exception of the subject's leaves this."""
    started = time.perf_counter()
    status, message, arrays = _attempt(subject, case)
    seconds = time.perf_counter() - started
    return Result(case.id, status, message, arrays, seconds, described, case.sha256)


def _append(folder: Path, result: Result) -> None:
    """Adds a result; arrays of a type that no file can hold make it an error."""
    try:
        append_result(folder, result)
    except SafetensorError as error:
        message = f"its arrays cannot be written: {error}"
        append_result(
            folder, replace(result, status="error", message=message, arrays={})
        )


def embed_with(subject: Subject) -> np.ndarray:
    """The real model's sentence embeddings, `b c`, with the subject's attention."""
    framework = frameworks.adapter(subject.framework)
    multi_head = subject.multi_head
    assert multi_head is not None

    def layer(
        params: Mapping[str, np.ndarray], x: np.ndarray, mask: np.ndarray
    ) -> np.ndarray:
        native = {n: framework.to_native(np.array(a)) for n, a in params.items()}
        mask = framework.to_native(np.array(mask))
        return framework.to_numpy(multi_head(native, framework.to_native(x), mask=mask))

    return minilm.embed(layer)


def _attempt(subject: Subject, case: Case) -> tuple[str, str, dict[str, np.ndarray]]:
    reason = lacking(subject, case)
    if reason:
        return "not applicable", reason, {}
    framework = frameworks.adapter(subject.framework)
    try:
        with framework.precision(case.dtype):
            if case.compiled:
                subject = _through_compiler(subject, framework)
            return "done", "", _compute(subject, case, framework)
    except NotImplementedError as error:
        return "refused", str(error) or "NotImplementedError", {}
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {error}"
        if case.compiled:  # whether it should be is not for the spec to say
            return "not applicable", f"cannot be compiled: {message}", {}
        return "error", message, {}


def _through_compiler(subject: Subject, framework: ModuleType) -> Subject:
    """The subject, its functions compiled by its framework."""
    names = [name for name in ("call", "grad", "multi_head") if getattr(subject, name)]
    calls = {name: framework.compiled(getattr(subject, name)) for name in names}
    return replace(subject, **calls)


def _compute(
    subject: Subject, case: Case, framework: ModuleType
) -> dict[str, np.ndarray]:
    """Every result that the case wants and the subject can give."""
    inputs = {name: framework.to_native(case.laid_out(name)) for name in case.inputs}
    keywords = {name: inputs.get(name, value) for name, value in options(case).items()}
    if case.op == "multi_head_attention":
        results = _multi_head(subject, inputs, keywords)
    else:
        results = _forward(subject, inputs, keywords)
        if set(case.wants) & set(GRADIENTS) and "d_out" in inputs:
            results |= _gradients(subject, inputs, keywords, framework)
    for name, value in results.items():
        if not framework.is_native(value):
            kind = type(value).__name__
            raise TypeError(
                f"`{name}` is a {kind}, not an array of {subject.framework}"
            )
    _check_untouched(case, inputs, framework)
    return {
        name: np.asarray(framework.to_numpy(results[name]))
        for name in case.wants
        if name in results
    }


def _multi_head(subject: Subject, inputs: dict, keywords: dict) -> dict[str, Any]:
    assert subject.multi_head is not None  # `lacking` has seen to that
    params = {name: inputs.get(name) for name in MULTI_HEAD_PARAMS}
    context = inputs.get("context")
    return {"output": subject.multi_head(params, inputs["x"], context, **keywords)}


def _forward(subject: Subject, inputs: dict, keywords: dict) -> dict[str, Any]:
    returned = subject.call(inputs["q"], inputs["k"], inputs["v"], **keywords)
    if len(subject.returns) == 1 and not isinstance(returned, tuple):
        returned = (returned,)
    if not isinstance(returned, tuple) or len(returned) != len(subject.returns):
        what = f"{len(returned)} values" if isinstance(returned, tuple) else "no tuple"
        raise TypeError(f"returned {what}, but declares {', '.join(subject.returns)}")
    return dict(zip(subject.returns, returned, strict=True))


def _gradients(
    subject: Subject, inputs: dict, keywords: dict, framework: ModuleType
) -> dict[str, Any]:
    """dq, dk, dv, dbias by the subject's own gradient, or by autodiff, or none."""
    names = [name for name in ("q", "k", "v", "bias") if name in inputs]
    arguments = [inputs[name] for name in names]
    d_out, d_lse = inputs["d_out"], inputs.get("d_lse")
    if subject.grad is not None:
        found = subject.grad(d_out, *arguments[:3], d_lse=d_lse, **keywords)
        if not isinstance(found, tuple) or len(found) < len(names):
            must = ", ".join(f"d{name}" for name in names)
            raise TypeError(f"`grad` must return a tuple of {must}")
    elif framework.vjp is None or (d_lse is not None and "lse" not in subject.returns):
        return {}
    else:
        wanted = ("output",) if d_lse is None else ("output", "lse")
        cotangents = (d_out,) if d_lse is None else (d_out, d_lse)

        def call(*arguments: Any) -> tuple:
            given = dict(zip(names, arguments, strict=True))
            bias = {"bias": given["bias"]} if "bias" in given else {}
            results = _forward(subject, given, keywords | bias)
            return tuple(results[name] for name in wanted)

        found = framework.vjp(call, arguments, cotangents)
    return {f"d{name}": gradient for name, gradient in zip(names, found, strict=False)}


def _check_untouched(case: Case, inputs: dict, framework: ModuleType) -> None:
    for name, array in case.inputs.items():
        after = np.asarray(framework.to_numpy(inputs[name]))
        if after.tobytes() != array.tobytes():
            raise ValueError(f"the subject changed its argument `{name}` in place")


if __name__ == "__main__":
    sys.exit(main())
