"""Reports of results: cards, tables, plots and progress."""
