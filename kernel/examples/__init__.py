"""Programs that use the kernel, each a module that can be run."""
