"""Ways in which files go wrong, by accident or on purpose; all from a seed."""

import json
import random

DEEP = 20_000
"""Levels: more than any reader goes down."""

VALUES = (
    *(None, True, False, 0, 1, -1, 0.5, 1.5, -0.0, 1e308, 10**17, 2**31, "", "x", "\n"),
    *(
        "../x",
        "/etc/hostname",
        "results",
        ".",
        "\0",
        "\ud800",
        "\x1b[2J",
        "é",
        "0" * 64,
    ),
    *("a" * 5000, [], {}, [[]], [0], ["x"], {"x": 0}, [None] * 9, {"name": 5}),
    *("attncheck-case/2", "attncheck-result/2", "BF16", "F64", "done", "pass", "b b"),
    *("99 99 99 n", "²", ["output"], ["q", "q"], {"q": "i"}, {"window": [1]}),
    *(float("nan"), float("inf"), {"name": "x", "profile": "loose"}, {"b": 10**12}),
)
"""What stands where something else should."""

TEXTS = (
    *("NaN", "-Infinity", "1e999", "9" * 5000, "-" + "9" * 30, "[" * DEEP, "{" * 9),
    *('{"a":' * DEEP, '{"id": 1, "id": 2}', r'"\ud83d"', "'x'", "01", "tru", "", "//"),
)
"""What no JSON value is, or none that we want."""


def bytes_changed(text: bytes, rng: random.Random) -> bytes:
    """Bits flipped, bytes lost, doubled, exchanged or added, or the end missing."""
    a, b = sorted(rng.randrange(len(text) + 1) for _ in "ab")
    near = min(b, a + rng.randrange(1, 9))
    return rng.choice(
        (
            lambda: flipped(text, rng),
            lambda: flipped(flipped(text, rng), rng),
            lambda: text[:a] + rng.randbytes(near - a) + text[near:],
            lambda: text[:a] + text[near:],
            lambda: text[:b] + text[a:],
            lambda: text[:a] + rng.randbytes(rng.randrange(1, 5)) + text[a:],
            lambda: text[:a],
        )
    )()


def flipped(text: bytes, rng: random.Random) -> bytes:
    """One bit flipped."""
    if not text:
        return b"\0"
    place = rng.randrange(len(text))
    changed = text[place] ^ 1 << rng.randrange(8)
    return text[:place] + bytes([changed]) + text[place + 1 :]


def record_changed(line: bytes, rng: random.Random, more: tuple = ()) -> bytes:
    """A JSON object, something in which is another thing, missing, new or doubled.

    Args:
        more: further values to put there.
    """
    record = json.loads(line)
    holder, key = rng.choice(list(places(record)))
    way = rng.choice(("value", "value", "text", "drop", "add", "twice", "swap", "wrap"))
    if way == "value":
        holder[key] = rng.choice(VALUES + more)
    elif way == "text":
        holder[key] = "\a"
        return json.dumps(record).replace(r'"\u0007"', rng.choice(TEXTS)).encode()
    elif way == "drop":
        del holder[key]
    elif way == "add" and isinstance(holder, dict):
        holder[rng.choice(("", "x", "schema", "\ud800"))] = rng.choice(VALUES)
    elif way == "twice":
        text = json.dumps(record)
        return f"{text[:-1]}, {text[1:]}".encode()
    elif way == "swap":
        other, name = rng.choice(list(places(record)))
        holder[key], other[name] = other[name], holder[key]
    else:
        holder[key] = [holder[key]]
    return dumped(record)


def dumped(record) -> bytes:
    """The line of a record; one that holds itself after a swap is an empty one."""
    try:
        return json.dumps(record).encode()
    except (ValueError, RecursionError):
        return b"{}"


def places(value):
    """Every place in a record, as what holds it and its key or index there."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def arrays_changed(file: bytes, rng: random.Random) -> bytes:
    """A safetensors file, its header or its arrays changed."""
    size = int.from_bytes(file[:8], "little")
    header, body = file[8 : 8 + size], file[8 + size :]
    way = rng.choice(
        ("bytes", "body", "header", "record", "offsets", "dtype", "length")
    )
    if way == "bytes":
        return bytes_changed(file, rng)
    if way == "body":
        return file[: 8 + size] + bytes_changed(body, rng)
    if way == "length":
        sizes = (0, 1, size - 1, size + 1, len(file), 2**31, 10**8, 2**63, 2**64 - 1)
        return rng.choice(sizes).to_bytes(8, "little") + header + body
    if way == "header":
        header = bytes_changed(header, rng)
    elif way == "record":
        header = record_changed(header, rng)
    else:
        header = described_otherwise(header, rng, way)
    return len(header).to_bytes(8, "little") + header + body


def described_otherwise(header: bytes, rng: random.Random, way: str) -> bytes:
    """A header by which an array lies elsewhere, or is of another type or shape."""
    record = json.loads(header)
    array = record[rng.choice([name for name in record if name != "__metadata__"])]
    if way == "dtype":
        kinds = (
            "BOOL",
            "U8",
            "I64",
            "F64",
            "F32",
            "F16",
            "BF16",
            "F8_E5M2",
            "C64",
            "F4",
        )
        array["dtype"] = rng.choice((*kinds, "x"))
        size, shape = 10 ** rng.randrange(1, 20), array["shape"]
        array["shape"] = rng.choice(
            (shape, shape[::-1], [*shape, 1], [size, 0], [1] * 70)
        )
    else:
        step = rng.choice((-8, -4, -1, 1, 4, 8, 10**9, 2**63))
        array["data_offsets"][rng.randrange(2)] += step
    return json.dumps(record).encode()
