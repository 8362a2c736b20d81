"""What the text of a strategy shows, read without running it.

Special here: the text only decides which situations are worth their time in ``standard``; ``thorough`` includes them
all. Modules that a file imports from its own folder, or from the path, are read, too; of ``site-packages``, only the
package that is itself the strategy.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from verifier import catalogue
from verifier.request import Builtin, FromFile, Imported, Source, StrategyRef

MOST_FILES = 16  # enough for a strategy; a framework around it is not read whole
MOST_BYTES = 2**20  # of a file: nobody writes more, and a table of numbers shows nothing
INSTALLED = frozenset({"site-packages", "dist-packages"})
SPEAKS_OF_ALL = frozenset({"torch", "ddp_core", "verifier"})  # importing these says nothing about the strategy itself
ASKS = frozenset({"is_initialized", "get_world_size", "get_rank"})  # about the process group, which may not exist yet


def texts(ref: StrategyRef) -> Iterator[bytes]:
    """Yield the files of ``ref``. A file that cannot be read is left out: the ranks will report it."""
    if isinstance(ref, Source):
        yield from (text.encode() for text in ref.files.values())
    elif isinstance(ref, FromFile):
        yield from with_what_it_imports(Path(ref.path))
    elif isinstance(ref, Imported):
        module = ref.entrypoint.partition(":")[0]
        for path in list(_files(folder, module) if (folder := _where(module)) else ())[:1]:
            yield from with_what_it_imports(path)


def with_what_it_imports(path: Path) -> Iterator[bytes]:
    """Yield the text of ``path`` and of all it imports, directly or not: from their folders, or else from the path."""
    waiting, seen = [path], {path}
    for _ in range(MOST_FILES):
        if not waiting:
            return
        file = waiting.pop(0)
        try:
            with file.open("rb") as opened:
                text = opened.read(MOST_BYTES)
        except OSError:
            continue
        yield text
        folders = {0: path.parent, **dict(enumerate(file.parents, 1))}
        found = [
            one
            for level, name in imported_in(text)
            if level in folders
            for one in tuple(_files(folders[level], name)) or (() if level else tuple(_on_the_path(name, file)))
        ]
        waiting += [one for one in dict.fromkeys(found) if one not in seen]
        seen.update(found)


@lru_cache(maxsize=MOST_FILES)  # each situation asks again
def imported_in(text: bytes) -> tuple[tuple[int, str], ...]:
    """Return the modules imported anywhere in ``text``, each after its number of dots. ``from a import b`` gives both
    ``a`` and ``a.b``.
    """
    names: list[tuple[int, str]] = []
    with suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names += [(0, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                of = node.module or ""
                names += [(node.level, name) for name in (of, *(f"{of}.{alias.name}" for alias in node.names))]
    return tuple((level, name.strip(".")) for level, name in names if name.strip("."))


def _files(folder: Path, name: str) -> Iterator[Path]:
    place = folder.joinpath(*name.split("."))
    yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


def _on_the_path(name: str, importing: Path) -> Iterator[Path]:
    """Yield the files of module ``name``, unless it is installed and ``importing`` is not in the same package."""
    top = name.partition(".")[0]
    if top in SPEAKS_OF_ALL or top in sys.stdlib_module_names or (folder := _where(name)) is None:
        return
    if importing.is_relative_to(folder / top) or not INSTALLED & set(folder.parts):
        yield from _files(folder, name)


def _where(name: str) -> Path | None:
    """Return the folder that holds the topmost package of module ``name``, found without importing it. The working
    folder comes first, as for ranks.
    """
    with suppress(ImportError, ValueError, AttributeError, OSError):
        return _folder_of(name.partition(".")[0], str(Path.cwd()), tuple(sys.path))
    return None


@lru_cache(maxsize=256)
def _folder_of(top: str, working: str, path: tuple[str, ...]) -> Path | None:
    spec: ModuleSpec | None = PathFinder.find_spec(top, [working]) or importlib.util.find_spec(top)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin).parent if spec.origin and spec.has_location else None


def shown(pattern: str, *, any_case: bool = False) -> Callable[[StrategyRef], bool]:
    """Return a function that says whether ``pattern`` is found in the text of a strategy."""
    compiled = re.compile(pattern.encode(), re.IGNORECASE if any_case else 0)
    return lambda ref: any(compiled.search(text) for text in texts(ref))


says_float16 = shown(r"(?<!b)float16|fp16|\bhalf\b", any_case=True)
says_group = shown(r"\b(process_group|dp_group|pg|group)\b\s*[:=,)]")  # argument names of process groups
accumulates = shown(r"(?<!post_)accum|main_grad|\bdef backward\b")  # not register_post_accumulate_grad_hook()
defines_clip = shown(r"\bdef clip_(grad|by_norm)")
says_norm_type = shown(r"\bnorm_type\b")
speaks_of_losses = shown(r"loss|\bdef (backward|step|train\w*)\b|is_?nan|is_?inf|is_?finite|overflow", any_case=True)
drops_micro_batches = shown(r"no_sync|grad(ient)?_sync|accum|micro|main_grad", any_case=True)
every_few_steps = shown(
    r"%\s*(self\.)?_?\w*(every|inter|period|steps|freq|\b[a-zA-Z]\b)|step\w*\s*[<>]|[<>]=?\s*(self\.)?\w*steps"
    r"|every|interval|period|slow|anchor|lookahead|warm_?up|\bema\b",
    any_case=True,
)
says_sizes = shown(r"numel\(\)\s*[<>]|[<>]=?\s*\w+(\.\w+)*\.numel\(\)|<<\s*\d\d|\*\*\s*\d\d|\.chunk\(")
says_complex = shown(r"complex|view_as_real|is_floating_point", any_case=True)  # the last excludes complex numbers
says_sparse = shown(r"sparse|coalesce\(|\.layout\b", any_case=True)
speaks_of_nodes = shown(
    r"local_rank|local_world|node_rank|group_rank|new_group|new_subgroups|device_mesh", any_case=True
)
says_precision = shown(
    r"\.dtype\b|float16|\bfp16|\bhalf\b|\.float\(\)|float32|\bfp32|main_grad|\bmasters?\b", any_case=True
)
looks_for_outliers = shown(
    r"spike|outlier|z_?score|threshold|anomal|skip|median|running_(mean|avg|norm)", any_case=True
)
loads_by_itself = shown(r"\bdef (load_)?state_dict\b")
keeps_for_all = shown(r"queue_callback|_execution_engine|\bglobal\s+\w|(\bcls|__class__|type\(self\))\.\w+\s*=[^=]")
says_cap = shown(r"\b((max_)?bucket_((cap|size)_)?mb|cap_mb)\b")
defines_add_param_group = shown(r"\bdef add_param_group\b")
has_an_optimizer = shown(r"\bclass\s+\w+\(.*optim|\bdef\s+(wrap_optimizer|make_optimizer|step)\b", any_case=True)


_of_an_optimizer = re.compile(rb"optim|param_groups|\.step\b|\bdef step\b", re.IGNORECASE)


def has_to_do_with_optimizers(ref: StrategyRef) -> bool:
    """Return whether the text of ``ref``, or a built-in's file, names optimizers; True if some of it is not read."""
    if isinstance(ref, Builtin):
        return bool(_of_an_optimizer.search((catalogue.STRATEGIES.folder / f"{ref.name}.py").read_bytes()))
    found = list(texts(ref))
    return not found or any(_of_an_optimizer.search(text) or _imports_what_is_installed(text) for text in found)


def _imports_what_is_installed(text: bytes) -> bool:
    tops = {name.partition(".")[0] for level, name in imported_in(text) if not level}
    folders = (_where(top) for top in tops - SPEAKS_OF_ALL - sys.stdlib_module_names - {"numpy"})
    return any(folder is not None and INSTALLED & set(folder.parts) for folder in folders)


def asks_on_import(ref: StrategyRef) -> bool:
    """Return whether the text of ``ref`` asks about the process group outside of functions, or in their defaults."""
    for text in texts(ref):
        with suppress(SyntaxError, ValueError):
            if any(_asks(node) for node in _on_import(ast.parse(text))):
                return True
    return False


def _on_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of ``node`` that run when a module is imported: all but the bodies of functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, child.args):
                yield from _on_import(part)
        elif not isinstance(child, ast.Lambda):
            yield from _on_import(child)


def _asks(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    return name in ASKS
