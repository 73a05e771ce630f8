"""Writes the classes of ``gallerist.losses``, ``gallerist.miners`` and ``gallerist.torch.losses``.

    python generate.py           # after the package is installed: writes the files
    python generate.py --check   # exit code 1 if a file is not up to date

Names, parameters and their defaults are those of the installed package; documentation and types come from the Rust
sources, so that each is written once.
"""

from __future__ import annotations

import json
import keyword
import pathlib
import re
import sys
import textwrap

from gallerist import _native

HERE = pathlib.Path(__file__).parent
SOURCES = HERE.parent / "gallerist-loss" / "src"
PACKAGE = HERE / "python" / "gallerist"
WIDTH = 118

TYPES = {"f64": "float", "f32": "float", "usize": "int", "u32": "int", "u64": "int", "bool": "bool", "String": "str"}


def plain(text: str) -> str:
    """A paragraph of Rust documentation as reStructuredText. Code may span lines."""

    def markup(found: re.Match[str]) -> str:
        if found["link"] == "crate::miner":
            return ":mod:`gallerist.miners`"
        return f"``{(found['link'] or found['code']).removeprefix('crate::')}``"

    # In one pass, so that the backticks of a role are not taken for those of code.
    return re.sub(r"\[`(?P<link>[^`]+)`\](\([^)]*\))?|`(?P<code>[^`]+)`", markup, text)


def blocks(lines: list[str]) -> str:
    """Paragraphs, with fenced blocks of text as literal blocks; examples in Rust are left out."""
    out: list[str] = []
    paragraph: list[str] = []
    fence = None

    def end_paragraph() -> None:
        if paragraph:
            out.append(plain("\n".join(paragraph)))
            paragraph.clear()

    for line in lines:
        if fence is None and line and not line.startswith(("```", "#")):
            paragraph.append(line)
            continue
        end_paragraph()
        if line.startswith("```"):
            if fence is None:
                fence = "text" if line == "```text" else "code"
                if fence == "text":
                    out += ["::", ""]
            else:
                if fence == "text":
                    out.append("")
                fence = None
            continue
        if fence == "text":
            out.append(f"    {line}" if line else "")
        elif fence is None:
            out.append(f"**{line.lstrip('# ')}**" if line else "")
    end_paragraph()
    text = "\n".join(out).strip()
    text = re.sub(r"\*\*Example[^\n]*\*\*\s*", "", text)
    return re.sub(r"\n{3,}", "\n\n", text)


class Source:
    """The documentation and the types of one configuration."""

    def __init__(self, path: pathlib.Path, struct: str) -> None:
        self.text = path.read_text()
        lines = self.text.splitlines()
        self.about = blocks([line[4:].rstrip() for line in lines if line.startswith("//!")])
        self.fields: dict[str, tuple[str, str]] = {}
        body = re.search(rf"pub struct {struct} \{{(.*?)\n?\}}", self.text, re.S)
        assert body, struct
        doc: list[str] = []
        for line in body[1].splitlines():
            line = line.strip()
            if line.startswith("///"):
                doc.append(line[3:].strip())
            elif found := re.match(r"pub (\w+): (.+),$", line):
                self.fields[found[1]] = (plain(" ".join(doc)), found[2])
                doc = []

    def type_of(self, kind: str) -> str:
        if found := re.fullmatch(r"Option<(.+)>", kind):
            return f"{self.type_of(found[1])} | None"
        if found := re.fullmatch(r"Vec<(.+)>", kind):
            return f"list[{self.type_of(found[1])}]"
        if kind == "MinerConfig":
            return "Miner | str | dict[str, Any]"
        if kind in TYPES:
            return TYPES[kind]
        if found := re.search(rf"pub enum {kind} \{{(.*?)\n\}}", self.text, re.S):
            names = re.findall(r"^    (\w+),$", found[1], re.M)
            snake = [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names]
            return f"Literal[{', '.join(json.dumps(name) for name in snake)}]"
        return "dict[str, Any]"


def sources() -> dict[str, tuple[pathlib.Path, str]]:
    """The file and the configuration of each loss and miner, by its name in run files."""
    found = {}
    for path in sorted([*SOURCES.glob("*.rs"), *(SOURCES / "miner").glob("*.rs")]):
        for struct, body in re.findall(r"impl Named for (\w+) \{(.*?)\n\}", path.read_text(), re.S):
            name = re.search(r'NAME: &\'static str = "(\w+)"', body) or re.search(r'"(\w+)"', body)
            assert name, struct
            found[("miner:" if path.parent.name == "miner" else "") + name[1]] = (path, struct)
    return found


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def parameter(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def wrapped(text: str, indent: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=rest, break_long_words=False)


def literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def of_class(entry: dict, source: Source, base: str, suffix: str, torch: bool) -> str:
    """One class."""
    defaults = entry["parameters"]
    learns = entry.get("learns", False)
    derived = dict(entry.get("derived", []))
    signature, documents, passed = [], [], []
    # Parameters that only some settings have.
    may_learn = "Option<Param<" in source.text
    if learns or may_learn:
        signature += [f"{size}: int | None = None" if may_learn else f"{size}: int" for size in ("classes", "dimensions")]
        documents += [("classes", "number of training classes; labels are 0 to ``classes - 1``."), ("dimensions", "values of an embedding.")]
        if may_learn:
            documents = [(size, f"{doc} Needed for settings with parameters of their own.") for size, doc in documents]
        passed += ["classes=classes", "dimensions=dimensions"]
    for key, (doc, kind) in source.fields.items():
        given = parameter(key)
        kind = source.type_of(kind)
        default = defaults.get(key)
        if default is None and "None" not in kind:
            kind += " | None"
        signature.append(f"{given}: {kind} = {literal(default) if not isinstance(default, dict) else None}")
        if isinstance(default, dict) and "None" not in kind:
            signature[-1] = f"{given}: {kind} | None = None"
        note = f" By default {plain(derived[key])}." if key in derived and "Absent" not in doc else ""
        documents.append((given, doc + note))
        passed.append(f"{given}={given}")
    if base != "Miner":
        signature.append("seed: int = 1")
        mined = "; a miner has a ``seed`` of its own" if "miner" in source.fields else ""
        documents.append(("seed", f"seed of the loss's own parameters and of random choices{mined}."))
        passed.append("seed=seed")
        if torch:
            signature.append("normalize: bool | None = None")
            documents.append(("normalize", "whether rows are scaled to length 1 first; None: as the paper does."))
            passed.append("normalize=normalize")
    about = source.about
    if torch:
        about = f"{about.split(chr(10) + chr(10))[0]}\n\nDefinition and corner cases: :class:`gallerist.losses.{camel(entry['name'])}{suffix}`."
    lines = [f"class {camel(entry['name'])}{suffix}({base}):", '    r"""' + about.replace("\n", "\n    ")]
    if documents:
        lines.append("")
    for name, doc in documents:
        lines += wrapped(f":param {name}: {doc}", "    ", "        ")
    lines += ['    """', "", f'    name = "{entry["name"]}"']
    if signature:
        lines += ["", "    def __init__(", "        self,", "        *,", *(f"        {part}," for part in signature), "    ) -> None:"]
        lines += ["        super().__init__(", *(f"            {part}," for part in passed), "        )"]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text


HEADER = '''"""{about}

{hint}
"""

# Written by generate.py.

from __future__ import annotations

from typing import Any, Literal

{imports}

__all__ = [
{names}
]


{classes}'''


def module(about: str, hint: str, imports: str, classes: dict[str, str]) -> str:
    names = "\n".join(f'    "{name}",' for name in classes)
    return HEADER.format(about=about, hint=hint, imports=imports, names=names, classes="\n\n".join(classes.values()))


def files() -> dict[pathlib.Path, str]:
    """Each generated file with its text."""
    of = sources()
    losses = json.loads(_native.losses())
    miners = json.loads(_native.miners())

    def classes(entries: list, prefix: str, base: str, suffix: str, torch: bool = False) -> dict[str, str]:
        return {
            camel(entry["name"]) + suffix: of_class(entry, Source(*of[prefix + entry["name"]]), base, suffix, torch)
            for entry in sorted(entries, key=lambda entry: entry["name"])
        }

    return {
        PACKAGE / "losses.py": module(
            "Ranking losses on NumPy arrays: ``RllLoss(margin=0.4)(embeddings, labels)``.",
            "A call returns a :class:`LossOutput` with value, gradient and diagnostics for each query; see\n"
            ":meth:`Loss.__call__`. :mod:`gallerist.torch.losses` has the same losses as ``torch.nn.Module``.",
            "from ._loss import Loss, LossOutput, Miner, Queries",
            {**dict.fromkeys(["Loss", "LossOutput", "Queries"], ""), **classes(losses, "", "Loss", "Loss")},
        ),
        PACKAGE / "miners.py": module(
            "Miners: which pairs of a batch a loss looks at.",
            'Give one to a loss that takes a miner: ``ContrastiveLoss(miner=HardMiner())``, or its name: ``miner="hard"``.\n'
            "No gradient flows through the choice.",
            "from ._loss import Miner",
            {"Miner": "", **classes(miners, "miner:", "Miner", "Miner")},
        ),
        PACKAGE / "torch" / "losses.py": module(
            "Ranking losses as ``torch.nn.Module``: ``RllLoss(margin=0.4)(embeddings, labels).backward()``.",
            "A call returns a scalar tensor; see :meth:`Loss.forward`. Embeddings may be on any device.",
            "from .._loss import Miner\nfrom ._module import Loss",
            {"Loss": "", **classes(losses, "", "Loss", "Loss", torch=True)},
        ),
    }


def main() -> int:
    stale = []
    for path, text in files().items():
        text = re.sub(r"\n{4,}", "\n\n\n", text)
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if "--check" not in sys.argv:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
    for path in stale:
        print(("not up to date: " if "--check" in sys.argv else "written: ") + str(path.relative_to(HERE)))
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
