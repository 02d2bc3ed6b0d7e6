"""One subject in one process: runs the cases that it is asked for.

Run as `python -m attncheck.worker FOLDER TARGET`, with the cases in the folder: a
process of `attncheck.serving`.  A task is the place of a case in `cases.jsonl`, or
`model`; the arrays of an answer are in the folder when it comes.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from safetensors import SafetensorError

from attncheck import frameworks
from attncheck.case import ALL_GRADIENTS, BROADCAST, MULTI_HEAD_PARAMS, Case
from attncheck.exchange import MODEL, Result, read_cases, write_arrays, write_result
from attncheck.operations import OPERATIONS
from attncheck.serving import Answer, serve
from attncheck.sources import digest
from attncheck.subject import Subject, lacking
from attncheck.target import load

MODEL_TASK = "model"
"""The task of running the subject inside the real model."""


def main(argv: list[str] | None = None) -> int:
    """Does what it is asked for until there is no more to do."""
    parser = argparse.ArgumentParser(prog="python -m attncheck.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    for name in ("framework", "accepts", "profile"):
        parser.add_argument(f"--{name}")
    given = vars(parser.parse_args(argv))
    return serve(partial(start, given.pop("folder"), given.pop("target"), **given))


def start(folder: Path, target: str, **given: Any) -> tuple[Answer, "Job"]:
    """Who the subject is, with why each case does not apply to it; and its tasks.

    Raises:
        SubjectError: as for `attncheck.target.load`, or its framework is not installed.
    """
    folder = folder.resolve()  # a subject may change the directory
    subject = load(target, **given)
    described = {**subject.describe(), "source": digest(target)}
    job = Job(folder, subject, described)
    return {"subject": described, "lacking": job.lacking}, job


class Job:
    """The tasks of a subject; called with one, does it and answers."""

    def __init__(
        self, folder: Path, subject: Subject, described: Mapping[str, Any]
    ) -> None:
        self._folder, self._subject, self._described = folder, subject, described
        self._cases = read_cases(folder)

    @property
    def lacking(self) -> list[str | None]:
        """Why each case does not apply, None where it does."""
        return [lacking(self._subject, case) for case in self._cases]

    def __call__(self, task: str) -> Answer:
        """Does a task: the record of a result, or nothing after the model."""
        if task == MODEL_TASK:
            self._run_model()
            return {}
        case = self._cases[int(task)]
        result = run_case(self._subject, case, self._described)
        frameworks.adapter(self._subject.framework).tidy()
        try:
            return write_result(self._folder, result)
        except SafetensorError as error:  # arrays of a type that no file can hold
            why = f"its arrays cannot be written: {error}"
            failed = replace(result, status="error", message=why, arrays={})
            return write_result(self._folder, failed)

    def _run_model(self) -> None:
        if self._subject.multi_head is None:
            return
        from attncheck import minilm

        if minilm.available():  # where the judge has it, and this Python does not
            return
        # Of no sentence, it agrees with nothing: if the process ends in the model, or
        # the subject raises, this is what is left.
        path = self._folder / MODEL
        write_arrays(path, {"embedding": np.zeros((0, 0), np.float32)})
        with suppress(Exception):
            write_arrays(path, {"embedding": embed_with(self._subject)})


def run_case(subject: Subject, case: Case, described: Mapping[str, Any]) -> Result:
    """What the subject makes of one case; no exception of the subject's leaves this."""
    started = time.perf_counter()
    status, message, arrays = _attempt(subject, case)
    seconds = time.perf_counter() - started
    return Result(case.id, status, message, arrays, seconds, described, case.sha256)


def embed_with(subject: Subject) -> np.ndarray:
    """The real model's sentence embeddings, `b c`, with the subject's attention."""
    from attncheck import minilm  # which needs more packages than a case does

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
    before = set(threading.enumerate())
    try:
        with framework.precision(case.dtype):
            if case.compiled:
                subject = through_compiler(subject, framework)
            arrays = _compute(subject, case, framework)
            return "done", _left_running(before), arrays
    except NotImplementedError as error:
        return "refused", str(error) or "NotImplementedError", {}
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {error}"
        if case.compiled:  # whether it should be is not for the spec to say
            return "not applicable", f"cannot be compiled: {message}", {}
        return "error", message, {}


def _left_running(before: Set[threading.Thread]) -> str:
    """Threads of Python's that a case began and did not end; nothing where none."""
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    return f"left threads running: {', '.join(sorted(names))}" if names else ""


def through_compiler(subject: Subject, framework: ModuleType) -> Subject:
    """The subject, its functions compiled by its framework."""
    names = [name for name in ("call", "grad", "multi_head") if getattr(subject, name)]
    calls = {name: framework.compiled(getattr(subject, name)) for name in names}
    return replace(subject, **calls)


def _compute(
    subject: Subject, case: Case, framework: ModuleType
) -> dict[str, np.ndarray]:
    """Every result that the case wants and the subject can give."""
    inputs = {name: framework.to_native(case.laid_out(name)) for name in case.inputs}
    keywords = {
        name: inputs.get(name, value) for name, value in subject.options(case).items()
    }
    if case.op == "multi_head_attention":
        results = _multi_head(subject, inputs, keywords)
    else:
        results = _forward(subject, case.op, _arguments(inputs), keywords)
    with _reading_results():
        _check_arrays(results, inputs, subject.framework, framework)
        _check_owned(results, inputs, framework)
    if set(case.wants) & set(ALL_GRADIENTS) and "d_out" in inputs:
        given = subject, case.op, inputs, keywords, framework
        gradients = _gradients(*given, returns_lse="lse" in results)
        with _reading_results():
            _check_arrays(gradients, inputs, subject.framework, framework)
        results |= gradients
    with _reading_results():
        _check_untouched(case, inputs, framework)
        return {
            name: np.asarray(framework.to_numpy(results[name]))
            for name in case.wants
            if name in results
        }


@contextmanager
def _reading_results() -> Iterator[None]:
    """What the framework cannot do with a result is no refusal of the subject's."""
    try:
        yield
    except NotImplementedError as error:
        raise TypeError(f"its results cannot be read: {error}") from error


def _check_arrays(
    results: Mapping[str, Any], inputs: Mapping, of: str, framework: ModuleType
) -> None:
    """Refuses what is no array, or is on another device than the arguments.

    Raises:
        TypeError, ValueError: which result, and what it is.
    """
    home = framework.device(next(iter(inputs.values())))
    for name, value in results.items():
        if not framework.is_native(value):
            kind = type(value).__name__
            raise TypeError(f"`{name}` is a {kind}, not an array of {of}")
        if (place := framework.device(value)) != home:
            raise ValueError(f"`{name}` is on {place}, but the arguments are on {home}")


def _check_owned(
    results: Mapping[str, Any], inputs: Mapping, framework: ModuleType
) -> None:
    """Refuses a forward result in the memory of an argument.

    Of gradients autodiff itself makes some that are the incoming one.

    Raises:
        ValueError: which, and of which argument.
    """
    for (name, value), (argument, array) in product(results.items(), inputs.items()):
        if framework.shares_memory(value, array):
            raise ValueError(
                f"`{name}` shares its memory with the argument `{argument}`, so that "
                "whoever changes one changes the other"
            )


def _multi_head(subject: Subject, inputs: dict, keywords: dict) -> dict[str, Any]:
    assert subject.multi_head is not None  # `lacking` has seen to that
    params = {name: inputs.get(name) for name in MULTI_HEAD_PARAMS}
    context = inputs.get("context")
    return {"output": subject.multi_head(params, inputs["x"], context, **keywords)}


def _arguments(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that are no options, and no gradients that come in."""
    others = (*BROADCAST, "d_out", "d_lse")
    return {name: array for name, array in inputs.items() if name not in others}


def _forward(
    subject: Subject, op: str, arrays: Mapping[str, Any], keywords: dict
) -> dict[str, Any]:
    if op in OPERATIONS:
        returned = subject.operations[op](**arrays, **keywords)
        names = tuple(OPERATIONS[op].returns)
        if not isinstance(returned, tuple):
            names = names[:1]  # the output alone
        how = "return that, or the output alone"
    else:
        how = "return that, or declare an `attncheck.Subject` with what it `returns`"
        names = subject.returns
        words = {subject.keyword(name): x for name, x in keywords.items()}
        returned = subject.call(arrays["q"], arrays["k"], arrays["v"], **words)
    if len(names) == 1 and not isinstance(returned, tuple):
        returned = (returned,)
    if not isinstance(returned, tuple) or len(returned) != len(names):
        what = f"{len(returned)} values" if isinstance(returned, tuple) else "no tuple"
        declared = ", ".join(names)
        raise TypeError(f"returned {what}, but declares {declared}: {how}")
    return dict(zip(names, returned, strict=True))


def _gradients(
    subject: Subject,
    op: str,
    inputs: dict,
    keywords: dict,
    framework: ModuleType,
    *,
    returns_lse: bool,
) -> dict[str, Any]:
    """The gradients by the subject's own, or by autodiff, or none."""
    names = [name[1:] for name in ALL_GRADIENTS if name[1:] in inputs]
    arguments = [inputs[name] for name in names]
    d_out, d_lse = inputs["d_out"], inputs.get("d_lse")
    if op in subject.operation_grads:
        arrays = _arguments(inputs)
        grad = subject.operation_grads[op]
        by_name = grad(d_out, **arrays, d_lse=d_lse, **keywords)
        found = tuple(by_name.get(name) for name in names)
    elif subject.grad is not None and op == "attention":
        found = subject.grad(d_out, *arguments[:3], d_lse=d_lse, **keywords)
        if not isinstance(found, tuple) or len(found) < len(names):
            must = ", ".join(f"d{name}" for name in names)
            raise TypeError(f"`grad` must return a tuple of {must}")
    elif not _has_autodiff(subject, framework) or (
        d_lse is not None and not returns_lse
    ):
        return {}
    else:
        wanted = ("output",) if d_lse is None else ("output", "lse")
        cotangents = (d_out,) if d_lse is None else (d_out, d_lse)

        def call(*arguments: Any) -> tuple:
            given = dict(zip(names, arguments, strict=True))
            bias = {"bias": given.pop("bias")} if "bias" in given else {}
            results = _forward(subject, op, given, keywords | bias)
            return tuple(results[name] for name in wanted)

        found = framework.vjp(call, arguments, cotangents)
    named = zip(names, found, strict=False)
    return {f"d{name}": array for name, array in named if array is not None}


def _has_autodiff(subject: Subject, framework: ModuleType) -> bool:
    """Whether autodiff can be asked for the gradients of what the subject returns."""
    return framework.vjp is not None and subject.differentiable


def _check_untouched(case: Case, inputs: dict, framework: ModuleType) -> None:
    for name, array in case.inputs.items():
        after = np.asarray(framework.to_numpy(inputs[name]))
        if after.tobytes() != array.tobytes():
            raise ValueError(f"the subject changed its argument `{name}` in place")


if __name__ == "__main__":
    sys.exit(main())
