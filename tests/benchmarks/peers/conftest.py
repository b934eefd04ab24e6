"""The sides of the peers need the peers, which have environments of their own."""

collect_ignore = ["langchain.py", "openai_agents.py", "pydantic_ai.py", "strands.py"]
