"""What nox would run: `recorded.py JSON`, a list of lists of arguments of nox.

Prints a list of pairs: the arguments, and the commands, or what is wrong with them.
Where one of the commands is nox again, its arguments are one more list.
"""

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout

from nox.__main__ import main
from nox.sessions import Session


def run(session, *words, **_):
    """In place of running it."""
    commands.append(words)
    if words[1:3] == ("-m", "nox"):
        asked.append(words[3:])


Session.run, Session.install = run, lambda *_, **__: None
shutil.which = lambda name: name  # the browser that a session looks for
asked, found = json.loads(sys.argv[1]), []
for arguments in asked:
    commands, said = [], io.StringIO()
    sys.argv = ["nox", "--no-venv", *arguments]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main()
    except SystemExit as ended:
        found.append((arguments, said.getvalue() if ended.code else commands))
print(json.dumps(found))
