"""`python -m kernel`: an agent on the files of a directory; `scenario FILE` runs a scenario, `check FILE` judges a
stream of events, `journal` writes and replays inputs, `timeline TRACE` and `path TRACE` draw a run, `serve` is a page to
talk to an agent (`serve --engine ENGINE` carries sessions out, and `sessions` asks for them), `acp` an agent for editors,
`doctor` examines the installation.

Exit status: 0 completed, 1 failed or cancelled, 2 wrongly called, 130 left with a second Ctrl-C.
"""

import os
import sys
from collections.abc import Callable, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The command that *argv* (by default the process's) names; its exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if sys.stdout is None:
        print("python -m kernel: error: the standard output is closed, and all is said there", file=sys.stderr)
        return 2
    try:
        status = _command(arguments)(arguments)
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # which is no error: whoever read has left, as `head` does
            print(f"python -m kernel: error: {error}", file=sys.stderr)
        # The interpreter flushes once more when it ends: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _command(arguments: list[str]) -> Callable[[Sequence[str]], int]:
    """Imported only when it is meant: the doctor must be able to speak of what can't be imported."""
    name = arguments[0] if arguments else ""
    if name == "doctor":
        from kernel.cli.doctor import main as doctor

        return lambda argv: doctor(argv[1:])
    if name == "scenario":
        from kernel.scenario import main as scenario

        return lambda argv: scenario(argv[1:])
    if name in ("check", "journal"):
        from kernel.cli import examine

        command = examine.check if name == "check" else examine.journal
        return lambda argv: command(argv[1:])
    if name in ("timeline", "path"):
        from kernel.cli import pictures

        picture = pictures.draw_timeline if name == "timeline" else pictures.draw_path
        return lambda argv: picture(argv[1:])
    if name == "sessions":
        from kernel.cli.sessions import sessions

        return lambda argv: sessions(argv[1:])
    if name == "serve" and any(argument.partition("=")[0] == "--engine" for argument in arguments):
        from kernel.cli.sessions import serve_sessions

        return lambda argv: serve_sessions(argv[1:])
    if name == "serve":
        from kernel.cli.serve import main as serve

        return lambda argv: serve(argv[1:])
    if name == "acp":
        from kernel.cli.acp import main as acp

        return lambda argv: acp(argv[1:])
    from kernel.cli.chat import main as chat

    return chat


if __name__ == "__main__":
    sys.exit(main())
