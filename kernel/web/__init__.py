"""A page to talk to an agent and to watch it, and AG-UI for other front ends, on this machine only. Extra: `web`.

`python -m kernel serve` is the command; `kernel.web.app.application` makes the same for a program of your own.
"""
