"""The house: sizes, doors, words. What imports what is held by import-linter (`pyproject.toml`)."""

import ast
import importlib
import inspect
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MODULES = sorted(path for room in ("kernel", "statechart") for path in (ROOT / room).rglob("*.py"))
DOORS = ["kernel", "statechart", "kernel.testing"]


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: pathlib.Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.walk(ast.parse(path.read_text()))
    return [node for node in tree if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_fits_in_the_head(path: pathlib.Path):
    """A module has at most 400 lines, and none of its functions more than 70."""
    lengths = {node.name: node.end_lineno - node.lineno + 1 for node in functions(path)}

    assert len(path.read_text().splitlines()) <= 400
    assert {name: length for name, length in lengths.items() if length > 70} == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_opens_with_what_it_is(path: pathlib.Path):
    """Each module begins with at least one deciding sentence."""
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_private_name_crosses_a_module(path: pathlib.Path):
    """No module imports another's underscore name."""
    taken = [
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("kernel", "statechart")
        for alias in node.names
        if alias.name.startswith("_")
    ]

    assert taken == []


@pytest.mark.parametrize("door", DOORS)
def test_a_door_opens_to_what_it_says(door: str):
    """Each name in `__all__` is there, and the list is sorted and says each name once."""
    module = importlib.import_module(door)

    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("door", DOORS)
def test_what_is_public_is_documented(door: str):
    """Each class and function behind a door has a docstring, and so has each of its public methods."""
    module = importlib.import_module(door)
    silent = []
    for name in module.__all__:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        if not thing.__doc__:
            silent.append(name)
        for method, function in vars(thing).items() if inspect.isclass(thing) else ():
            if not method.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                silent.append(f"{name}.{method}")

    assert silent == []


def test_there_is_one_loop():
    """Only the drive pumps: `while True` with an await in it stands in one function of the kernel's shell."""
    loops = [
        f"{name_of(path)}:{function.name}"
        for path in MODULES
        if path.parent.name == "kernel"
        for function in functions(path)
        if isinstance(function, ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
    ]

    assert loops == ["kernel/drive.py:_carry"]


def test_the_phase_is_set_by_the_lifecycle_alone():
    """`leaf` is assigned in `Core._fire` and nowhere else."""
    places = [
        f"{name_of(path)}:{function.name}"
        for path in MODULES
        for function in functions(path)
        for node in ast.walk(function)
        if isinstance(node, (ast.Assign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and target.attr == "leaf"
    ]

    assert places == ["kernel/core.py:_fire"]


@pytest.mark.parametrize("word", ["watcher", "TODO", "FIXME", "XXX"])
def test_words_that_are_not_ours(word: str):
    """One word per concept: a listener is not a watcher; nothing is left to be done in a comment."""
    assert [name_of(path) for path in MODULES if word in path.read_text()] == []
