"""Rules of the repository that a script can see."""

import ast
import importlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400


def tracked(pattern: str) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def own_modules() -> list[Path]:
    return [path for path in tracked("*.py") if "outrider/v1/" not in path.as_posix()]


def public_modules() -> list[str]:
    names = []
    for path in own_modules():
        relative = path.relative_to(ROOT).as_posix().removeprefix("client/")
        if relative.split("/")[0] in ("workers", "cluster", "outrider") and path.name not in (
            "__init__.py",
            "__main__.py",
        ):
            names.append(relative.removesuffix(".py").replace("/", "."))
    return names


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in own_modules()}
    assert sizes, "no modules found"
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


@pytest.mark.parametrize("name", public_modules())
def test_exports_exist_and_nothing_public_is_missing(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    assert exported is not None, f"{name} has no __all__"
    assert [n for n in exported if not hasattr(module, n)] == []
    assert len(exported) == len(set(exported))


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in own_modules()
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_nothing_names_a_registry_or_a_machine() -> None:
    forbidden = ("--index" + "-url", "extra-index" + "-url", "/ro" + "ot/")
    for path in tracked("*"):
        if path.suffix in {".md", ".py", ".txt", ".toml", ".yaml", ".sh", ".proto", ""} and path.is_file():
            text = path.read_text(errors="replace")
            assert not [word for word in forbidden if word in text], path
