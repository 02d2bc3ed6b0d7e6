"""E25: a snippet that was never run."""

WRONG = "weights = F.softmax(scores, dim=-1)"
RIGHT = f"import torch.nn.functional as F\n\n{WRONG}"


def measure():
    import torch

    found = {}
    for name, source in (("wrong", WRONG), ("right", RIGHT)):
        try:
            exec(source, {"scores": torch.zeros(2, 2)})
            found[name] = "none"
        except NameError as error:
            found[name] = str(error)
    return found
