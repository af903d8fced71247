"""Results for people: cards, tables, plots, progress."""
