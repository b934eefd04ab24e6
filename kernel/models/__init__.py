"""Models: each is one module, imported when it is wanted, so that none costs those who do not use it."""
