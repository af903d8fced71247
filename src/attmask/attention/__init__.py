"""The `[CLS]` attention of vision transformers of timm and Hugging Face."""
