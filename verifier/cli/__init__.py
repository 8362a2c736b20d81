"""The command ``lockstep``: one file per group of commands; ``main.py`` is the command itself and ``lockstep verify``.

Special here: nothing is imported before it is needed, so that ``lockstep --help`` does not wait for torch.
"""
