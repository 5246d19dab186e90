"""docs/python-reference.md from the package's docstrings: `python docs/reference.py` prints it; a test holds the page against it."""

import inspect
import textwrap

import linnet
from linnet import delta, gate, gla, kda, rwkv

HEAD = """# Reference of the Python functions

From the docstrings, by `docs/reference.py`; [python.md](python.md) is the guide. Arguments of the same name mean the same everywhere;
they are explained at `chunk_kda`.
"""
TITLES = {kda: "Kimi Delta Attention", delta: "Delta rules", gla: "Linear attention with decays", rwkv: "RWKV",
          gate: "Gates on their own"}
TOOLS = ("law", "Recurrence", "explain", "show", "check", "device", "schedule", "tune", "Error", "LawError")


def signature(name, thing):
    """name(q, k, ...), folded."""
    text = name + str(inspect.signature(thing)).replace("(self, ", "(")
    return "\n".join(textwrap.wrap(text, 110, subsequent_indent="    ", break_long_words=False))


def entry(name, thing):
    lines = [f"### {name}", ""]
    if name not in ("law", "Error", "LawError"):
        lines += ["```", signature(name, thing), "```", ""]
    return [*lines, "```text", inspect.cleandoc(thing.__doc__ or ""), "```", ""]


def functions_of(module):
    """(name, function) in the order of the file; another name of the same function is said there."""
    for name, function in vars(module).items():
        if name in linnet.__all__ and inspect.isfunction(function):
            yield name, function


def page():
    lines = [HEAD]
    for module, title in TITLES.items():
        lines += [f"## {title}", ""]
        rest = (module.__doc__ or "").partition("\n\n")[2].strip()
        if rest:
            lines += [" ".join(rest.split()).replace("everywhere in this file", "everywhere here"), ""]
        for name, function in functions_of(module):
            if function.__name__ != name:
                lines += [f"### {name}", "", f"Another name of `{function.__name__}`.", ""]
            else:
                lines += entry(name, function)
    lines += ["## Tools", ""]
    for name in TOOLS:
        thing = getattr(linnet, name)
        lines += entry(name, thing)
        for kind in ("key", "value", "scalar", "strength", "gate", "head_key", "scale") if name == "law" else ():
            lines += [f"`law.{signature(kind, getattr(thing, kind))}`: {' '.join(getattr(thing, kind).__doc__.split())}", ""]
        for way in ("__call__", "recurrent") if name == "Recurrence" else ():
            lines += [f"`{way}`: {' '.join(getattr(thing, way).__doc__.split())}", ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
