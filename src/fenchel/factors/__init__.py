"""Factor models of tables: ``model`` is the evidence and its gradient, ``learning`` maximises it."""
