"""Linnet inside other libraries: linnet.integrations.transformers and linnet.integrations.fla."""
