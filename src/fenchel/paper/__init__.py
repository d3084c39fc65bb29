"""The paper's experiments on the real data, and its rivals (``rivals``). Nothing else in the library imports this."""
