"""What to say when a library is missing that an extra of ours would have brought."""


def missing(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, with the command that mends it."""
    return ModuleNotFoundError(f'{error.name} is missing: pip install "phasekernel[{extra}]"', name=error.name)
