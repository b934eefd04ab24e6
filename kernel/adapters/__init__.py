"""Views of one ordered stream for other programs. Each is a projection of the kernel's events, and decides nothing.

Each needs an extra of its own, which is imported when it is used: `agui` (web), `acp` (acp), `telemetry` (otel).
"""
