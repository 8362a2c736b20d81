"""Print the requirements of pyproject.toml, those of the named extras too: ``python requirements.py service``.

Special here: an image installs them before it copies any source, so that a change of the source does not fetch
torch again.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
chosen = list(project["dependencies"])
for extra in sys.argv[1:]:
    chosen += project["optional-dependencies"][extra]
print("\n".join(chosen))
