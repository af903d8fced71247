"""One HTML page that tells whether a run is good."""
