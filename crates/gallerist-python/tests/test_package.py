"""The package as a whole: stubs, generated files, doctests, import."""

import ast
import doctest
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import gallerist
from gallerist import _native

PACKAGE = pathlib.Path(gallerist.__file__).parent
HERE = pathlib.Path(__file__).parent


def test_the_stubs_have_what_the_native_part_has():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text(encoding="utf-8"))

    def stubs(body):
        return {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}

    def check(name, stub, found):
        wanted = [arg.arg for arg in stub.args.args if arg.arg not in ("self", "cls")]
        signature = [parameter for parameter in inspect.signature(found).parameters if parameter != "self"]
        assert wanted == signature, name

    def public(of):
        return {name for name, value in vars(of).items() if not name.startswith("_") and callable(getattr(of, name))}

    of_module = stubs(tree.body)
    assert public(_native) == set(of_module)
    for name, stub in of_module.items():
        if isinstance(stub, ast.FunctionDef):
            check(name, stub, getattr(_native, name))
            continue
        methods = stubs(stub.body)
        constructor = methods.pop("__new__", None)
        of_class = getattr(_native, name)
        if constructor is not None:
            check(name, constructor, of_class)
        assert public(of_class) == set(methods), name
        for method, of_method in methods.items():
            check(f"{name}.{method}", of_method, getattr(of_class, method))


def test_the_generated_files_are_up_to_date():
    generate = HERE.parent / "generate.py"
    assert subprocess.run([sys.executable, generate, "--check"], check=False).returncode == 0


def test_code_in_the_documentation_of_losses_and_miners_is_closed():
    for module in (gallerist.losses, gallerist.miners):
        for name in module.__all__:
            without_blocks = re.sub(r"::\n\n(?:    .*\n|\n)+", "", inspect.getdoc(getattr(module, name)))
            assert "`" not in re.sub(r":\w+:`[^`]+`|``[^`]+``", "", without_blocks), name


def test_examples_in_docstrings():
    for module in ("gallerist", "gallerist._index", "gallerist._loss", "gallerist.losses"):
        assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_every_public_name_is_documented():
    for name in gallerist.__all__:
        assert inspect.getdoc(getattr(gallerist, name)), name


def test_torch_is_imported_late():
    program = "import sys, gallerist; print([m for m in ('torch', 'pandas', 'polars', 'tqdm', 'PIL') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
