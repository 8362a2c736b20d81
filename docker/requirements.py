"""Print the requirements of pyproject.toml, those of the named extras too: ``python requirements.py service``.

Special here: an image installs them before it copies any source, so that a change of the source does not fetch
torch again. ``--without-torch`` leaves it out, and names what else of ours comes with it.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
chosen = list(project["dependencies"])
words = sys.argv[1:]
if "--without-torch" in words:
    words.remove("--without-torch")
    chosen = [*(need for need in chosen if not need.startswith("torch")), "jinja2"]
for extra in words:
    chosen += project["optional-dependencies"][extra]
print("\n".join(chosen))
