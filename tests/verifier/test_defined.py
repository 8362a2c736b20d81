"""A name that a file does not define is refused before anything runs; one that may be defined is not."""

from __future__ import annotations

import pytest

from verifier.defined import require_defined
from verifier.errors import UsageError


def test_the_refusal_tells_what_there_is(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def wrapped(model):\n    return model\n")
    with pytest.raises(UsageError, match=r"'mine.py' defines no 'wrap': did you mean wrapped\?"):
        require_defined(path, "wrap")
    with pytest.raises(UsageError, match="it defines wrapped"):
        require_defined(path, "Strategy")
    path.write_text("class Forwarding:\n    def __getattr__(self, name):\n        return None\n")
    with pytest.raises(UsageError, match="it defines Forwarding"):
        require_defined(path, "wrap")
    path.write_text("def _hook(state, bucket):\n    return None\n")
    with pytest.raises(UsageError, match="it defines _hook"):
        require_defined(path, "wrap")
    path.write_text("x = 1\n")
    with pytest.raises(UsageError, match="it defines no function and no class"):
        require_defined(path, "wrap")


@pytest.mark.parametrize(
    "text",
    [
        "from ddp_core import *",
        "from ddp_core import wrap",
        "import ddp_core as wrap",
        "if True:\n    wrap = print",
        "for wrap in (print,): pass",
        "match print:\n    case wrap: pass",
        "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(**{'wrap': print})",
        "globals()['wr' + 'ap'] = print",
        "def __getattr__(name): return print",
        "exec('wr' + 'ap = print')",
        "import sys\nsetattr(sys.modules[__name__], 'wr' + 'ap', print)",
        "def broken(:",
        "\0",
    ],
)
def test_a_name_that_may_be_there_is_not_refused(text, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    require_defined(path, "wrap")
