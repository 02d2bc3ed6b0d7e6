"""The room."""
