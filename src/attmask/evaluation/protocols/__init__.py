"""Protocols that evaluate a frozen network, one per file."""
