"""The evaluation of frozen backbones: features, protocols, metrics and reports."""
